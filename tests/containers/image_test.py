"""Images of containers/Dockerfile hold their cap, however they are run."""
import json
import os
import subprocess
import tempfile

import pytest

from rig import (GIB, PODMAN, RELEASES, SOURCE, STORAGE, binaries, build, capped, debian, finished, output, part,
                 wait_until)

pytestmark = pytest.mark.usefixtures("containers")
RAISES = [["FRACGPU_MEMORY_LIMIT=16GiB"], ["FRACGPU_MEMORY_LIMIT=100%"], ["FRACGPU_MEMORY_LIMIT=0=39GiB"],
          ["GPU_MEM_LIMIT_GB=32"], ["LD_PRELOAD="], ["LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6"]]


def asked(text, command, name):
    for line in text.splitlines():
        if line.startswith(command + " "):
            return int(dict(pair.split("=", 1) for pair in line.split() if "=" in pair)[name], 0)
    raise AssertionError(f"no '{command}' with '{name}' in: {text}")


def fills(host, image, cap, options=(), command=("/client", "init", "retain", "meminfo", "fill", "256MiB")):
    """The container gets all of its cap and, by the node's own accounting, no more."""
    host.forget_marks()
    status, out, err = host.container(image, *command, options=options)
    what = f"{list(options)} {command[:2]}: {status} {out} {err}"
    assert status == 0 and asked(out, "meminfo", "total") == cap, what
    assert asked(out, "fill", "rc") == 2 and "cuMemAlloc refused" in err, what
    mark = host.used()[0][1]
    assert cap - 256 * 2**20 < mark <= cap, f"{what} mark {mark}"


@pytest.mark.parametrize("release, glibc", [(11, "2.31"), (12, "2.36"), (13, "2.41")])
def test_loads_and_caps_on_every_debian(host, release, glibc):
    part_of_glibc = part("glibc-2.31")
    libc = f"{part_of_glibc}/lib/x86_64-linux-gnu"
    gates = f"{SOURCE}/tests/gates"
    driver, client = f"{STORAGE}/old/libcuda.so.1", f"{STORAGE}/old/client"
    os.makedirs(os.path.dirname(driver), exist_ok=True)
    output(["cc", "-O1", "-fPIC", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", driver,
            f"{gates}/old_driver.c"])
    output(["cc", "-O1", "-nodefaultlibs", f"-Wl,-rpath-link,{libc}", "-o", client, f"{gates}/old_client.c",
            f"{libc}/libdl.so.2", f"{libc}/libc.so.6"])
    image = capped(debian(release), 1)
    status, out, err = host.container(
        image, "/old/client", options=["-v", f"{os.path.dirname(driver)}:/old:ro", "-e", "LD_LIBRARY_PATH=/old"])
    expected = f"glibc {glibc}\ntotal 1024 MiB\n768 MiB: 0\n512 MiB: 2\n"
    assert (status, out) == (0, expected), f"Debian {release}: {status} {out} {err}"
    assert err.count("\n") == 1 and "cuMemAlloc refused" in err, err
    # Nothing of the image's own programs is disturbed, and the command loads and throws.
    status, out, err = host.container(image, "sh", "-c", "dpkg --version >/dev/null && fracgpu --version")
    assert status == 0 and out.startswith("fracgpu ") and err == "", f"Debian {release}: {out} {err}"
    status, out, err = host.container(image, "fracgpu", "limit", "nobody", "lots")
    assert status != 0 and err.count("\n") == 1 and "'lots' is not understood" in err, err


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("options", [
    "", "--pid=host --ipc=host", "--pid=host", "--ipc=host", "--user 1000:1000", "--read-only", "--shm-size=64m",
    "--cap-drop=all", "--user=7 --read-only"])
def test_cap_holds_however_it_is_run(host, release, options):
    fills(host, capped(debian(release), 8), 8 * GIB, options.split())


def test_environment_cannot_raise_it(host):
    image = capped(debian(), 8)
    for variables in RAISES:
        fills(host, image, 8 * GIB, [each for variable in variables for each in ("-e", variable)])
    gpu = ["LD_LIBRARY_PATH=/sim", "FRACGPU_SIM_NODE=/node"]
    client = ["/client", "init", "retain", "meminfo", "fill", "256MiB"]
    fills(host, image, 8 * GIB, command=["env", "-i", *gpu, *client])
    fills(host, image, 2 * GIB, ["-e", "FRACGPU_MEMORY_LIMIT=2GiB"])
    # A user without root can take nothing of it away.
    attempts = " || ".join(
        f"{each} 2>/dev/null" for each in
        ("rm -f /etc/ld.so.preload", "echo >/etc/ld.so.preload", "rm -f /usr/lib/libfracgpu.so",
         "echo >/usr/lib/libfracgpu.so", "mv /usr/lib/libfracgpu.so /tmp", "rm -f /etc/fracgpu/limit.conf",
         "echo 16GiB >/etc/fracgpu/limit.conf", "mv /etc/fracgpu /tmp/", "chmod 777 /etc/fracgpu"))
    status, out, err = host.container(image, "sh", "-c", f"{{ {attempts}; }} && echo gone", options=["--user=1000"])
    assert status != 0 and out == "", f"{status} {out} {err}"


@pytest.mark.parametrize("options", [["--pid=host", "--ipc=host"], []], ids=["on the host's namespaces", "on its own"])
def test_two_sizes_on_one_gpu(host, options):
    held = {}
    for gb in (8, 4):
        image = capped(debian(), gb)
        name, child, _ = host.held(image, "/client", "init", "retain", "wait", "fill", "256MiB", "wait",
                                   options=options)
        held[gb] = (name, child)
    for _, child in held.values():  # both at the same time from here
        child.stdin.write("\n")
        child.stdin.flush()
    before = 0
    for gb, (_, child) in held.items():
        lines = []
        while (line := child.stdout.readline()) != "ready\n":
            assert line, child.stderr.read()
            lines.append(line)
        assert asked("".join(lines), "fill", "rc") == 2
        got = asked("".join(lines), "fill", "count") * 256 * 2**20
        assert (gb * GIB) - 512 * 2**20 <= got <= gb * GIB, f"{gb}: {got}"
        before += got
    used = host.used()[0][0]
    assert before < used <= 12 * GIB, f"{before} {used}"
    if not options:
        return
    # The host sees both, by the PIDs that it knows itself.
    pids = {gb: int(output([*PODMAN, "inspect", "--format", "{{.State.Pid}}", name]))
            for gb, (name, _) in held.items()}
    status, out, err = host.fracgpu("status", "--json")
    shown = {process["host_pid"]: device["cap_bytes"] for tenant in json.loads(out)["tenants"]
             for device in tenant["devices"] for process in device["processes"]}
    assert {shown.get(pid) for pid in pids.values()} == {8 * GIB, 4 * GIB}, f"{pids} {out} {err}"


@pytest.mark.parametrize("options", ["", "--pid=host --ipc=host", "--user=1000"])
def test_exec_joins_the_tenant(host, options):
    image = capped(debian(), 8)
    name, _, _ = host.held(image, "/client", "init", "retain", "alloc", "5GiB", "wait", options=options.split())
    status, out, err = finished([*PODMAN, "exec", name, "/client", "init", "retain", "fill", "256MiB"])
    assert status == 0 and asked(out, "fill", "rc") == 2, f"{options} {out} {err}"
    assert 7 * GIB + GIB // 2 < host.used()[0][1] <= 8 * GIB, host.used()
    status, out, _ = finished([*PODMAN, "exec", name, "env", "-i", "LD_LIBRARY_PATH=/sim",
                               "FRACGPU_SIM_NODE=/node", "/client", "init", "retain", "alloc", "4GiB"])
    assert status == 0 and asked(out, "alloc", "rc") == 2, out
    status, out, _ = finished([*PODMAN, "exec", "-e", "FRACGPU_TENANT=another", name, "/client", "init",
                               "retain", "alloc", "4GiB"])
    assert status == 0 and asked(out, "alloc", "rc") == 2, f"a second name is a second cap: {out}"


def use_of(status):
    return json.loads(status)["tenants"][0]["devices"][0]["used_bytes"]


@pytest.mark.parametrize("options", [["--pid=host", "--ipc=host"], ["--ipc=host"]], ids=" ".join)
def test_killed_container_gives_all_back(host, options):
    image = capped(debian(), 8)
    name, child, _ = host.held(image, "/client", "init", "retain", "alloc", "7GiB", "wait", options=options)
    assert 7 * GIB <= host.used()[0][0] <= 8 * GIB
    pid = output([*PODMAN, "inspect", "--format", "{{.State.Pid}}", name]).strip()
    tenant = f"container-{os.stat(f'/proc/{pid}/ns/mnt').st_ino}"
    status, out, err = host.fracgpu("status", "--json", tenant)
    assert status == 0 and use_of(out) >= 7 * GIB, f"{out} {err}"
    output([*PODMAN, "kill", "--signal", "KILL", name])
    assert child.wait(60) == 137, child.stderr.read()
    wait_until(lambda: host.used()[0][0] == 0, "the driver takes its memory back")
    status, out, err = host.fracgpu("status", "--json", tenant)
    assert status == 0 and use_of(out) == 0, f"{out} {err}"
    fills(host, image, 8 * GIB, options)


def test_image_says_what_it_is(host):
    image = capped(debian(), 12)
    config = json.loads(output([*PODMAN, "image", "inspect", image]))[0]
    assert config["Labels"]["dev.fracgpu.memory"] == "12GiB", config["Labels"]
    assert config["Labels"]["org.opencontainers.image.base.name"] == debian(), config["Labels"]
    assert "GPU_MEM_LIMIT_GB=12" in config["Config"]["Env"], config["Config"]
    assert config["Healthcheck"]["Test"] == ["CMD", "fracgpu", "doctor", "--quiet"], config["Healthcheck"]
    status, out, _ = host.container(image, "sh", "-c", "stat -c '%a %u %n' /etc/ld.so.preload /etc/fracgpu "
                                    "/etc/fracgpu/limit.conf /usr/lib/libfracgpu.so; cat /etc/ld.so.preload")
    assert (status, out) == (0, "644 0 /etc/ld.so.preload\n755 0 /etc/fracgpu\n644 0 /etc/fracgpu/limit.conf\n"
                             "755 0 /usr/lib/libfracgpu.so\n/usr/lib/libfracgpu.so\n"), out


def expect_refused(reason, *options, **arguments):
    """The build fails and says why. On a crowded machine buildah 1.39 now and then loses what the failing command said,
    whatever is built; then it is asked again."""
    for _ in range(5):
        status, said = build("localhost/fracgpu:refused", f"{SOURCE}/containers/Dockerfile", *options, BASE=debian(),
                             **arguments)
        assert status != 0, f"not refused: {reason}: {said}"
        if reason in said:
            return
    raise AssertionError(f"not said: {reason}: {said}")


def test_senseless_sizes_are_refused():
    for memory in ("", "8gb", "eight", "-1", "1.2.3", "0", "0.0", ".5", "4 4"):
        expect_refused(f"MEMORY_GB={memory} is not understood", *binaries(), MEMORY_GB=memory)


def test_base_that_cannot_run_it_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        # What a program for glibc does under musl.
        os.makedirs(f"{folder}/out/usr/bin")
        with open(f"{folder}/out/usr/bin/fracgpu", "w", encoding="ascii") as file:
            file.write("#!/no/such/loader\n")
        os.chmod(f"{folder}/out/usr/bin/fracgpu", 0o755)
        expect_refused(f"programs of {debian()} cannot be capped", f"--build-context=build={folder}", MEMORY_GB=8)


def test_health_check(host):
    image = capped(debian(), 8)
    status, out, err = host.container(image, "fracgpu", "doctor", "--quiet")
    assert status == 0, f"{status} {out} {err}"
    status, out, err = host.container(image, "fracgpu", "doctor", "--quiet",
                                      options=["-v", "/dev/null:/etc/ld.so.preload:ro"])
    assert status == 1, f"{status} {out} {err}"


@pytest.mark.campaign("it takes minutes")
def test_first_stage_builds_the_same(host):
    """The whole Dockerfile as users build it, over a clean Debian 12."""
    image = "localhost/fracgpu:built-whole"
    status, said = build(image, f"{SOURCE}/containers/Dockerfile", BUILDER=debian(12), BASE=debian(11), MEMORY_GB=8)
    assert status == 0, said[-4000:]
    status, out, err = host.container(image, "fracgpu", "--version")
    assert status == 0 and out.startswith("fracgpu "), f"{status} {out} {err}"
    needed = f"{STORAGE}/needed"
    for path in ("/usr/bin/fracgpu", "/usr/lib/libfracgpu.so"):
        with open(needed, "wb") as file:
            subprocess.run([*PODMAN, "run", "--rm", "--network=none", "--ulimit", "nofile=1024:1024", "--ulimit",
                            "nproc=1024:1024", image, "cat", path], stdout=file, check=True)
        output([f"{SOURCE}/tests/gates/symbol_versions.sh", "readelf", needed])

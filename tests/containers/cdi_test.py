"""Caps as CDI devices, on images that know nothing of them."""
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile

import pytest

from rig import BUILD, COMMAND, GIB, LIBRARY, PODMAN, RUN, Host, debian, finished, image_of, part

pytestmark = pytest.mark.usefixtures("containers")


class Node:
    """An installed library and command, and a private /etc of this machine for the specs."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        for file in (LIBRARY, COMMAND):
            shutil.copy(file, self.folder)
        self.library, self.command = (f"{self.folder}/{os.path.basename(file)}" for file in (LIBRARY, COMMAND))
        os.chmod(self.folder, 0o755)
        for folder in ("etc", "work", "files"):
            os.mkdir(f"{self.folder}/{folder}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def private(self, *command):
        """The command, with the private /etc over the machine's own."""
        return ["unshare", "--mount", "sh", "-ec",
                f"mount -t overlay -o lowerdir=/etc,upperdir={self.folder}/etc,workdir={self.folder}/work overlay /etc\n"
                'exec "$@"', "sh", *command]

    def generate(self, *arguments, files=None):
        return finished(self.private(self.command, "cdi", "generate", "--files", files or f"{self.folder}/files", *arguments))

    def run(self, host, device, image, *command, options=()):
        return finished(self.private(*PODMAN, "run", "--rm", *RUN, *host.gpu(), *options, "--device", device, image,
                                     *command))


def one_line(err):
    return err.startswith("fracgpu: ") and err.count("\n") == 1


def test_untouched_images_are_capped():
    with Node() as node, Host("a100-40gb") as host:
        status, out, err = node.generate()
        assert (status, err) == (0, "") and "192 devices" in out, f"{status} {out} {err}"
        client = ("/client", "init", "retain", "meminfo", "fill", "256MiB")
        for device, cap in (("memory=8gb", 8), ("memory=12gb", 12), ("fraction=0.5", 20), ("fraction=0.125", 5)):
            for options in ([], ["--user=1000", "--read-only", "-e", "FRACGPU_MEMORY_LIMIT=39GiB"]):
                host.forget_marks()
                status, out, err = node.run(host, f"fracgpu.dev/{device}", debian(), *client, options=options)
                assert status == 0 and f"total={cap * GIB}" in out, f"{device} {options}: {status} {out} {err}"
                assert "fill 268435456 rc=2" in out, out
                mark = host.used()[0][1]
                assert (cap - 0.25) * GIB < mark <= cap * GIB, f"{device} {options}: {mark}"
        # Nothing that was put in can be changed from inside, even by root.
        status, out, err = node.run(
            host, "fracgpu.dev/memory=8gb", debian(13), "sh", "-c",
            "for f in /etc/ld.so.preload /usr/lib/libfracgpu.so /etc/fracgpu/limit.conf; do"
            " (echo >$f) 2>/dev/null || rm -f $f 2>/dev/null || mv $f /tmp 2>/dev/null || echo kept; done;"
            " echo $GPU_MEM_LIMIT_GB")
        assert (status, out) == (0, "kept\nkept\nkept\n8\n"), f"{status} {out} {err}"
        status, out, err = node.run(host, "fracgpu.dev/memory=7.5gb", debian(), "true")
        assert status != 0 and "fracgpu.dev/memory=7.5gb" in err, "there is no such device"
        status, _, err = node.generate("--memory", "7.5gb")
        assert status == 0, err
        status, out, err = node.run(host, "fracgpu.dev/memory=7.5gb", debian(), *client)
        assert status == 0 and f"total={int(7.5 * GIB)}" in out, f"{status} {out} {err}"
        status, out, err = node.run(host, "fracgpu.dev/fraction=0.5", debian(), "true")
        assert status != 0, "devices that are no longer offered are gone"


def test_containers_of_a_tenant_share_one_cap():
    with Node() as node, Host("a100-40gb") as host:
        tenant = host.tenant("team")
        status, out, err = node.generate("--memory", "8gb", "--tenant", f"{tenant},other")
        assert (status, err) == (0, "") and "2 devices" in out, f"{status} {out} {err}"
        # As the containers of a pod they share /dev/shm. No environment takes one out of it.
        devices = ["--ipc=host", "--device", f"fracgpu.dev/tenant={tenant}", "-e", "FRACGPU_TENANT=mine"]
        first = subprocess.Popen(node.private(*PODMAN, "run", "--rm", "-i", *RUN, *host.gpu(), *devices, "--device",
                                              "fracgpu.dev/memory=8gb", debian(), "/client", "init", "retain", "alloc",
                                              "5GiB", "wait"),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        host.children.append(first)
        while (line := first.stdout.readline()) != "ready\n":
            assert line, "ended too early"
        client = ("/client", "init", "retain", "meminfo", "fill", "256MiB")
        status, out, err = node.run(host, "fracgpu.dev/memory=8gb", debian(13), *client, options=devices)
        assert status == 0 and f"total={8 * GIB}" in out and "fill 268435456 rc=2" in out, f"{status} {out} {err}"
        assert 7.5 * GIB < host.used()[0][1] <= 8 * GIB, host.used()
        # The name cannot be written, and of another tenant there is another cap.
        status, out, err = node.run(host, "fracgpu.dev/memory=8gb", debian(), "sh", "-c",
                                    "cat /etc/fracgpu/tenant; (echo x >/etc/fracgpu/tenant) 2>/dev/null || echo kept",
                                    options=devices)
        assert (status, out) == (0, f"{tenant}\nkept\n"), f"{status} {out} {err}"
        host.forget_marks()
        status, out, err = node.run(host, "fracgpu.dev/memory=8gb", debian(), *client,
                                    options=["--device", "fracgpu.dev/tenant=other"])
        # Beside the other tenant a context is charged by estimate, 512 MiB.
        assert status == 0 and 7.5 * GIB == int(re.search(r"free=(\d+)", out).group(1)), f"{status} {out} {err}"


def test_capped_without_root_on_the_host():
    """As an engine without root has it: root in the container is somebody else outside."""
    somebody = ["--uidmap=0:100000:65536", "--gidmap=0:100000:65536"]
    client = ("/client", "init", "retain", "meminfo")
    with Node() as node, Host("a100-40gb") as host:
        os.chmod(host.node, 0o666)
        assert node.generate("--memory", "8gb")[0] == 0
        status, out, err = node.run(host, "fracgpu.dev/memory=8gb", debian(), *client, options=somebody)
        assert status == 0 and f"total={8 * GIB}" in out, f"{status} {out} {err}"
        # A file of the container's own users, or one that was not put there read-only, is no ceiling.
        ceiling = f"{node.folder}/files/limits/memory-8gb.conf"
        for owner, option, trusted in ((0, "ro", True), (0, "rw", False), (100000, "rw", True), (101000, "ro", False)):
            os.chown(ceiling, owner, owner)
            mount = ["-v", f"{ceiling}:/etc/fracgpu/limit.conf:{option}", "-v", f"{node.library}:/lib.so:ro"]
            status, out, err = host.container(debian(), *client,
                                              options=[*somebody, *mount, "-e", "LD_PRELOAD=/lib.so"])
            assert (f"total={8 * GIB}" in out) == trusted, f"{owner} {option}: {out} {err}"
            assert ("is not trusted" in err) != trusted, f"{owner} {option}: {out} {err}"


def refused(node, host, image, reason):
    status, out, err = node.run(host, "fracgpu.dev/memory=8gb", image, "/started")
    assert status != 0 and reason in err and out == "", f"{image}: {status} {out} {err}"


def test_images_that_cannot_be_capped_are_refused():
    musl = "/lib/ld-musl-x86_64.so.1"
    if not os.path.exists(musl):
        pytest.skip("the package musl is not on this machine")
    # A program of musl's loader.
    program = f"{BUILD}/containers/musl"
    source = (b'static long call(long n, long a, const void *b, long c) { long r; __asm__ volatile("syscall" : "=a"(r) :'
              b'"a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); return r; }\n'
              b'void _start(void) { call(1, 1, "started\\n", 8); call(60, 0, 0, 0); }\n')
    subprocess.run(["cc", "-x", "c", "-", "-O1", "-nostdlib", "-pie", f"-Wl,--dynamic-linker={musl}", "-o", program],
                   input=source, check=True)
    files = {"lib/ld-musl-x86_64.so.1": musl, "etc/alpine-release": b"3.20.0\n", "started": program}
    image = image_of("like-alpine", files)
    # Programs of glibc 2.30 and before: what tells is its own table of versions.
    old = image_of("like-centos", {"lib64/libc.so.6": b"\0GLIBC_2.28\0GLIBC_2.29\0"})
    usr = image_of("like-bionic", {"usr/lib/x86_64-linux-gnu/libc.so.6": b"\0GLIBC_2.26\0GLIBC_2.27\0"})
    with Node() as node, Host("a100-40gb") as host:
        assert node.generate()[0] == 0
        refused(node, host, image, "this image's C library is musl (Alpine Linux, for one)")
        refused(node, host, old, "this image's /lib64/libc.so.6 is older than glibc 2.31")
        refused(node, host, usr, "this image's /usr/lib/x86_64-linux-gnu/libc.so.6 is older than glibc 2.31")
        # By itself the image is a sound one, also with the preload file, which musl does not read.
        assert host.container(image, "/started")[:2] == (0, "started\n")
        preload = ["-v", f"{node.folder}/files/ld.so.preload:/etc/ld.so.preload:ro"]
        assert host.container(image, "/started", options=preload)[:2] == (0, "started\n")
        for release in (11, 12, 13):  # the hook looks at the image, not at this machine
            status, _, err = node.run(host, "fracgpu.dev/memory=8gb", debian(release), "true")
            assert (status, err) == (0, ""), f"{release}: {status} {err}"
        both = image_of("like-both", {"lib/ld-musl-x86_64.so.1": musl,
                                      "lib/libc.so.6": part("glibc-2.31") + "/lib/x86_64-linux-gnu/libc.so.6"})
        status, _, err = node.run(host, "fracgpu.dev/memory=8gb", both, "/none")
        assert status != 0 and "glibc 2.31" not in err, err


def test_specs_are_installed_whole_and_trusted():
    with Node() as node:
        etc, files = f"{node.folder}/etc/cdi", f"{node.folder}/files"
        status, out, err = node.generate("--memory", "8gb,512MiB", "--fraction", "0.5", "--tenant", "team-a")
        assert (status, err) == (0, "") and len(out.splitlines()) == 3, f"{out} {err}"
        assert sorted(os.listdir(etc)) == ["fracgpu.dev-fraction.json", "fracgpu.dev-memory.json",
                                           "fracgpu.dev-tenant.json"]
        for folder, _, names in (*os.walk(etc), *os.walk(files)):
            for name in names:
                mode = os.stat(f"{folder}/{name}").st_mode
                assert stat.S_IMODE(mode) == 0o644, f"{name} {mode:o}"
        specs = {}
        for name in os.listdir(etc):
            with open(f"{etc}/{name}", encoding="ascii") as file:
                specs[name] = json.load(file)
        assert [d["name"] for d in specs["fracgpu.dev-memory.json"]["devices"]] == ["8gb", "512MiB"]
        printed = node.generate("--memory", "8gb,512MiB", "--output", "-")[1]
        assert json.loads(printed) == specs["fracgpu.dev-memory.json"], printed
        for spec in specs.values():
            check_form(spec)
        # By rename: who has the old one open keeps it whole.
        before = os.stat(f"{etc}/fracgpu.dev-memory.json").st_ino
        assert node.generate("--memory", "8gb")[0] == 0
        assert os.stat(f"{etc}/fracgpu.dev-memory.json").st_ino != before
        assert os.listdir(etc) == ["fracgpu.dev-memory.json"], "classes not asked for are gone"


def check_form(spec):
    """By the words of the CDI specification 0.5.0."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec["cdiVersion"])
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]", spec["kind"])
    assert set(spec) == {"cdiVersion", "kind", "containerEdits", "devices"} and spec["devices"]
    for edits in [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]:
        assert edits and set(edits) <= {"env", "mounts", "hooks"}
        assert all("=" in each for each in edits.get("env", []))
        for mount in edits.get("mounts", []):
            assert set(mount) == {"hostPath", "containerPath", "options"} and "ro" in mount["options"]
            assert os.path.isfile(mount["hostPath"]), mount
        for hook in edits.get("hooks", []):
            assert hook["hookName"] == "createRuntime" and os.access(hook["path"], os.X_OK)
    for device in spec["devices"]:
        assert set(device) == {"name", "containerEdits"}
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"])


def test_wrong_usage():
    with Node() as node:
        for arguments in (["--memory", "8"], ["--memory", "50%"], ["--memory", "0.5"], ["--memory", "0gb"],
                          ["--memory", "8gb,8 gb"], ["--memory", "0=8gb"], ["--fraction", "8gb"], ["--fraction", "50%"],
                          ["--fraction", "2.0"], ["--fraction", "0.0"], ["--output", "cdi"],
                          ["--tenant", "../x"], ["--tenant", "a b"], ["--tenant", ".a"], ["--tenant", "a-"], ["--tenant", "a" * 64],
                          ["--library", "/no/such"], ["--library", "/etc"], ["--command", "fracgpu"]):
            status, out, err = node.generate(*arguments)
            assert status == 1 and out == "" and one_line(err), f"{arguments}: {status} {out} {err}"
        status, out, err = node.generate(files="x")
        assert status == 1 and out == "" and one_line(err), f"{status} {out} {err}"
        assert not os.path.exists(f"{node.folder}/etc/cdi") and os.listdir(f"{node.folder}/files") == []
        os.chmod(node.library, 0o666)
        status, _, err = node.generate()
        assert status == 1 and one_line(err) and node.library in err, err
        for state in ("", "{}", "[]", '{"bundle": 7}', '{"bundle": "/no/such"}'):
            status, out, err = finished([node.command, "cdi", "check-image"], input=state)
            assert status == 1 and out == "" and one_line(err), f"{state}: {status} {out} {err}"
        for arguments in (["cdi"], ["cdi", "generate", "--bogus"], ["cdi", "remove"]):
            status, out, err = finished([node.command, *arguments])
            assert status == 2 and out == "" and one_line(err), f"{arguments}: {status} {out} {err}"

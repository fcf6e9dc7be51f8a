"""`fracgpu doctor`, end to end on simulated machines, healthy and broken in every way it names."""
import json
import os
import shutil
import struct
import subprocess
import tempfile

import pytest

from machine import BUILD, CLIENT, COMMAND, GIB, HIP_PROGRAM, LIBRARY, Machine, one_line
from made_ledger import DEVICE_AT, SLOT_AT, SLOT_SIZE, ledger, live_in, write_ledger


class Page:
    """What doctor found, by --json."""

    def __init__(self, machine, *arguments, run=None, extra=None):
        before = [] if run is None else ["run", *run, "--", COMMAND]
        self.status, out, self.err = machine.fracgpu(*before, "doctor", "--json", *arguments, extra=extra)
        page = json.loads(out)
        self.checks = page["checks"]
        assert page["healthy"] == (self.status == 0) == all(c["state"] != "fail" for c in self.checks), page
        for check in self.checks:
            assert check["state"] == "ok" or check["remedy"], f"no remedy: {check}"

    def of(self, name, state=None):
        return [c["text"] for c in self.checks if c["check"] == name and state in (None, c["state"])]

    def failed(self):
        return {c["check"] for c in self.checks if c["state"] == "fail"}


def library(machine, name, source):
    """A folder of its own with a library of this name, made of C."""
    folder = tempfile.mkdtemp(dir=machine.folder)
    with open(f"{folder}/source.c", "w", encoding="ascii") as file:
        file.write(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{folder}/{name}", f"{folder}/source.c"], check=True)
    return folder


def read_until_ready(child):
    while (line := child.stdout.readline()) and line != "ready\n":
        pass
    assert line == "ready\n", child.stderr.read()


def test_nothing_is_configured(machine):
    m = machine("a100-40gb")
    page = Page(m)
    assert page.status == 0 and not page.failed(), page.checks
    assert page.of("library", "ok") and page.of("preload", "warn") and page.of("limits", "warn"), page.checks
    assert not page.of("lookups") and not page.of("cap"), "nothing is claimed of a cap that is not there"
    assert any("CUDA driver" in text for text in page.of("driver", "ok")), page.checks
    assert m.fracgpu("doctor", "--quiet") == (0, "", "")


def test_a_capped_launch_is_healthy(machine):
    m = machine("2xa100-40gb")
    page = Page(m, run=["--memory", "0=8GiB,1=25%"])
    assert page.status == 0 and not page.failed(), page.checks
    assert "by LD_PRELOAD" in page.of("preload", "ok")[0]
    lookups = page.of("lookups", "ok")
    assert any(text.startswith("cuDeviceTotalMem_v2 by link, dlsym, RTLD_DEFAULT, dlvsym, cuGetProcAddress")
               for text in lookups), lookups
    assert any(text.startswith("nvmlDeviceGetMemoryInfo by link, dlsym, RTLD_DEFAULT") for text in lookups), lookups
    caps = page.of("cap", "ok")
    assert len(caps) == 2 and "cap 8.0 GiB of 40.0 GiB, as shown by CUDA, NVML" in caps[0], caps
    assert "cap 10.0 GiB of 40.0 GiB" in caps[1], caps
    caps = Page(m, "--contexts", run=["--memory", "8GiB"]).of("cap", "ok")
    assert len(caps) == 2 and "as shown by CUDA, cuMemGetInfo, NVML" in caps[0], caps


def test_totals_that_are_not_cuda_s(machine):
    with Machine("rtx6000-ada") as m:
        page = Page(m, run=["--memory", "50%"])
        assert page.status == 0 and not page.failed(), page.checks
        caps = page.of("cap", "ok")
        assert len(caps) == 1 and "cap 23.7 GiB of 47.4 GiB, as shown by CUDA, NVML" in caps[0], caps
    m = machine("gb10")
    for limit, said in (("50%", "cap in percent, of a size that the driver does not tell, as shown by CUDA"),
                        ("8GiB", "cap 8.0 GiB, as shown by CUDA")):
        page = Page(m, run=["--memory", limit])
        assert page.status == 0 and not page.failed(), page.checks
        caps = page.of("cap", "ok")
        assert len(caps) == 1 and said in caps[0], caps


def test_amd_is_healthy(machine):
    m = machine("mi300x")
    page = Page(m, run=["--memory", "8GiB"])
    assert not page.failed(), page.checks
    caps = page.of("cap", "ok")
    assert len(caps) == 1 and "amd-smi, rocm-smi" in caps[0], page.checks
    assert any("rsmi_dev_memory_total_get by link, dlsym" in text for text in page.of("lookups", "ok")), page.checks
    assert not page.of("limits", "warn"), page.checks
    m.environment["HSA_XNACK"] = "1"
    page = Page(m, run=["--memory", "8GiB"])
    assert any(text.startswith("HSA_XNACK=1") for text in page.of("limits", "warn")), page.checks


def test_hip_is_healthy(machine):
    """By AMD's own runtime, where it is installed."""
    m = machine("mi210")
    if m.fracgpu("run", "--memory", "1GiB", "--", HIP_PROGRAM, "count")[0] == 3:
        pytest.skip("libamdhip64 is not installed")
    page = Page(m, "--contexts", run=["--memory", "8GiB"])
    assert not page.failed(), page.checks
    assert "as shown by HIP, hipMemGetInfo, amd-smi, rocm-smi" in page.of("cap", "ok")[0], page.checks
    assert any("hipDeviceTotalMem by link, dlsym, RTLD_DEFAULT" in text for text in page.of("lookups", "ok"))
    assert any(text.startswith("HIP runtime 5.") for text in page.of("driver", "ok")), page.checks


def test_namespaces_and_shared_memory(machine):
    m = machine("a100-40gb")
    def inside(*unshared, mount):
        script = f"mount -t tmpfs {mount} none /dev/shm && exec {COMMAND} doctor --json"
        done = subprocess.run(["unshare", "-m", *unshared, "sh", "-c", script], env=m.environment, text=True,
                              capture_output=True, check=False, timeout=60)
        assert done.stdout, done.stderr
        return {(c["check"], c["state"]): c["text"] for c in json.loads(done.stdout)["checks"]}
    if subprocess.run(["unshare", "-m", "-p", "-i", "-f", "true"], check=False).returncode != 0:
        pytest.skip("namespaces cannot be made here")
    checks = inside("-i", "-p", "-f", "--mount-proc", mount="-o size=64m")
    assert ("pid-namespace", "warn") in checks and ("ipc-namespace", "warn") in checks, checks
    assert "64.0 MiB free" in checks["ledger", "ok"], checks
    assert "is full" in inside(mount="-o size=32k")["ledger", "fail"]
    assert "nearly full" in inside(mount="-o size=512k")["ledger", "warn"]
    assert "no file can be made" in inside(mount="-o ro")["ledger", "fail"]


def test_nvml_is_switched_off(machine):
    m = machine("a100-40gb")
    off = Page(m, run=["--memory", "8GiB"], extra={"FRACGPU_NVML": "off"})
    assert any("FRACGPU_NVML=off" in text for text in off.of("driver", "warn")), off.checks
    odd = Page(m, run=["--memory", "8GiB"], extra={"FRACGPU_NVML": "no"})
    assert any("neither" in text for text in odd.of("driver", "warn")), odd.checks
    on = Page(m, run=["--memory", "8GiB"], extra={"FRACGPU_NVML": "on"})
    assert not any("FRACGPU_NVML" in text for text in on.of("driver")), on.checks


def test_without_any_driver(machine):
    m = machine("a100-40gb")
    page = Page(m, extra={"LD_LIBRARY_PATH": "", "LD_PRELOAD": ""})
    if not os.path.exists("/dev/nvidiactl") and not os.path.exists("/sys/class/kfd"):
        assert page.status == 0 and any("GPU" in text for text in page.of("driver", "warn")), page.checks


def test_a_driver_that_hangs_or_crashes_is_named(machine):
    m = machine("a100-40gb")
    page = Page(m, "--deadline", "1", extra={"FRACGPU_SIM_DELAY_US": "cuInit=3000000000"})
    assert page.failed() == {"driver"}, page.checks
    assert any("libcuda.so.1 hung in cuInit" in text for text in page.of("driver", "fail")), page.checks
    assert any("NVIDIA driver" in text for text in page.of("driver", "ok")), "the others are asked all the same"
    page = Page(m, "--deadline", "1", extra={"FRACGPU_SIM_DELAY_US": "nvmlInit_v2=3000000000"})
    assert any("looking for GPUs hung" in text for text in page.of("driver", "fail")), page.checks
    crash = "int cuInit(unsigned f) { return *(volatile int*)0; }"
    folder = library(m, "libcuda.so.1", crash)
    page = Page(m, extra={"LD_LIBRARY_PATH": f"{folder}:{BUILD}/sim"})
    assert any("libcuda.so.1 crashed in cuInit (signal 11)" in t for t in page.of("driver", "fail")), page.checks
    folder = library(m, "libcuda.so.1", "__attribute__((constructor)) void f(void) { for (;;) ; }")
    page = Page(m, "--deadline", "1", extra={"LD_LIBRARY_PATH": f"{folder}:{BUILD}/sim"})
    assert any("hung in loading libcuda.so.1" in text for text in page.of("driver", "fail")), page.checks


def test_a_lookup_that_leads_elsewhere(machine):
    m = machine("a100-40gb")
    # Preloaded before ours, and so in its way for whoever is linked with the driver.
    source = ("#include <stddef.h>\nint cuDeviceTotalMem_v2(size_t* b, int d) { *b = (size_t)40 << 30; "
              "(void)d; return 0; }")
    folder = library(m, "libother.so", source)
    page = Page(m, extra={"LD_PRELOAD": f"{folder}/libother.so:{LIBRARY}", "FRACGPU_MEMORY_LIMIT": "8GiB",
                          "FRACGPU_TENANT": m.tenant("lookup")})
    assert page.failed() == {"lookups"}, page.checks
    assert "by link is not ours" in page.of("lookups", "fail")[0], page.checks


def test_instances_of_a_gpu_in_mig_mode(machine):
    """Each is capped by itself, and the GPU that they are on is none that a cap could be on."""
    m = machine("h100-80gb-mig+a100-40gb")
    whole, plain = m.uuids()
    shown = subprocess.run([f"{BUILD}/tests/sim/simnode", "show", m.node, "--json"], capture_output=True, text=True,
                           check=True).stdout
    sizes = {device["uuid"]: f"{device['total'] / GIB:.1f} GiB" for device in json.loads(shown)["devices"]}
    instances = [uuid for uuid in sizes if uuid.startswith("MIG-")]
    assert len(instances) > 2, shown

    def caps(state, limit, *before, name="mig"):
        """By device, of one state."""
        page = Page(m, extra={"LD_PRELOAD": ":".join([*before, LIBRARY]), "FRACGPU_MEMORY_LIMIT": limit,
                              "FRACGPU_TENANT": m.tenant(name)})
        return {text.split("(")[1].split(")")[0]: text for text in page.of("cap", state)}
    found = caps("ok", f"8GiB,{instances[1]}=4GiB")
    assert set(found) == {*instances, plain} and f"cap 4.0 GiB of {sizes[instances[1]]}" in found[instances[1]]
    assert f"cap 8.0 GiB of {sizes[instances[0]]}, as shown by CUDA, NVML" in found[instances[0]], found
    assert found[instances[2]].startswith("GPU 0:2 (MIG-") and found[instances[2]].endswith("as shown by NVML"), found
    # Its name stands for all of them.
    found = caps("ok", f"{whole}=8GiB")
    assert set(found) == set(instances) and all("cap 8.0 GiB of" in text for text in found.values()), found
    assert set(caps("warn", f"{whole}=8GiB")) == {plain}
    assert set(caps("warn", f"{instances[0]}=8GiB")) == {*instances[1:], plain}
    # While the tenant is at work, its ledger says the cap.
    holder = m.client("mig", "8GiB", "init retain wait")
    assert m.fracgpu("limit", m.tenant("mig"), "2GiB")[0] == 0
    found = caps("ok", "8GiB")
    assert f"cap 2.0 GiB of {sizes[instances[0]]}, as shown by CUDA, NVML" in found[instances[0]], found
    holder.kill()
    holder.wait()
    # Another library before ours that has dlsym(): whoever asks it gets past ours, and of NVML something else.
    source = ("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n"
              "static int other(void* d, unsigned long long* m) { m[0] = 60ull << 30; m[1] = m[2] = 0; return !d; }\n"
              'void* dlsym(void* h, const char* n) { if (!strcmp(n, "nvmlDeviceGetMemoryInfo")) return &other;'
              ' void* (*real)(void*, const char*) = (void* (*)(void*, const char*))dlvsym(dlopen("libdl.so.2", 1),'
              ' "dlsym", "GLIBC_2.2.5"); return real(h, n); }')
    other = f"{library(m, 'libother.so', source)}/libother.so"
    found = caps("fail", "8GiB", other)
    assert set(found) == {instances[0]}, found
    assert f"but CUDA shows {sizes[instances[0]]}, NVML shows 60.0 GiB" in found[instances[0]], found
    found = caps("warn", "8GiB", other)
    assert f"cap 8.0 GiB of {sizes[instances[1]]}, but NVML shows 60.0 GiB" in found[instances[1]], found


def test_how_gpus_are_divided(machine):
    with Machine("h100-80gb-mig+a100-80gb-mig-empty+a100-40gb+mi300x+mi355x-cpx-nps2+mi210") as m:
        first, second, _ = m.uuids()
        page = Page(m)
        told = page.of("division", "ok")
        assert told[:2] == [f"GPU 0 ({first}) is in MIG mode: 0:0 3g.40gb, 0:1 2g.20gb, 0:2 1g.10gb, 0:3 1g.10gb",
                            f"GPU 1 ({second}) is in MIG mode: no instances"], page.checks
        # To the letter what fracgpu partition says, of those that tell modes.
        said = [line for line in m.fracgpu("partition")[1].splitlines() if line.startswith("GPU ")]
        assert told[2:] == said[:2] and "not divisible" in said[2], (told, said)
        assert "SPX/NPS1, 1 GPU" in told[2] and "CPX/NPS2, 8 GPUs" in told[3], told
    m = machine("a100-40gb")
    assert not Page(m).of("division")


def test_the_cap_in_force_is_the_ledger_s(machine):
    m = machine("a100-40gb")
    name = m.tenant("t")
    holder = m.start("run", "--memory", "8GiB", "--tenant", name, "--", CLIENT, "init", "retain", "wait")
    read_until_ready(holder)
    assert m.fracgpu("limit", name, "4GiB")[0] == 0
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "8GiB", "FRACGPU_TENANT": name})
    assert "cap 4.0 GiB of 40.0 GiB, as shown by CUDA, NVML" in page.of("cap", "ok")[0], page.checks


def test_a_tool_that_shows_something_else(machine):
    m = machine("mi300x")
    # Of this version nothing is known, and what it tells is left alone.
    os.symlink(f"{BUILD}/sim/libamd_smi.so.28", f"{m.folder}/libamd_smi.so")
    page = Page(m, run=["--memory", "8GiB"], extra={"LD_LIBRARY_PATH": f"{m.folder}:{BUILD}/sim"})
    assert page.status == 0 and "but amd-smi shows 192.0 GiB" in page.of("cap", "warn")[0], page.checks
    assert any("libamd_smi 28" in text and "23 to 27" in text for text in page.of("driver", "warn")), page.checks


def test_what_is_wrong_with_the_library(machine):
    m = machine("a100-40gb")
    shutil.copy(COMMAND, f"{m.folder}/fracgpu")

    def judge(extra=None):
        done = subprocess.run([f"{m.folder}/fracgpu", "doctor", "--json"], env={**m.environment, **(extra or {})},
                              capture_output=True, text=True, check=False, timeout=60)
        found = [c for c in json.loads(done.stdout)["checks"] if c["check"] == "library"]
        return done.returncode, found[-1]["state"], found[-1]["text"]
    with open(f"{m.folder}/libfracgpu.so", "w", encoding="ascii") as file:
        file.write("no library")
    assert judge()[:2] == (1, "fail") and "damaged" in judge()[2], judge()
    with open(LIBRARY, "rb") as file:
        whole = bytearray(file.read())
    for at, value, what in ((18, 0xb7, "is for aarch64"), (4, 1, "is for x32")):
        other = bytearray(whole)
        other[at] = value
        with open(f"{m.folder}/libfracgpu.so", "wb") as file:
            file.write(other)
        assert judge()[1] == "fail" and what in judge()[2], judge()
    with open(f"{m.folder}/libfracgpu.so", "wb") as file:
        file.write(whole[:64 << 10])  # less than what is to be loaded of it
    assert judge()[:2] == (1, "fail") and "does not load" in judge()[2], judge()
    # A version that no glibc has, of the same length.
    version = b"GLIBC_2.28\0" if b"GLIBC_2.28\0" in whole else b"GLIBC_2.17\0"
    with open(f"{m.folder}/libfracgpu.so", "wb") as file:
        file.write(whole.replace(version, b"GLIBC_2.98\0"))
    assert judge()[1] == "fail" and "needs glibc 2.98" in judge()[2], judge()
    os.unlink(f"{m.folder}/libfracgpu.so")
    missing = f"{m.folder}/gone/libfracgpu.so"
    assert "cannot be read" in judge({"LD_PRELOAD": missing})[2], judge({"LD_PRELOAD": missing})


def test_what_is_wrong_with_the_configuration(machine):
    m = machine("a100-40gb")
    page = Page(m, extra={"FRACGPU_MEMORY_LIMIT": "8GiB"})
    assert page.failed() == {"preload"}, page.checks
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "8"})
    assert "limits" in page.failed() and "FRACGPU_MEMORY_LIMIT" in page.of("limits", "fail")[0], page.checks
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "NVIDIA_GPU_MEMORY_LIMIT": "2048", "CUDA_DEVICE_SM_LIMIT": "30"})
    assert not page.failed() and "NVIDIA_GPU_MEMORY_LIMIT is '2048'" in page.of("limits", "ok")[0], page.checks
    assert "CUDA_DEVICE_SM_LIMIT" in page.of("limits", "warn")[0], page.checks
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "CUDA_DEVICE_MEMORY_LIMIT_0": "2gb"})
    assert "limits" in page.failed() and "CUDA_DEVICE_MEMORY_LIMIT_0" in page.of("limits", "fail")[0], page.checks
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "8GiB", "FRACGPU_TENANT": "a/b"})
    assert "limits" in page.failed(), page.checks
    status, out, err = m.fracgpu("doctor", "--quiet", extra={"FRACGPU_MEMORY_LIMIT": "8GiB"})
    assert (status, err) == (1, "") and out.startswith("preload: ") and out.count("\n") == 1, (out, err)
    for wrong in (["--bogus"], ["--deadline", "0"], ["--deadline", "soon"], ["--json", "--quiet"]):
        status, out, err = m.fracgpu("doctor", *wrong)
        assert (status, out) == (2, "") and one_line(err), (wrong, status, err)


def test_processes_under_no_cap_are_named(machine):
    m = machine("a100-40gb")
    program = ["init", "retain", "alloc", "512MiB", "wait"]
    inside = m.start("run", "--memory", "8GiB", "--tenant", m.tenant("t"), "--", CLIENT, *program)
    outside = subprocess.Popen([CLIENT, *program], env=m.environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    m.children.append(outside)
    for child in (inside, outside):
        read_until_ready(child)
    found = Page(m).of("bypass", "warn")
    assert len(found) == 1 and f"PID {outside.pid} (cuda_client)" in found[0], found
    outside.kill()
    outside.wait()
    assert Page(m).of("bypass", "ok") == ["the 1 GPU processes are all under caps"], Page(m).checks


def test_damaged_ledgers_are_named(machine):
    m = machine("a100-40gb")
    with open(m.ledger("odd"), "wb") as file:
        file.write(b"nothing")
    assert any("is not a ledger" in text or "more" in text for text in Page(m).of("ledger", "warn")), Page(m).checks
    name = m.tenant("t")
    holder = m.start("run", "--memory", "8GiB", "--tenant", name, "--", CLIENT, "init", "retain", "wait")
    read_until_ready(holder)
    with open(m.ledger("t"), "r+b") as file:
        file.seek(DEVICE_AT + 64)  # the first device's cap
        word = struct.unpack("<Q", file.read(8))[0]
        file.seek(DEVICE_AT + 64)
        file.write(struct.pack("<Q", word ^ 1 << 30))
    page = Page(m, extra={"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "8GiB", "FRACGPU_TENANT": name})
    assert "ledger" in page.failed() and "of this tenant" in page.of("ledger", "fail")[0], page.checks
    # It is no other tenant's trouble.
    page = Page(m, run=["--memory", "8GiB"])
    assert not page.failed() and any("something else wrote" in text for text in page.of("ledger", "warn")), page.checks


def test_whose_file_the_ledger_is(machine):
    stranger = 54321
    m = machine("a100-40gb")
    path = m.ledger("t")

    def of_ledger(state):
        page = Page(m, extra={"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "8GiB", "FRACGPU_TENANT": m.tenant("t")})
        return [text for text in page.of("ledger", state) if " belongs to " in text]

    write_ledger(path, ledger([(3, 0, b"train")]))
    os.chmod(path, 0o666)
    assert of_ledger("ok") == [f"{path} belongs to root, mode 0666"] and not of_ledger("warn")
    os.chown(path, stranger, -1)
    assert not of_ledger("ok") and of_ledger("warn")[0].startswith(f"{path} belongs to {stranger}, mode 0666: ")
    with open(path, "r+b") as life:
        # Anew, since the probes of doctor were members and have reaped the dead.
        data = ledger([(3, 0, b"train")])
        struct.pack_into("<I", data, SLOT_AT + SLOT_SIZE * 3 + 24, stranger)
        life.write(data)
        life.flush()
        live_in(life, 3)
        assert of_ledger("ok") == [f"{path} belongs to {stranger}, mode 0666"] and not of_ledger("warn")
    assert of_ledger("warn"), "that process is dead now"
    # It is no other tenant's trouble.
    os.chmod(path, 0o600)
    assert not any(path in text for text in Page(m, run=["--memory", "8GiB"]).of("ledger"))


def test_programs_are_judged(machine):
    m = machine("a100-40gb")
    def judge(*command, as_user=None):
        before = [] if as_user is None else ["setpriv", f"--reuid={as_user}", "--clear-groups", "--regid=65534"]
        done = subprocess.run([*before, COMMAND, "doctor", "--json", "--", *command], capture_output=True,
                              text=True, env=m.environment, check=False, timeout=60)
        found = [c for c in json.loads(done.stdout)["checks"] if c["check"] == "program"]
        assert len(found) == 1, found
        return found[0]["state"], found[0]["text"]

    source, program = f"{m.folder}/p.c", f"{m.folder}/p"
    with open(source, "w", encoding="ascii") as file:
        file.write("int main(void) { return 0; }\n")

    def build(*options):
        subprocess.run(["cc", "-o", program, source, *options], check=True)
        os.chmod(m.folder, 0o755)
    assert judge("true")[0] == "ok"
    assert judge("no-such-command")[0] == "fail"
    build()
    assert judge(program)[0] == "ok"
    os.chmod(program, 0o4755)
    assert judge(program)[0] == "warn" and "set-uid for root" in judge(program)[1], judge(program)
    assert judge(program, as_user=65534)[0] == "fail", judge(program, as_user=65534)
    os.chmod(program, 0o755)
    if shutil.which("setcap") and subprocess.run(["setcap", "cap_net_raw+ep", program], check=False).returncode == 0:
        assert judge(program, as_user=65534)[0] == "fail" and "file capabilities" in judge(program)[1]
        subprocess.run(["setcap", "-r", program], check=True)
    for option in ("-static", "-static-pie"):
        build(option)
        state, text = judge(program)
        assert state == "fail" and "statically linked" in text, (option, text)
    build("-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    assert judge(program)[0] == "warn" and "musl" in judge(program)[1], judge(program)
    build("-fsanitize=address")
    assert judge(program)[0] == "warn" and "sanitizer" in judge(program)[1], judge(program)
    build()
    with open(program, "r+b") as file:
        file.seek(18)
        file.write(b"\xb7\0")
    assert judge(program)[0] == "fail" and "aarch64" in judge(program)[1], judge(program)
    # Scripts are judged by what runs them.
    build("-static")
    for first, state in ((f"#!{program}\n", "fail"), (f"#!/usr/bin/env -S {program} -x\n", "fail"),
                         ("#!/bin/sh -e\n", "ok"), ("", "ok")):
        script = f"{m.folder}/script"
        with open(script, "w", encoding="ascii") as file:
            file.write(first + "exit 0\n")
        os.chmod(script, 0o755)
        assert judge(script)[0] == state, (first, judge(script))
    with open(script, "w", encoding="ascii") as file:
        file.write(f"#!{script}\n")
    assert judge(script)[0] == "warn", judge(script)
    # What is cut short or scribbled over is never followed.
    with open(CLIENT, "rb") as file:
        whole = file.read()
    for at in range(0, 64, 3):
        with open(program, "wb") as file:
            file.write(whole[:at] + os.urandom(48) + whole[at + 48:4096])
        judge(program)


def test_the_page(machine):
    m = machine("a100-40gb")
    status, out, err = m.fracgpu("doctor")
    assert (status, err) == (0, "") and all(len(line) <= 80 or "/" in line for line in out.splitlines()), out
    assert "\033" not in out and "-> " in out and out.splitlines()[-1].endswith(" failed"), out
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([COMMAND, "doctor"], stdout=full, stderr=subprocess.PIPE, env=m.environment,
                              text=True, check=False)
    assert done.returncode == 1 and one_line(done.stderr), done

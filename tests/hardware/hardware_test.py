"""The acceptance run on a simulated node, and above all that it cannot be deceived.

A driver that behaves otherwise than is assumed, a library that does not cap, and a report that was changed must each be
found out. What a report says is compared with the simulated node and with its profile, never with the library.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

import machine

BUILD = pathlib.Path(machine.BUILD)
TREE = pathlib.Path(__file__).resolve().parents[2]
RUN = TREE / "tests" / "hardware.sh"
JUDGE = BUILD / "tests" / "hardware" / "hardware_judge"
PROBE = BUILD / "tests" / "hardware" / "hardware_probe"
SIMNODE = BUILD / "tests" / "sim" / "simnode"
# Without nvcc: what it builds cannot run here, since the simulated driver forges no private tables.
FOLDERS = [folder for folder in os.environ["PATH"].split(":") if not os.path.exists(f"{folder}/nvcc")]
PLAIN = {"PATH": ":".join(FOLDERS), "LC_ALL": "C"}
MIB = 1 << 20

# What the library is known to do wrong. Nothing else may be WRONG; what is mended leaves this list.
KNOWN_WRONG = set()
# What a simulated node cannot tell, besides the frameworks, which are not installed.
CANNOT_TELL = {"context.cublas_bytes", "context.cublas_undercharged_bytes", "driver.module_flavour",
               "graph.chain_reserved_links"}
PATHS = ["alloc", "thread", "managed", "pool", "vmm", "array", "graph", "module", "amd_hsa", "amd_vmm"]


class Run:
    """One acceptance run: its exit status, its output and its report."""

    def __init__(self, folder, profile="tiny", extra=None, arguments=(), report=True):
        done = subprocess.run([RUN, "--build", BUILD, "--output", folder, "--simulated", profile, *arguments],
                              env={**PLAIN, **(extra or {})}, capture_output=True, text=True, timeout=600)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.path = pathlib.Path(folder) / "hardware-report.json"
        if report:
            assert self.path.exists(), (self.status, self.out, self.err)
            self.report = json.loads(self.path.read_text())
            self.facts = self.report["facts"]
            self.page = (pathlib.Path(folder) / "hardware-report.md").read_text()

    def verdict(self, key):
        return self.report["verdicts"][key]["verdict"]

    def wrong(self):
        return {key for key, row in self.report["verdicts"].items() if row["verdict"] == "WRONG"}


def run(profile="tiny", extra=None, arguments=()):
    with tempfile.TemporaryDirectory() as folder:
        return Run(folder, profile, extra, arguments)


def judge(facts):
    """The report that the judge makes of these facts."""
    lines = "".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in facts.items())
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([JUDGE, folder], input=lines, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return (pathlib.Path(folder) / "hardware-report.json").read_text()


def test_every_question_is_answered():
    measured = run("tiny+tiny-amd")
    assert measured.wrong() <= KNOWN_WRONG, measured.out
    assert measured.status == (1 if measured.wrong() else 0)
    for key, row in measured.report["verdicts"].items():
        if key.startswith("framework.") or key.endswith(("device_over_cap_bytes", ".over_cap_bytes")):
            continue
        if key in CANNOT_TELL or (key.startswith("cap.amd_hip") and "there is no hip" in row["verdict"]):
            continue
        assert not row["verdict"].startswith("not measured"), (key, row["verdict"])
    for path in PATHS + ["ipc", "namespace", "amd_ipc"]:
        judges = [measured.report["verdicts"].get(f"cap.{path}.{how}over_cap_bytes", {"verdict": "not measured"})["verdict"]
                  for how in ("", "device_")]
        assert any(not verdict.startswith("not measured") for verdict in judges), (path, judges)
    # The simulated tiny GPU's profile: 1 GiB, contexts of 64 MiB, pages of 2 MiB.
    facts = measured.facts
    assert facts["memory.cuda_total"] == 1024 * MIB and facts["context.first_bytes"] == 64 * MIB
    assert facts["sweep.page_bytes"] == 2 * MIB and facts["amd.vram_bytes"] == 1024 * MIB
    assert "On a simulated node" in measured.page


def test_each_assumption_names_a_file_of_the_tree():
    for key, row in json.loads(judge({}))["verdicts"].items():
        assert (TREE / row["where"]).is_file(), (key, row["where"])
        assert row["verdict"].startswith("not measured"), (key, row["verdict"])


def test_a_contrary_value_is_never_as_assumed():
    """Each rule of the table, fed with a value that breaks it."""
    rows = json.loads(judge({}))["verdicts"]
    for key, row in rows.items():
        words = row["assumed"].split()
        facts = {"run.cap_bytes": 1 << 30, "memory.nvml_total": 1 << 30, "capture.plain.harmful_calls": "none",
                 "capture.plain.harmful_when_relaxed": "none"}
        if words[0] == "anything":
            continue
        facts[key] = {"is": "elsewhere", "=": 1e13, "<=": 1e13, ">=": -1, "as": "elsewhere"}[words[0]]
        verdict = json.loads(judge(facts))["verdicts"][key]["verdict"]
        expected = {"never": "WRONG", "anything": "safe", "<=": "WRONG"}.get(row["safe"].split()[0], "not measured")
        assert verdict.startswith(expected), (key, verdict, expected)
    assert len(rows) > 100


def test_safe_rests_on_what_was_measured():
    """A thread's number in the list is safe only where the cap was seen to hold in spite of it."""
    key = "list.other_thread.named_as"
    for over, expected in ((0, "safe"), (MIB, "WRONG"), (None, "not measured")):
        facts = {key: "tid"} | ({"cap.thread.over_cap_bytes": over} if over is not None else {})
        verdict = json.loads(judge(facts))["verdicts"][key]["verdict"]
        assert verdict.startswith(expected), (over, verdict)


def test_a_library_that_does_not_cap_is_found_out():
    measured = run("tiny+tiny-amd", arguments=("--library", BUILD / "sim" / "libsimkfd.so"))
    assert measured.status == 1
    for path in PATHS:
        judge_of = "device_over_cap_bytes" if path == "managed" else "over_cap_bytes"
        assert measured.verdict(f"cap.{path}.{judge_of}") == "WRONG", path
    for key in ("cap.alloc.shown_total_bytes", "entry_points.library.escaping"):
        assert measured.verdict(key) == "WRONG", key
    # Each needs what not every machine allows: a namespace of its own, a GPU with nobody else on it.
    for key in ("cap.ipc.device_over_cap_bytes", "cap.namespace.device_over_cap_bytes"):
        assert measured.verdict(key) == "WRONG" or measured.verdict(key).startswith("not measured"), key
    assert "WRONG: cuMemAlloc: how far above the cap" in measured.out


def test_a_driver_that_behaves_otherwise_is_found_out():
    # Another error than that of no memory, from the fifth handle on.
    measured = run(extra={"FRACGPU_SIM_FAIL": "cuMemCreate:5+=999"})
    assert measured.verdict("cap.vmm.refusal") == "WRONG" and measured.status == 1
    # A dead process's memory stays for a while: no step suffers from the one before.
    measured = run(extra={"FRACGPU_SIM_LINGER_MS": "100"})
    assert measured.facts["death.in_use_ms"] >= 100 and measured.wrong() <= KNOWN_WRONG, measured.out


def test_what_the_driver_lacks_is_not_measured():
    measured = run(extra={"FRACGPU_SIM_FAIL": "cuMemCreate:1+=801"})
    for key in ("sharing.vmm_importer_bytes", "cap.vmm.granted_bytes"):
        assert measured.verdict(key).startswith("not measured: ") and "801" in measured.verdict(key), measured.verdict(key)
    assert measured.wrong() <= KNOWN_WRONG, measured.out
    # Without NVML's list the device's own use is the judge.
    measured = run(extra={"FRACGPU_SIM_FAIL": "nvmlDeviceGetComputeRunningProcesses_v2:1+=3"})
    assert "error 3" in measured.verdict("list.main_thread.named_as")
    assert measured.verdict("cap.alloc.device_over_cap_bytes") == "as assumed"


def test_a_step_that_hangs_ends_in_time():
    start = time.monotonic()
    measured = run(extra={"FRACGPU_SIM_DELAY_US": "cuArrayCreate_v2=600000000"}, arguments=("--seconds", "30"))
    assert time.monotonic() - start < 120, "the run has a limit of 30 seconds"
    assert "step.cap.array" in measured.report["not_measured"], measured.report["not_measured"]
    assert measured.verdict("cap.array.granted_bytes").startswith("not measured")


def test_bad_arguments_are_one_line():
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (["--seconds", "5"], ["--seconds", "900"], ["--frobnicate"], ["--output"],
                          ["--library", "/nowhere.so"], ["--build", "/nowhere"], ["--simulated", "no-such-gpu"]):
            done = subprocess.run([RUN, "--build", BUILD, "--output", folder, *arguments], env=PLAIN, text=True,
                                  capture_output=True, timeout=60)
            lines = done.stderr.splitlines()
            assert done.returncode == 2 and lines[-1].startswith("hardware.sh: "), (arguments, done.stderr)
        assert not os.listdir(folder)


def test_without_a_gpu_it_says_so():
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd"):
        pytest.skip("this machine has a GPU")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([RUN, "--build", BUILD, "--output", folder], env=PLAIN, text=True, capture_output=True,
                              timeout=60)
        assert done.returncode == 3 and "there is no GPU here" in done.stderr and done.stderr.count("\n") == 1, done
        assert not os.listdir(folder)


# A framework that is nothing but allocations by the driver, so that its way through the run is tried.
FRAMEWORK = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
class OutOfMemoryError(Exception): pass
class cuda:
    class memory: OutOfMemoryError = OutOfMemoryError
__version__ = "0"
uint8 = None
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
class Array:
    def __init__(self, size):
        self.address = ctypes.c_ulonglong()
        if driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(size)): raise ERROR("no memory")
    def __del__(self): driver.cuMemFree_v2(self.address)
    def sum(self): return 1024
def empty(size, dtype): return Array(size)
def ones(size): return Array(size)
"""


def test_a_framework_is_filled_where_it_is_installed():
    for error, expected in (("OutOfMemoryError", "as assumed"), ("SystemExit", "not measured")):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "cupy.py").write_text(FRAMEWORK.replace("ERROR", error))
            measured = run(extra={"PYTHONPATH": folder})
            assert measured.verdict("framework.cupy.refused_cleanly").startswith(expected), measured.report
            assert measured.verdict("framework.cupy.over_cap_bytes") == "as assumed"
            assert "cannot import torch" in measured.verdict("framework.torch_native.over_cap_bytes")


def seal_of(text):
    """FNV-1a, of the report up to its seal."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001b3) & (1 << 64) - 1
    return f"{value:016x}"


def sealed_again(text):
    """What a forger would write."""
    body = text[:text.rindex('\n "seal": ')]
    return f'{body}\n "seal": "{seal_of(body)}"}}\n'


def profile_from(report, *path):
    done = subprocess.run([SIMNODE, "profile-from", report, *path], capture_output=True, text=True, timeout=60,
                          env=PLAIN, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_profile_behaves_as_the_report_says():
    other = {"FRACGPU_SIM_NVML_DRIVER": "550.90.07", "FRACGPU_SIM_DRIVER_VERSION": "12040",
             "FRACGPU_SIM_MODULE_MIB": "10", "FRACGPU_SIM_NVML_RESERVED_MIB": "64", "FRACGPU_SIM_LINGER_MS": "40"}
    node = f"/dev/shm/simnode-hardware-test-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        measured = Run(folder, "a100-40gb", other)
        status, out, err = profile_from(measured.path, node)
        try:
            assert status == 0, err
            variables = dict(line[len("export "):].replace("'", "").split("=", 1) for line in out.splitlines())
            assert variables["FRACGPU_SIM_NODE"] == node
            assert "not as in the report: times" in err
            # Asked the same again, the new node gives the same answers.
            environment = {**PLAIN, **variables, "LD_LIBRARY_PATH": str(BUILD / "sim")}
            again = {}
            for arguments in (["identity"], ["contexts", "--with", "plain"]):
                lines = subprocess.run([PROBE, *arguments], env=environment, capture_output=True, text=True, check=True)
                facts = [json.loads(line) for line in lines.stdout.splitlines()]
                again |= {fact["key"]: fact["value"] for fact in facts if "value" in fact}
            for key in ("driver.version", "driver.cuda_version", "memory.cuda_total", "memory.nvml_total",
                        "memory.nvml_reserved", "context.first_bytes", "context.module_bytes", "gpu.compute_capability"):
                assert again[key] == measured.facts[key], (key, again[key], measured.facts[key])
            assert again["driver.version"] == "550.90.07" and again["context.module_bytes"] == 10 * MIB
        finally:
            subprocess.run([SIMNODE, "remove", node], check=False)


def test_a_changed_report_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        measured = Run(folder)
        text = measured.path.read_text()
        total = '"memory.cuda_total": 1073741824'
        granularity = '"memory.granularity": 2097152'
        assert text.count(total) == 1 and text.count(granularity) == 1
        lies = {
            "a fact": text.replace(total, '"memory.cuda_total": 2147483648'),
            "a fact, sealed again, against its verdict":
                sealed_again(text.replace('"cap.alloc.over_cap_bytes": 0', '"cap.alloc.over_cap_bytes": 4096')),
            "a verdict, sealed again": sealed_again(text.replace('"verdict": "as assumed"', '"verdict": "safe"', 1)),
            "a size that cannot be, sealed again": sealed_again(text.replace(total, '"memory.cuda_total": 1')),
            "a version that is a command, sealed again":
                sealed_again(text.replace('"driver.version": "', '"driver.version": "$(reboot)')),
            "white space": text.replace(total, total.replace(": ", ":  ")),
            "cut off": text[:len(text) // 2],
            "another format": sealed_again(text.replace("hardware-report/1", "hardware-report/2")),
            "no JSON": "hello\n",
            "nothing": "",
        }
        for what, lie in lies.items():
            assert lie != text, what
            file = pathlib.Path(folder, "lie.json")
            file.write_text(lie)
            status, out, err = profile_from(file)
            assert status == 1 and out == "" and err.startswith("simnode: ") and err.count("\n") == 1, (what, out, err)
        status, out, err = profile_from(pathlib.Path(folder, "missing.json"))
        assert status == 1 and "cannot read" in err
        file.write_text(sealed_again(text))
        assert profile_from(file)[0] == 0, "what was not changed is accepted"
        # Of what the node cannot have, it says so.
        file.write_text(judge({"gpu.name": "NVIDIA H100 80GB HBM3", "memory.granularity": 65536}))
        status, out, err = profile_from(file)
        assert status == 0 and "--profile h100-80gb" in out and "memory.granularity: 65536 there" in err, (out, err)


def probes_alive():
    """PIDs of programs of ours that have not ended."""
    alive = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            alive += [pid] if str(PROBE) in pathlib.Path("/proc", pid, "cmdline").read_text().split("\0") else []
        except OSError:
            pass
    return alive


def test_an_interrupted_run_ends_at_once():
    hanging = {"FRACGPU_SIM_DELAY_US": "cuMemAlloc_v2=600000000"}
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([RUN, "--build", BUILD, "--output", folder, "--simulated", "tiny"], env={**PLAIN, **hanging},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
            machine.wait_until(probes_alive, "a probe runs")
            started.terminate()
            assert started.wait(timeout=60) == 2
        assert not os.listdir(folder)


def test_nothing_is_left_behind():
    machine.wait_until(lambda: not probes_alive(), "all probes have ended, also those of a step that hung")
    left = [name for name in os.listdir("/dev/shm") if "acceptance" in name]
    assert not left, left

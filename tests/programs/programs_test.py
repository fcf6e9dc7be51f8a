"""Real programs under a cap, on NVIDIA's own driver, against a bare card of the cap's size.

The exit status and the results of the program's own tests must be equal, and RM's count must not exceed the cap.
FRACGPU_CAMPAIGN runs every size.
"""
import dataclasses
import glob
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernel", "nvidia"))
import rig  # noqa: E402 # pylint: disable=wrong-import-position

BUILD = rig.Build()
PART = f"{BUILD.folder}/parts/python-gpu-bookworm/usr/lib"
NVTOP = f"{BUILD.folder}/parts/nvtop-3.2"
PYTHON = ["/usr/bin/python3.11", "-B"]  # Debian bookworm's, for which the part is
MIB = rig.MIB
CARD_MIB = rig.CARD_MIB


@dataclasses.dataclass
class Client:
    """A third-party program with tests. `verdict` matches the name and the result of each test in its output.

    `differs`: by size in MiB, the test whose result differs; the README gives the reason.
    """
    command: list
    verdict: str
    sizes_mib: tuple
    differs: dict = dataclasses.field(default_factory=dict)


CLIENTS = {
    "numba": Client(
        command=["-m", "numba.runtests", "-v", "numba.cuda.tests.cudadrv"],
        verdict=r"^(test\S+ \(\S+\)).*? \.\.\. (ok|FAIL|ERROR|skipped)",
        sizes_mib=(2048,) if "FRACGPU_CAMPAIGN" not in os.environ else (600, 1024, 2048),
        differs={600: "test_managed_alloc_driver_undersubscribe"}),
}


def run(gpu, command, cap=None):
    lib = f"{PART}/x86_64-linux-gnu"
    paths = ":".join([*BUILD.driver, lib, f"{lib}/blas", f"{lib}/lapack"])
    return gpu.run([*PYTHON, *command], cap, seconds=280, LD_LIBRARY_PATH=paths, PYTHONPATH=f"{PART}/python3/dist-packages",
                   FRACGPU_LOG="off")  # the library's messages would break the program's lines


def setUpModule():
    BUILD.needs()
    if not os.path.exists(PYTHON[0]) or not os.path.exists(f"{PART}/python3/dist-packages/numba"):
        raise unittest.SkipTest("no Python of Debian bookworm with Numba (fetch.sh python-gpu-bookworm)")


class Programs(unittest.TestCase):
    def judge(self, client, mib):
        def end(card_mib, cap):
            with rig.Gpu(BUILD, card_mib) as gpu:
                result = run(gpu, client.command, cap)
                self.assertEqual(gpu.unknown(), "")
                peak = gpu.accounting()["peak"]
            return result.returncode, dict(re.findall(client.verdict, result.stderr, re.M)), peak, result.stderr
        bare_status, bare, bare_peak, printed = end(mib, None)
        status, capped, peak, _ = end(CARD_MIB, f"{mib}MiB")
        print(f"{mib} MiB: {len(bare)} tests, {sum(result == 'ok' for result in bare.values())} of them pass; RM at most "
              f"{bare_peak / MIB:.0f} MiB on a card of that size, {peak / MIB:.0f} under the cap", file=sys.stderr)
        self.assertGreater(len(bare), 20, f"too little has run: {printed}")
        self.assertLessEqual(peak, mib * MIB, "RM's count passed the cap")
        other = {name: (bare.get(name), capped.get(name)) for name in sorted(bare.keys() | capped.keys())
                 if bare.get(name) != capped.get(name) and name.split()[0] != client.differs.get(mib)}
        self.assertEqual(other, {}, "on a card of that size, under the cap")
        self.assertEqual(status, bare_status)


def add_client(name, client):
    for mib in client.sizes_mib:
        setattr(Programs, f"test_{name}_{mib}_MiB", lambda self, mib=mib: self.judge(client, mib))


for client_name, third_party in CLIENTS.items():
    add_client(client_name, third_party)


SHOWN = """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
print(memory.total, memory.used, memory.free)
for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
    print(process.pid, process.usedGpuMemory)
"""


class Monitors(unittest.TestCase):
    """A monitor runs beside one process with a cap and one without."""

    @staticmethod
    def start_both(gpu):
        """A capped process with 100 MiB and one without a cap with 300 MiB, each with a context of 384 MiB."""
        both = gpu.start("init", "alloc:102400", "wait", cap="2GiB"), gpu.start("init", "alloc:307200", "wait")
        for child in both:
            child.until("ready")
        return both

    @unittest.skipUnless(os.path.exists(f"{NVTOP}/usr/bin/nvtop"), "no nvtop of Debian trixie (fetch.sh nvtop-3.2)")
    def test_nvtop(self):
        """nvtop needs the loader of its own C library. Its requests for sensors have no public layout and are not checked."""
        libraries = ":".join([*BUILD.driver, *glob.glob(f"{NVTOP}/usr/lib/*-linux-gnu"), *glob.glob(f"{NVTOP}/lib/*-linux-gnu")])
        command = [glob.glob(f"{NVTOP}/lib64/ld-linux-*")[0], "--library-path", libraries, f"{NVTOP}/usr/bin/nvtop", "-s"]
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            self.start_both(gpu)

            def shown(cap):
                return json.loads(gpu.run(command, cap, LD_LIBRARY_PATH=libraries).stdout)[0]["mem_util"]
            self.assertEqual(shown("2GiB"), "23%", "484 of 2048 MiB")
            self.assertEqual(shown(None), "14%", "1168 of 8192 MiB")

    def test_pynvml(self):
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            capped, free = self.start_both(gpu)
            used = {process["pid"]: process["used"] for process in gpu.accounting()["processes"]}

            def shown(cap):
                first, *rest = run(gpu, ["-c", SHOWN], cap).stdout.splitlines()
                return [int(word) for word in first.split()], {int(pid): int(size) for pid, size in map(str.split, rest)}
            memory, processes = shown("2GiB")
            self.assertEqual(memory, [2048 * MIB, used[capped.pid], 2048 * MIB - used[capped.pid]])
            self.assertEqual(processes, {capped.pid: used[capped.pid]}, "only the tenant's process")
            memory, processes = shown(None)
            self.assertEqual(processes, {pid: used[pid] for pid in (capped.pid, free.pid)})
            self.assertEqual(memory[0], CARD_MIB * MIB)

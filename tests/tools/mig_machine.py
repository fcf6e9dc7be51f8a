"""GPUs in MIG mode for tests of the fracgpu command, and what NVML and NVIDIA's nvidia-smi say of them."""
import json
import struct
import subprocess
import sys

from machine import BUILD, CLAIMS_AT, CLAIM_BYTES, IN_USE_AT, Machine, part

SHOW = "echo $CUDA_VISIBLE_DEVICES $FRACGPU_MEMORY_LIMIT; read x"
# GPU, profile's number, start and size of each GPU instance, by NVML alone.
ORACLE = """
import ctypes, json
n = ctypes.CDLL("libnvidia-ml.so.1"); n.nvmlInit_v2()
class Info(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("id", ctypes.c_uint), ("profile", ctypes.c_uint),
                ("start", ctypes.c_uint), ("size", ctypes.c_uint)]
count = ctypes.c_uint(); n.nvmlDeviceGetCount_v2(ctypes.byref(count)); found = []
for gpu in range(count.value):
    device = ctypes.c_void_p(); n.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(device))
    for profile in range(32):
        handles = (ctypes.c_void_p * 16)(); many = ctypes.c_uint(16)
        if n.nvmlDeviceGetGpuInstances(device, profile, handles, ctypes.byref(many)):
            continue
        for handle in handles[:many.value]:
            info = Info()
            if n.nvmlGpuInstanceGetInfo(ctypes.c_void_p(handle), ctypes.byref(info)) == 0:
                found.append([gpu, info.profile, info.start, info.size])
print(json.dumps(sorted(found)))
"""


class MigMachine(Machine):
    def __init__(self, profile):
        super().__init__(profile)
        self.environment["FRACGPU_SIM_NVML_ROOT"] = "1"

    def instances(self):
        done = subprocess.run([sys.executable, "-c", ORACLE], env=self.environment, capture_output=True, text=True, check=True)
        return [tuple(each) for each in json.loads(done.stdout)]

    def smi(self, *arguments):
        return subprocess.run([f"{part('nvidia-smi-535')}/usr/lib/nvidia/current/nvidia-smi", *arguments], env=self.environment, capture_output=True, text=True, check=True).stdout

    def launch(self, *arguments, extra=None):
        """A launch that says what it sees and stays until it is told to end."""
        child = self.start("run", *arguments, "--", "sh", "-c", SHOW, extra=extra)
        child.seen = child.stdout.readline().split()
        assert child.seen, child.stderr.read()
        return child

    def claims(self):
        """Without looking for the dead."""
        with open(self.claim_table, "rb") as file:
            data = file.read()
        in_use = struct.unpack_from("<I", data, IN_USE_AT)[0]
        states = [struct.unpack_from("<I", data, CLAIMS_AT + CLAIM_BYTES * i)[0] for i in range(in_use)]
        return [state for state in states if state != 0]

    def end(self, *launches):
        for each in launches:
            each.stdin.write("\n")
            each.stdin.flush()
            assert each.wait(60) == 0, each.stderr.read()

    def make(self, gpu, profile):
        """One that somebody else makes."""
        self.smi("mig", "-i", str(gpu), "-cgi", str(profile), "-C")


def used_slices(instances):
    taken = [(gpu, slice_) for gpu, _, start, size in instances for slice_ in range(start, start + size)]
    assert len(taken) == len(set(taken)), f"slices were given twice: {instances}"
    return set(taken)

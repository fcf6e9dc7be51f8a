"""A simulated machine for tests of the fracgpu command: a node, a claim table and tenants of its own."""
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

# tests/conftest.py sets the variable; other programs have the build folder as their first argument.
BUILD = os.path.abspath(os.environ.get("TEST_BUILD") or sys.argv[1])
COMMAND = f"{BUILD}/fracgpu"
FETCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fetch.sh")
LIBRARY = f"{BUILD}/libfracgpu.so"
CLIENT = f"{BUILD}/tests/clients/cuda_client"
SHARE_CLIENT = f"{BUILD}/tests/clients/share_client"
HIP_PROGRAM = f"{BUILD}/tests/clients/hip_program"
HSA_PROGRAM = f"{BUILD}/tests/clients/hsa_program"
KFD = f"{BUILD}/sim/libsimkfd.so"
GIB = 1 << 30
# Of the claim table, by the published layout.
CLAIMS_AT, CLAIM_BYTES, IN_USE_AT = 8192, 512, 64 + 16


class Machine:
    """With GPUs of this profile; removes everything at the end."""

    def __init__(self, profile):
        self.name = f"cmd-{os.getpid()}-{profile.replace('+', '-')}"
        self.node = f"/dev/shm/simnode-{self.name}"
        self.claim_table = f"/dev/shm/claims-{self.name}.test"
        self.folder = tempfile.mkdtemp()
        self.children = []
        subprocess.run([f"{BUILD}/tests/sim/simnode", "create", self.node, "--profile", profile], check=True)
        self.environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C", "FRACGPU_SIM_NODE": self.node, "FRACGPU_BOOK": self.claim_table,
            "LD_LIBRARY_PATH": f"{BUILD}/sim", "FRACGPU_SIM_CONTEXT_MIB": "64"}
        if "mi" in profile or "amd" in profile or "cpx" in profile:
            self.environment["LD_PRELOAD"] = KFD

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        subprocess.run([f"{BUILD}/tests/sim/simnode", "remove", self.node], check=False)
        shutil.rmtree(self.folder)
        for entry in os.scandir("/dev/shm"):
            if entry.name.startswith(f"fracgpu-{self.name}") or entry.path == self.claim_table:
                os.unlink(entry.path)
        shutil.rmtree(f"{self.claim_table}.instances", ignore_errors=True)

    def tenant(self, name):
        return f"{self.name}-{name}"

    def ledger(self, name):
        return f"/dev/shm/fracgpu-{self.tenant(name)}"

    def fracgpu(self, *arguments, extra=None, **more):
        """Runs it to its end: status, stdout, stderr."""
        done = subprocess.run([COMMAND, *arguments], capture_output=True, timeout=120, text=True,
                              env={**self.environment, **(extra or {})}, **more)
        return done.returncode, done.stdout, done.stderr

    def start(self, *arguments, extra=None, **more):
        """Starts it with pipes, for lines to be read from and written to."""
        child = subprocess.Popen([COMMAND, *arguments], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env={**self.environment, **(extra or {})}, **more)
        self.children.append(child)
        return child

    def client(self, tenant, limit, commands, extra=None, program=CLIENT, until="ready\n"):
        """A program that uses a GPU, under the library unless the limit is None; waits until it says so."""
        variables = dict(extra or {})
        if limit is not None:
            preload = " ".join(filter(None, (LIBRARY, self.environment.get("LD_PRELOAD"))))
            variables |= {"LD_PRELOAD": preload, "FRACGPU_TENANT": self.tenant(tenant), "FRACGPU_MEMORY_LIMIT": limit}
        child = subprocess.Popen([program, *commands.split()], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**self.environment, **variables})
        self.children.append(child)
        child.lines = []
        while not child.lines or child.lines[-1] and not child.lines[-1].startswith(until):
            child.lines.append(child.stdout.readline())
        return child

    def uuids(self):
        """Of all its NVIDIA GPUs, as a program without a cap sees them."""
        code = ("import ctypes;n=ctypes.CDLL('libnvidia-ml.so.1');n.nvmlInit_v2();c=ctypes.c_uint();"
                "n.nvmlDeviceGetCount_v2(ctypes.byref(c))\n"
                "for i in range(c.value):\n d=ctypes.c_void_p();t=ctypes.create_string_buffer(96)\n"
                " n.nvmlDeviceGetHandleByIndex_v2(i,ctypes.byref(d));n.nvmlDeviceGetUUID(d,t,96)\n"
                " print(t.value.decode())")
        return subprocess.run([sys.executable, "-c", code], env=self.environment, capture_output=True, text=True,
                              check=True).stdout.split()

    def claims(self):
        """States in the claim table of the rows that are not free: 1 waits, 2 holds. Looks for the dead first."""
        self.fracgpu("run", "--memory", "1GiB", "--tenant", self.tenant("looker"), "--", "true")
        with open(self.claim_table, "rb") as file:
            data = file.read()
        in_use = struct.unpack_from("<I", data, IN_USE_AT)[0]
        states = [struct.unpack_from("<I", data, CLAIMS_AT + CLAIM_BYTES * i)[0] for i in range(in_use)]
        return [state for state in states if state != 0]


def wait_until(condition, what, seconds=60):
    """Looks again and again, for what no event tells."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def stop(program):
    """Stops all threads of a program. Its first thread takes the signal and stops the others, which go on until that
    thread gets a processor."""
    program.send_signal(signal.SIGSTOP)

    def is_stopped(thread):
        with open(f"/proc/{program.pid}/task/{thread}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    wait_until(lambda: all(is_stopped(thread) for thread in os.listdir(f"/proc/{program.pid}/task")), "all threads are stopped")


def one_line(err):
    return err.startswith("fracgpu: ") and err.count("\n") == 1


def part(name):
    """The folder of a real part of a vendor's, fetched where it is not there yet; skips where it cannot be had."""
    where = f"{BUILD}/parts/{name}"
    os.makedirs(where, exist_ok=True)
    with open(f"{where}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([FETCH, name, where], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(done.stderr.strip())
    return where


def install(prefix):
    """Installs the build under this folder."""
    with open(f"{BUILD}/CMakeCache.txt", encoding="utf-8") as cache:
        cmake = re.search(r"^CMAKE_COMMAND:INTERNAL=(.*)$", cache.read(), re.M)[1]
    done = subprocess.run([cmake, "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

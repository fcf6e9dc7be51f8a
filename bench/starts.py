#!/usr/bin/env python3
"""Counts what the library adds to the start of a program and to its first GPU call: no times.

Instructions and system calls are counted under valgrind, page faults by the kernel, on the simulated
driver. They hardly depend on what else the machine does. Fails where one is above its bound. What
the simulated NVML does, which the library asks, is counted as the library's.
"""

import argparse
import ctypes
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TENANT = f"starts-{os.getpid()}"
# What is started, and the bounds of what the library adds: a sixth above what was measured.
STARTS = {
    "start of true": (["/bin/true"], (34_000, 13, 20)),
    "first context and allocation": (["BUILD/tests/clients/repeat_client", "smallpairs", "1"], (880_000, 282, 242)),
}
WHAT = ("instructions", "system calls", "page faults")
ADDR_NO_RANDOMIZE = 0x0040000
CLONE_NEWNS, MS_REC_AND_PRIVATE = 0x20000, 0x44000


def own_shm():
    """A new tenant's first process looks at other tenants' ledgers: here are none, where that is permitted."""
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNS) == 0:
        libc.mount(b"none", b"/", None, MS_REC_AND_PRIVATE, None)
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)


def fix_addresses():
    """Of all programs started from here on. Some containers do not permit it, which adds noise."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


def under_valgrind(command, environment, tool):
    done = subprocess.run(["valgrind", *tool, *command], env=environment, text=True, check=True, timeout=120,
                          capture_output=True)
    return done.stderr


def page_faults(command, environment):
    """A fork of Python would count the pages that Python then writes to: posix_spawn shares them until the exec."""
    process = os.posix_spawn(command[0], command, environment,
                             file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        sys.exit(f"{command} failed")
    return usage.ru_minflt


def counts(command, environment, forget):
    """Of one start; `forget` makes the next one be of a new tenant."""
    figures = []
    log = under_valgrind(command, environment, ["--tool=callgrind", "--callgrind-out-file=/dev/null"])
    figures.append(int(re.search(r"Collected : (\d+)", log).group(1)))
    forget()
    log = under_valgrind(command, environment, ["--tool=none", "--trace-syscalls=yes"])
    figures.append(len(re.findall(r"^SYSCALL\[", log, re.MULTILINE)))
    forget()
    faults = []
    for _ in range(9):
        faults.append(page_faults(command, environment))
        forget()
    return [*figures, int(statistics.median(faults))]


def added(build, node, program):
    command = [part.replace("BUILD", str(build)) for part in program]
    plain = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(build / "sim"), "FRACGPU_SIM_NODE": str(node)}
    preloaded = plain | {"LD_PRELOAD": str(build / "libfracgpu.so"), "FRACGPU_TENANT": TENANT,
                         "FRACGPU_MEMORY_LIMIT": "90%"}

    def forget():
        pathlib.Path(f"/dev/shm/fracgpu-{TENANT}").unlink(missing_ok=True)

    without, with_it = (counts(command, environment, forget) for environment in (plain, preloaded))
    return [after - before for before, after in zip(without, with_it)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build/release", metavar="DIR")
    build = parser.parse_args().build.resolve()
    above = []
    own_shm()
    fix_addresses()
    with tempfile.TemporaryDirectory(prefix="fracgpu-starts-", dir="/dev/shm") as scratch:
        node = pathlib.Path(scratch) / "node"
        subprocess.run([build / "tests/sim/simnode", "create", node, "--profile", "a100-80gb"], check=True)
        for name, (program, bounds) in STARTS.items():
            for what, count, bound in zip(WHAT, added(build, node, program), bounds):
                print(f"{name}: {count} {what} added, at most {bound}")
                if count > bound:
                    above.append(f"{what} of the {name}")
    if above:
        sys.exit(f"above their bounds: {', '.join(above)}")


if __name__ == "__main__":
    main()

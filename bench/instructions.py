#!/usr/bin/env python3
"""Counts the instructions that the library adds to a call, under valgrind on the simulated driver.

They do not depend on what else the machine does. Fails where a call is above its bound.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# By the command of tests/clients/repeat_client.cc: the bound, a sixth above what was measured.
BOUNDS = {"looks": 160, "smallpairs": 1010, "wholepairs": 720, "asyncpairs": 1050}
# What a program does at its start is in both runs.
FEW, MANY = 1000, 6000


def instructions(build, node, command, repetitions, preload):
    tenant = f"instructions-{os.getpid()}-{repetitions}"  # of its own, where nobody has died
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(build / "sim"), "FRACGPU_SIM_NODE": str(node)}
    if preload:
        environment |= {"LD_PRELOAD": str(build / "libfracgpu.so"), "FRACGPU_TENANT": tenant,
                        "FRACGPU_MEMORY_LIMIT": "40GiB"}
    if command == "looks":
        environment["FRACGPU_NVML"] = "off"  # memory info reads it each second, which is not counted here
    try:
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                               build / "tests/clients/repeat_client", command, str(repetitions)],
                              env=environment, text=True, check=True, timeout=120, capture_output=True)
    finally:
        pathlib.Path(f"/dev/shm/fracgpu-{tenant}").unlink(missing_ok=True)
    if f"{command} rc=0" not in done.stdout:
        sys.exit(f"{command} failed: {done.stdout}{done.stderr}")
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def added(build, node, command):
    """Per repetition, by the library."""
    few, many = ([instructions(build, node, command, repetitions, preload) for preload in (False, True)]
                 for repetitions in (FEW, MANY))
    return round(((many[1] - many[0]) - (few[1] - few[0])) / (MANY - FEW))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build/release", metavar="DIR")
    build = parser.parse_args().build.resolve()
    above = []
    with tempfile.TemporaryDirectory(prefix="fracgpu-instructions-", dir="/dev/shm") as scratch:
        node = pathlib.Path(scratch) / "node"
        subprocess.run([build / "tests/sim/simnode", "create", node, "--profile", "a100-80gb"], check=True)
        for command, bound in BOUNDS.items():
            count = added(build, node, command)
            print(f"{command}: {count} instructions added, at most {bound}")
            if count > bound:
                above.append(command)
    if above:
        sys.exit(f"above their bounds: {', '.join(above)}")


if __name__ == "__main__":
    main()

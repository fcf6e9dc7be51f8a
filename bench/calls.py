#!/usr/bin/env python3
"""Counts the calls of the driver and of NVML that the library adds to one warm call.

Prints a table for README.md; --write puts it there, and --check fails where README.md has another one.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- counted by calls.py -->\n", "<!-- end of what calls.py counted -->\n"


def counted(build, preload):
    """By name: how often each function was called in all repetitions; and how many those were."""
    with tempfile.TemporaryDirectory(prefix="fracgpu-calls-", dir="/dev/shm") as scratch:
        node, tenant = f"{scratch}/node", f"calls-{os.getpid()}"
        subprocess.run([build / "tests/sim/simnode", "create", node, "--profile", "a100-80gb"], check=True)
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(build / "sim"), "FRACGPU_SIM_NODE": node,
                       "FRACGPU_SIM_CALLS": f"{scratch}/calls"}
        if preload:
            environment |= {"LD_PRELOAD": str(build / "libfracgpu.so"), "FRACGPU_TENANT": tenant,
                            "FRACGPU_MEMORY_LIMIT": "40GiB"}
        try:
            done = subprocess.run([build / "tests/clients/call_counts"], env=environment, text=True, check=True, timeout=300,
                                  stdout=subprocess.PIPE)
        finally:
            pathlib.Path(f"/dev/shm/fracgpu-{tenant}").unlink(missing_ok=True)
        result = json.loads(done.stdout)
        return result["counts"], result["calls"]


def amount(count, calls):
    return f"{count / calls:.2f}".rstrip("0").rstrip(".")


def table(build):
    plain, calls = counted(build, False)
    capped, _ = counted(build, True)
    lines = ["| a warm call of | driver | NVML | which |", "|---|---|---|---|"]
    for name in sorted(capped, key=str.lower):
        added = {callee: count - plain[name].get(callee, 0) for callee, count in capped[name].items()
                 if count != plain[name].get(callee, 0)}
        nvml = sum(count for callee, count in added.items() if callee.startswith("nvml"))
        named = ", ".join(f"{callee}{'' if count == calls else ' × ' + amount(count, calls)}"
                          for callee, count in sorted(added.items()))
        lines.append(f"| {name} | {amount(sum(added.values()) - nvml, calls)} | {amount(nvml, calls)} | {named} |")
    rows = (HERE.parent / "hooks/cuda/functions.inc").read_text(encoding="utf-8")
    hooked = set(re.findall(r"FRACGPU_HOOKED\(\w+, \d+, (\w+)", rows))
    unknown = {name.split(" ")[0] for name in capped} - hooked
    if unknown:
        sys.exit(f"counted, but not hooked: {', '.join(sorted(unknown))}")
    rest = sorted(hooked - {name.split(" ")[0] for name in capped})
    return "\n".join(lines) + f"\n\nNot counted, {len(rest)} of {len(hooked)} hooks: {', '.join(rest)}.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build/release", metavar="DIR")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--check", action="store_true", help="fail where README.md has another table")
    chosen = parser.parse_args()
    measured = table(chosen.build.resolve())
    page = README.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    written, after = rest.split(END)
    if chosen.write:
        README.write_text(before + BEGIN + measured + END + after, encoding="utf-8")
    elif not chosen.check:
        print(measured, end="")
    elif written != measured:
        sys.exit(f"bench/README.md says otherwise (bench/calls.py --write repairs it); counted:\n{measured}")


if __name__ == "__main__":
    main()

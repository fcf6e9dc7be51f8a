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


# Hooked functions that cannot be called warm on the simulated node.
GRAPHICS = "needs OpenGL's or VDPAU's driver; the hook is that of cuCtxCreate_v2"
NO_CAPTURE = "the simulated driver has none; the hook is that of cuStreamBeginCapture_v2"
NO_LIST = "the simulated driver has none; the hook is that of cuModuleGetFunction"
LIKE_BEGIN = "the hook is that of cuStreamBeginCapture_v2"
LIKE_END = "the hook is that of cuStreamEndCapture"
STANDS_STILL = "the process that it is about stands still; it asks the driver nothing more"
NOT_COUNTED = {
    "cuGLCtxCreate": GRAPHICS, "cuGLCtxCreate_v2": GRAPHICS, "cuVDPAUCtxCreate": GRAPHICS, "cuVDPAUCtxCreate_v2": GRAPHICS,
    "cuStreamBeginCaptureToGraph": NO_CAPTURE, "cuStreamBeginCaptureToGraph_ptsz": NO_CAPTURE,
    "cuStreamBeginRecaptureToGraph": LIKE_BEGIN, "cuStreamBeginRecaptureToGraph_ptsz": LIKE_BEGIN,
    "cuStreamBeginCaptureToCig": LIKE_BEGIN, "cuStreamBeginCaptureToCig_ptsz": LIKE_BEGIN,
    "cuStreamEndCaptureToCig": LIKE_END, "cuStreamEndCaptureToCig_ptsz": LIKE_END,
    "cuCheckpointProcessCheckpoint": STANDS_STILL, "cuCheckpointProcessRestore": STANDS_STILL,
    "cuModuleEnumerateFunctions": NO_LIST, "cuLibraryEnumerateKernels": NO_LIST,
}


def counted(build, preload):
    """By the measured call: how often it was repeated ("calls"), and how often each function was called in that ("counts")."""
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
        return json.loads(done.stdout)


def amount(count, calls):
    return f"{count / calls:.2f}".rstrip("0").rstrip(".")


def family(name):
    """Without what tells variants of a function apart, which share a hook."""
    return re.sub(r"(_v\d|_ptsz)+", "", name)


def row_of(name, plain, capped):
    calls = capped["calls"]
    added = {callee: count - plain["counts"].get(callee, 0) for callee, count in capped["counts"].items()
             if count != plain["counts"].get(callee, 0)}
    nvml = sum(count for callee, count in added.items() if callee.startswith("nvml"))
    named = ", ".join(f"{callee}{'' if count == calls else ' × ' + amount(count, calls)}"
                      for callee, count in sorted(added.items()))
    return f"{amount(sum(added.values()) - nvml, calls)} | {amount(nvml, calls)} | {named}"


def table(build):
    plain, capped = counted(build, False), counted(build, True)
    rows = {}  # variants that add the same share one
    for name in sorted(capped, key=str.lower):
        rows.setdefault((family(name), row_of(name, plain[name], capped[name])), []).append(name)
    lines = ["| a warm call of | driver | NVML | which |", "|---|---|---|---|"]
    lines += [f"| {', '.join(names)} | {row} |" for (_, row), names in rows.items()]
    table_of_hooks = (HERE.parent / "hooks/cuda/functions.inc").read_text(encoding="utf-8")
    hooked = set(re.findall(r"FRACGPU_HOOKED\(\w+, [^,]+, (\w+)", table_of_hooks))
    measured = {name.split(" ")[0] for name in capped}
    for what, names in (("counted, but not hooked", measured - hooked),
                        ("neither counted nor in NOT_COUNTED", hooked - measured - set(NOT_COUNTED)),
                        ("in NOT_COUNTED, but counted or not hooked", set(NOT_COUNTED) - (hooked - measured))):
        if names:
            sys.exit(f"{what}: {', '.join(sorted(names))}")
    reasons = {}
    for name in sorted(NOT_COUNTED):
        reasons.setdefault(NOT_COUNTED[name], []).append(name)
    lines += ["", f"Counted are {len(hooked & measured)} of {len(hooked)} hooks. The others:", ""]
    lines += [f"- {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


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

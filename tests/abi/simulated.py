"""simulated.py HOOKS LIBRARIES SIM: every function of the tables is in the simulated libraries, which are written
independently of the tables. One that is not gets named, with the lines to add.

HOOKS is the folder of the tables, LIBRARIES the folder of the built libraries, and SIM the simulator's sources. HIP has
no simulated library: the vendor's own runs on the simulated HSA.
"""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

LIBRARIES = {
    "cuda": "libcuda.so.1",
    "hsa": "libhsa-runtime64.so.1",
    "smi/nvml": "libnvidia-ml.so.1",
    "smi/amdsmi": "libamd_smi.so.*",
    "smi/rocmsmi": "librocm_smi64.so.*",
}


def exports(libraries):
    names = set()
    for library in libraries:
        symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
        names |= {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
    return names


def symbol_line(row):
    """What symbols.inc, which cuGetProcAddress answers from, has to say of a CUDA function."""
    base = re.fullmatch(r"(\w+?)(?:_v\d+)?(?:_ptsz|_ptds)?", row.name)[1]
    twin = "true" if row.name.endswith(("_ptsz", "_ptds")) else "false"
    return f"SIM_SYMBOL({base}, {row.since.version}, {row.name}, {twin})"


def main(hooks, built, sources):
    wrong = 0
    for folder, rows in function_table.read_all(hooks).items():
        libraries = glob.glob(os.path.join(built, LIBRARIES[folder])) if folder in LIBRARIES else []
        if not libraries:
            print(f"{folder}: no simulated library here")
            continue
        names, place = exports(libraries), f"tests/sim/{folder.split('/')[-1]}"
        lines = []
        if folder == "cuda":
            with open(os.path.join(sources, "cuda/symbols.inc"), encoding="utf-8") as table:
                lines = table.read().splitlines()
        for row in rows:
            missing = [f"{place}/stubs.inc: SIM_STUB({row.name})"] if row.name not in names else []
            if folder == "cuda" and symbol_line(row) not in lines:
                missing.append(f"{place}/symbols.inc: {symbol_line(row)}")
            if missing:
                wrong += 1
                print(f"{row.place}: {row.name} is not simulated as the row has it; add to {', and to '.join(missing)}"
                      " (a stub refuses; a body in a .cc there can answer)")
        print(f"{folder}: {len(rows)} functions looked for in {len(libraries)} simulated libraries")
    if wrong:
        sys.exit(f"FAILED: {wrong} functions of the tables are not simulated")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except function_table.BadTable as bad:
        sys.exit(f"FAILED: {bad}")

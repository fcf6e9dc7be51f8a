"""amd_audit.py TABLE LEFT_ALONE SOURCE: looks for functions of AMD's HSA or HIP runtime that nobody has decided about.

SOURCE is a library, or a list of names, one a line, with '#' before remarks. Every function that it exports, of HIP's
those that by their name may have to do with memory, must be hooked (TABLE, which is functions.inc) or be left alone
for a reason (LEFT_ALONE, whose head describes its syntax).
"""
import fnmatch
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

# Of HIP's functions, which all end up in HSA's: a name too many costs a word in LEFT_ALONE. Copying and setting work on
# memory that exists.
MEMORY = re.compile(
    r"Mem(?![a-z])|Malloc|Alloc|Free|Array|Pool|Managed|Prefetch|Advi[sc]e|Discard|Map|Unmap|Attach|PeerAccess|Ipc|"
    r"Import|Export|External|Shareable|Create|Destroy|Retain|Release|Reset|Trim|Limit|Load|Unload|Launch|Instantiate|"
    r"Upload|Module|Library|Link|GetProcAddress|EntryPoint|Pointer|Properties|Tex|Surf|Graphics|[Rr]egister|Graph|Init$")
COPIES = re.compile(r"hip(Drv)?(Mem(cpy|set)|Graph\w*Mem(cpy|set))")


def read_names(source):
    if source.endswith(".txt"):
        with open(source, encoding="utf-8") as lines:
            return {line.split("#")[0].strip() for line in lines} - {""}
    symbols = subprocess.run(["nm", "-D", "--defined-only", source], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if line.split()[-2] in "TtWi"}
    if len(names) < 200:  # HSA of 5.2 has 240
        sys.exit(f"FAILED: only {len(names)} functions found in {source}: it is not read correctly")
    return names


def read_left_alone(path):
    """The reasons, by name or pattern."""
    listed, reason = {}, None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith("#") or not line.strip():
                continue
            if not line[0].isspace():
                reason = line.strip()
            elif reason is None:
                sys.exit(f"FAILED: {path}:{number}: names without a reason above them")
            else:
                for name in line.split():
                    if name in listed:
                        sys.exit(f"FAILED: {path}:{number}: {name} is listed already, as '{listed[name]}'")
                    listed[name] = reason
    return listed


def audit(table, left_alone, source):
    rows = function_table.read(table)
    hooked = {row.name for row in rows if row.exported}
    called = {row.name for row in rows if not row.exported}
    listed = read_left_alone(left_alone)
    names = read_names(source)
    suspects = sorted(name for name in names
                      if name.startswith("hsa_") or MEMORY.search(name) and not COPIES.match(name))
    wrong = [f"{name} is listed as left alone, but it is hooked" for name in sorted(hooked & set(listed))]
    for name in suspects:
        if name not in hooked and not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed):
            how = "only called" if name in called else "not in the table"
            wrong.append(f"{name} is {how}, and not listed as left alone")
    for line in wrong:
        print(line)
    verdict = f"FAILED: {len(wrong)} of them wrong" if wrong else "each is hooked or explained"
    print(f"{os.path.basename(source)}: {len(names)} functions, {len(suspects)} of them looked at: {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(audit(*sys.argv[1:]))
    except function_table.BadTable as bad:
        sys.exit(f"FAILED: {bad}")

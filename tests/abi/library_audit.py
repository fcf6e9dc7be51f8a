"""library_audit.py TABLE LEFT_ALONE SOURCE: looks for functions of a vendor's library that nobody has decided about.

SOURCE is a library, a header of a management library, or a list of names, one a line, with '#' before remarks. Every
function of it that by its name may have to do with memory (of HSA, every function; of the management libraries, what
reports memory or processes) must be hooked (TABLE, which is functions.inc) or be left alone for a reason (LEFT_ALONE,
whose head describes its syntax). audit.py does the same for CUDA, whose versions it knows besides.
"""
import fnmatch
import os
import re
import subprocess
import sys

from audit import read_list, report

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

# By what a name begins with. A name too many costs a word in LEFT_ALONE; one too few is a hole. HIP's all end up in HSA's;
# its copying and setting work on memory that exists.
SUSPECTS = {
    "hsa_": re.compile(""),
    "hip": re.compile(
        r"(?!hip(Drv)?(Mem(cpy|set)|Graph\w*Mem(cpy|set))).*("
        r"Mem(?![a-z])|Malloc|Alloc|Free|Array|Pool|Managed|Prefetch|Advi[sc]e|Discard|Map|Unmap|Attach|PeerAccess|Ipc|"
        r"Import|Export|External|Shareable|Create|Destroy|Retain|Release|Reset|Trim|Limit|Load|Unload|Launch|"
        r"Instantiate|Upload|Module|Library|Link|GetProcAddress|EntryPoint|Pointer|Properties|Tex|Surf|Graphics|"
        r"[Rr]egister|Graph|Init(?![a-z]))"),
    "nvml": re.compile(
        r"nvml.*(Mem|Process|Account|Fb|FB|Framebuffer|BAR1|ConfCompute|Attributes|Heap|StateSize|Pages|Limit|FieldValues|"
        r"Samples|Utilization|InstanceProfile|InstanceGetInfo|Capacity|Usage|Reserv|Pool|Quota|Alloc|Pids|ExportTable)"),
    "amdsmi_": re.compile(
        r"amdsmi_.*(mem|vram|gtt|ttm|(?<!n)uma|process(?!or)|pid|usage|size|page|limit|total|metrics|heap|alloc|"
        r"partition_profile|quota|utilization|pool|reserv)"),
    "rsmi_": re.compile(
        r"rsmi_.*(mem|vram|gtt|ttm|(?<!n)uma|process(?!or)|pid|usage|size|page|limit|total|metrics|heap|alloc|quota|"
        r"utilization|pool|reserv)"),
}
DECLARED = re.compile(r"(?:nvmlReturn_t\s+DECLDIR|amdsmi_status_t|rsmi_status_t)\s+(\w+)\s*\(")
FEWEST = {".h": 90, "": 200}  # functions of the smallest source: rocm_smi.h of 5.2, HSA of 5.2


def read_names(source):
    if source.endswith(".txt"):
        return read_list(source)
    if source.endswith(".h"):
        with open(source, encoding="utf-8", errors="replace") as header:
            names = set(DECLARED.findall(re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read(), flags=re.S)))
    else:
        symbols = subprocess.run(["nm", "-D", "--defined-only", source], check=True, capture_output=True, text=True)
        rows = [line.split() for line in symbols.stdout.splitlines()]
        names = {row[-1].split("@")[0] for row in rows if row[-2] in "TtWi"}
    if len(names) < FEWEST[".h" if source.endswith(".h") else ""]:
        sys.exit(f"FAILED: only {len(names)} functions found in {source}: it is not read correctly")
    return names


def is_suspect(name):
    return any(name.startswith(prefix) and pattern.match(name) for prefix, pattern in SUSPECTS.items())


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
    suspects = sorted(filter(is_suspect, names))
    wrong = [f"{name} is listed as left alone, but it is hooked" for name in sorted(hooked & set(listed))]
    for name in suspects:
        if name not in hooked and not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed):
            how = "only called" if name in called else "not in the table"
            wrong.append(f"{name} is {how}, and not listed as left alone")
    return report(os.path.basename(source), names, suspects, wrong)


if __name__ == "__main__":
    try:
        sys.exit(audit(*sys.argv[1:]))
    except function_table.BadTable as bad:
        sys.exit(f"FAILED: {bad}")

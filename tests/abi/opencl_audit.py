"""opencl_audit.py TABLE LEFT_ALONE SOURCE: looks for functions of OpenCL that nobody has decided about.

SOURCE is the folder of Khronos' headers, or an implementation, in which extensions' functions are known by the texts of their
names. Every function must be hooked (TABLE, which is dispatched.inc) or be left alone for a reason (LEFT_ALONE).
"""
import fnmatch
import os
import re
import sys

from audit import report
from library_audit import read_left_alone

ROW = re.compile(r"^FRACGPU_(HOOKED|CALLED)\((\d+), (\d+), [^,]+, (\w+), \(", flags=re.M)
DECLARED = re.compile(r"\b(cl[A-Z]\w+)\s*\(")
SUFFIX = re.compile(r"\b(cl[A-Z]\w+)\s*\([^;]*\)\s*CL_API_SUFFIX__VERSION_(\d)_(\d);")


def read_headers(folder):
    """The names, and the versions that brought some of them."""
    names, since = set(), {}
    for name in os.listdir(folder):
        if name.startswith("cl_d") or name in ("cl_half.h", "cl_icd.h"):  # Windows' and macros; the table has no more
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as header:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read(), flags=re.S)
        names |= set(DECLARED.findall(text))
        since.update({found[0]: int(found[1]) * 100 + int(found[2]) * 10 for found in SUFFIX.findall(text)})
    return names, since


def read_library(path):
    with open(path, "rb") as library:
        return {name.decode() for name in re.findall(rb"\0(cl[A-Z][a-z][A-Za-z0-9]+)(?=\0)", library.read())}, {}


def main(table, left_alone, source):
    with open(table, encoding="utf-8") as text:
        rows = ROW.findall(text.read())
    hooked = {name for kind, _, _, name in rows if kind == "HOOKED"}
    listed = read_left_alone(left_alone)
    is_library = not os.path.isdir(source)
    names, since = read_library(source) if is_library else read_headers(source)
    if len(names) < (20 if is_library else 150):
        sys.exit(f"FAILED: only {len(names)} functions found in {source}: it is not read correctly")
    wrong = [f"{name} came with {since[name]}, not with {version}"
             for _, _, version, name in rows if since.get(name, int(version)) != int(version)]
    for name in sorted(names):
        if name not in hooked and not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed):
            wrong.append(f"{name} is neither hooked nor listed as left alone")
    return report(os.path.basename(source), names, names, wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

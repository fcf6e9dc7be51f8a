"""coverage.py [--write] TABLE LEFT_ALONE PAGE: checks, or with --write makes, the page that says what becomes of every
memory function of the CUDA driver.

TABLE is functions.inc. LEFT_ALONE lists what it leaves out and why; its head describes its syntax.
"""
import difflib
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

VARIANT = re.compile(r"(\w+?)((?:_v\d+)?(?:_ptsz|_ptds)?)$")  # a name, and what is behind it in its variants

HEAD = """\
# What becomes of the CUDA driver's memory functions

Made from functions.inc and tests/abi/left_alone.txt; in the project's folder,
`python3 tests/abi/coverage.py --write hooks/cuda/functions.inc tests/abi/left_alone.txt hooks/cuda/COVERAGE.md` does it
again. The tests compare both with every `cuda.h` and `libcuda.so.1` that they find, and with the newer functions that
tests/abi/cuda_newest.txt lists. They fail for a function that is in neither although by its name it may allocate, map,
import, free or report memory, begin or end a capture, or hand out entry points.

A function that is hooked is shown with the variants of it that are: `cuMemAlloc` `_v2` is `cuMemAlloc`, of before CUDA
3.2, and `cuMemAlloc_v2`. One that is left alone is left alone in all its variants. "since CUDA" is the version that
brought each variant; "≤ 11.8": the oldest header that was compared has it; "unknown": no header has it, or only some.

"""


class Listed:
    """A name of LEFT_ALONE: why it is left alone, and the CUDA version since which cuda.h has had it."""

    def __init__(self, reason, mark):
        self.reason = reason
        self.in_headers = mark != "-"
        major, minor = mark.split(".") if "." in mark else (0, 0)
        self.since = int(major) * 1000 + int(minor) * 10
        self.since_text = mark if self.since else "≤ 11.8" if self.in_headers else "unknown"


def read_rows(path):
    """The rows of functions.inc."""
    try:
        return function_table.read(path)
    except function_table.BadTable as bad:
        sys.exit(f"FAILED: {bad}")


def find_bodies(rows, folder):
    """The file of each hook's body, by the function's name."""
    places = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".cc"):
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                places |= dict.fromkeys(re.findall(r"^CUresult (\w+)\(", source.read(), flags=re.M), file)
    for row in rows:
        if row.exported and row.name not in places:
            sys.exit(f"FAILED: {row.place}: no file of {folder} has the body 'CUresult {row.name}{row.parameters}'")
    return places


def read_left_alone(path):
    """What is listed, by name."""
    listed, reason = {}, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#") or not line.strip():
                continue
            if not line[0].isspace():
                reason = line.strip()
                continue
            for word in line.split():
                name = re.fullmatch(r"(cu[A-Z]\w*)(?:@(\d+\.\d+|-))?", word)
                if name is None or reason is None or name[1] in listed:
                    sys.exit(f"FAILED: {path}: '{word}' is no name, is there twice, or has no reason above it")
                listed[name[1]] = Listed(reason, name[2] or "")
    return listed


def entry_of(name, listed):
    """The entry that a name falls under: itself, or what it is a variant of."""
    generation = re.sub(r"(_ptsz|_ptds)$", "", name)
    for entry in (name, generation, VARIANT.match(name)[1]):
        if entry in listed:
            return entry
    return None


def version_text(version):
    """CUDA_VERSION as people write it."""
    return f"{version // 1000}.{version % 1000 // 10}"


def page(rows, places, listed):
    grouped = {}
    for row in rows:
        if row.exported:
            base, variant = VARIANT.match(row.name).groups()
            fate = f"hooked, {function_table.FAMILIES[row.family]}: [{places[row.name]}]({places[row.name]})"
            grouped.setdefault((base, fate), []).append((variant, row.since))
    lines = []
    for (base, fate), variants in grouped.items():
        names = [base if not variant else variant for variant, _ in sorted(variants, key=lambda pair: pair[0])]
        since = [("" if since.exact else "≤ ") + version_text(since.version)
                 for _, since in sorted(variants, key=lambda pair: pair[0])]
        if "" not in [variant for variant, _ in variants]:
            names[0] = base + names[0]
        lines.append((base, " ".join(f"`{name}`" for name in names), ", ".join(since), fate))
    for name, entry in listed.items():
        lines.append((name, f"`{name}`", entry.since_text, f"left alone: {entry.reason}"))
    table = [f"| {names} | {since} | {fate} |\n"
             for _, names, since, fate in sorted(lines, key=lambda line: line[0].lower())]
    return HEAD + "| function | since CUDA | what fracgpu does with it |\n|---|---|---|\n" + "".join(table)


def main(arguments):
    write = arguments[:1] == ["--write"]
    table, left_alone, path = arguments[write:]
    rows = read_rows(table)
    made = page(rows, find_bodies(rows, os.path.dirname(table)), read_left_alone(left_alone))
    if write:
        with open(path, "w", encoding="utf-8") as output:
            output.write(made)
        return 0
    with open(path, encoding="utf-8") as committed:
        before = committed.read().splitlines()
    difference = list(difflib.unified_diff(before, made.splitlines(), "committed", "made", n=0, lineterm=""))
    for line in difference[:20]:
        print(line)
    print("FAILED: the page is out of date; its head says how it is made" if difference else "the page is up to date")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

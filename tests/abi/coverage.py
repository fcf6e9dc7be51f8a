"""coverage.py [--write] TABLE LEFT_ALONE PAGE: checks, or with --write makes, the page that says what becomes of every
memory function of the CUDA driver.

TABLE is functions.inc. LEFT_ALONE lists what it leaves out and why; its head describes its syntax.
"""
import difflib
import os
import re
import sys

VARIANT = re.compile(r"(\w+?)((?:_v\d+)?(?:_ptsz|_ptds)?)$")  # a name, and what is behind it in its variants

HEAD = """\
# What becomes of the CUDA driver's memory functions

Made from functions.inc and tests/abi/left_alone.txt; in the project's folder,
`python3 tests/abi/coverage.py --write hooks/cuda/functions.inc tests/abi/left_alone.txt hooks/cuda/COVERAGE.md` does it
again. The tests compare both with every `cuda.h` and `libcuda.so.1` that they find, and fail for a function that is in
neither although by its name it may allocate, map, import, free or report memory.

A function that is hooked is shown with the variants of it that are: `cuMemAlloc` `_v2` is `cuMemAlloc`, of before CUDA
3.2, and `cuMemAlloc_v2`. One that is left alone is left alone in all its variants.

"""


class Listed:
    """A name of LEFT_ALONE: why it is left alone, and the CUDA version since which cuda.h has had it."""

    def __init__(self, reason, mark):
        self.reason = reason
        self.in_headers = mark != "-"
        major, minor = mark.split(".") if "." in mark else (0, 0)
        self.since = int(major) * 1000 + int(minor) * 10


def read_table(path):
    """The hooked names, in order, each with the title and the file of its section; and the names only called."""
    hooked, called, title, place = {}, set(), None, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if section := re.match(r"// (.+) \((\w+\.cc)\)$", line):
                title, place = section.groups()
            elif row := re.match(r"FRACGPU_(HOOKED|CALLED)\((\w+),", line):
                if row[2] in hooked or row[2] in called:
                    sys.exit(f"FAILED: {path}: {row[2]} is there twice")
                if row[1] == "CALLED":
                    called.add(row[2])
                elif title is None:
                    sys.exit(f"FAILED: {path}: {row[2]} stands under no line '// Title (file.cc)'")
                else:
                    hooked[row[2]] = (title, place)
    return hooked, called


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


def page(hooked, listed):
    rows = {}
    for name, (title, place) in hooked.items():
        base, variant = VARIANT.match(name).groups()
        fate = f"hooked, {title[0].lower() + title[1:]}: [{place}]({place})"
        rows.setdefault((base, fate), []).append(variant)
    lines = []
    for (base, fate), variants in rows.items():
        names = [base if not variant else variant for variant in sorted(variants)]
        if "" not in variants:
            names[0] = base + names[0]
        lines.append((base, " ".join(f"`{name}`" for name in names), fate))
    lines += [(name, f"`{name}`", f"left alone: {entry.reason}") for name, entry in listed.items()]
    table = [f"| {names} | {fate} |\n" for _, names, fate in sorted(lines, key=lambda line: line[0].lower())]
    return HEAD + "| function | what fracgpu does with it |\n|---|---|\n" + "".join(table)


def main(arguments):
    write = arguments[:1] == ["--write"]
    table, left_alone, path = arguments[write:]
    hooked, _ = read_table(table)
    for place in sorted({place for _, place in hooked.values()}):
        if not os.path.exists(os.path.join(os.path.dirname(path), place)):
            sys.exit(f"FAILED: {table} names {place}, which is not beside it")
    made = page(hooked, read_left_alone(left_alone))
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

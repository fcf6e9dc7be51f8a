#!/usr/bin/env python3
"""layering.py SOURCE: includes point downwards only.

The tree is a set of rooms, one folder each, in layers. A file includes from its own room and from rooms below it;
rooms of one layer may include one another as long as that makes no circle. One line is printed for each arrow that
points up, is made in a circle, or leads where it must not. A room that no table here names is a failure as well, so
that a new folder is given its place.

shim/interpose is at the top of the library and yet includes no hook: it reaches them through the table
`vendor_backends`, which hooks/vendors.cc defines and the linker binds. So tests and programs link the rooms below with
vendors of their own.
"""
import pathlib
import posixpath
import re
import sys

# Top to bottom. A name with a suffix is one file with a place of its own: library_hook.h is what the hooks of every
# vendor begin with, while the rest of its folder knows them all.
LIBRARY = [
    ["shim/interpose"],
    ["hooks"],
    ["hooks/hip", "hooks/drm"],
    ["hooks/hsa", "hooks/cuda"],
    ["hooks/smi/amdsmi", "hooks/smi/rocmsmi"],
    ["hooks/smi"],
    ["hooks/usage"],
    ["hooks/smi/nvml"],
    ["hooks/library_hook.h"],
    ["hooks/recorded_call.h"],
    ["shim/charge"],
    ["shim/process"],
    ["shim/recording"],
    ["shim/ledger", "shim/tracking", "shim/sharing", "shim/config", "shim/vendor"],
    ["shim/base"],
    ["include/fracgpu"],
]
# The command. It lies above the library, of which it takes objects that hook nothing.
TOOLS = [
    ["tools"],
    ["tools/dra"],
    ["tools/commands", "tools/doctor", "tools/metrics", "tools/cdi", "tools/manual", "tools/partition",
     "tools/record", "tools/report", "tools/advise"],
    ["tools/ui", "tools/launch"],
    ["tools/machine"],
    ["tools/claims", "tools/recording"],
    ["tools/cli"],
]
LAYERS = TOOLS + LIBRARY
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer}

# Rooms that a whole tree may not reach, wherever they lie: (from, to, why).
FORBIDDEN = [
    ("shim/interpose", "hooks", "it reaches the hooks through vendor_backends alone"),
    ("tools", "shim/interpose", "the command intercepts nothing"),
    ("tools", "hooks/cuda", "the command intercepts nothing"),
    ("tools", "hooks/drm", "the command intercepts nothing"),
    ("tools", "hooks/hip", "the command intercepts nothing"),
    ("tools", "hooks/hsa", "the command intercepts nothing"),
    ("tests/sim", "shim", "the simulated node shares no code with what it judges"),
    ("tests/sim", "hooks", "the simulated node shares no code with what it judges"),
    ("tests/sim", "tools", "the simulated node shares no code with what it judges"),
    ("tests/sim", "include", "the simulated node shares no code with what it judges"),
    ("tests/kernel", "shim", "a simulated kernel shares no code with what it judges"),
    ("tests/kernel", "hooks", "a simulated kernel shares no code with what it judges"),
    ("tests/kernel", "tools", "a simulated kernel shares no code with what it judges"),
    ("tests/kernel", "include", "a simulated kernel shares no code with what it judges"),
    ("bench", "tests", "a benchmark must build without the tests"),
]

SOURCES = {".h", ".cc", ".c", ".S", ".inc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\b(?:__)?environ\b")
READS_ENVIRONMENT = "shim/base/environment.cc"
# What a source or a CMake file of bench/ would name to compile something out of tests/.
FROM_TESTS = re.compile(r"(?:\.\./|_DIR\}/)tests/|\bsim_node\b")
# Folders that -I adds besides the root, by which an include may be written shorter.
INCLUDE_ROOTS = ["", "include/", "tests/"]


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def room_of(path):
    """The room of a file: the file itself if a table names it, else its folder."""
    return path if path in LEVEL else path.rpartition("/")[0]


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def resolve(root, including, name):
    """The included file as a path from the root; None for a header that is not of this tree."""
    for folder in [including.rpartition("/")[0] + "/"] + INCLUDE_ROOTS:
        candidate = posixpath.normpath(folder + name)
        if (root / candidate).is_file():
            return candidate
    return None


def circle(arrows):
    """The rooms along one circle of arrows, the first named again at the end; [] where there is none."""
    done = set()

    def visit(room, path):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return []
        for target in sorted(arrows.get(room, ())):
            found = visit(target, path + [room])
            if found:
                return found
        done.add(room)
        return []

    for room in sorted(arrows):
        found = visit(room, [])
        if found:
            return found
    return []


def judge(root):
    """One line for each thing that is wrong, in the order of the files."""
    wrong = []
    arrows = {}
    example = {}
    for folder in ["shim", "hooks", "tools", "include", "tests/sim", "bench"]:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES and file.name != "CMakeLists.txt":
                continue
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            if file.name == "CMakeLists.txt":
                if folder == "bench":
                    wrong += [f"{path}:{line_of(text, match.start())}: bench/ builds from tests/: {match.group(0)}"
                              for match in FROM_TESTS.finditer(text)]
                continue
            if folder in ("shim", "hooks") and path != READS_ENVIRONMENT:
                wrong += [f"{path}:{line_of(text, match.start())}: reads the environment itself; {READS_ENVIRONMENT} "
                          "is the one place that does" for match in ENVIRONMENT.finditer(text)]
            room = room_of(path)
            layered = folder not in ("tests/sim", "bench")
            if layered and room not in LEVEL:
                wrong.append(f"{path}: its room {room} has no place in the table of {pathlib.Path(__file__).name}")
                continue
            for match in INCLUDE.finditer(text):
                target = resolve(root, path, match.group(1))
                if target is None:
                    continue
                place = f"{path}:{line_of(text, match.start())}"
                reasons = [why for source, forbidden, why in FORBIDDEN
                           if within(path, source) and within(target, forbidden)]
                if reasons:
                    wrong.append(f"{place}: includes {target}: {reasons[0]}")
                    continue
                to = room_of(target)
                if not layered or to == room:
                    continue
                if to not in LEVEL:
                    wrong.append(f"{place}: includes {target}, whose room has no place in the table")
                elif LEVEL[to] < LEVEL[room]:
                    wrong.append(f"{place}: an arrow points up: {room} includes {target} of {to}, which lies above it")
                else:
                    arrows.setdefault(room, set()).add(to)
                    example.setdefault((room, to), place)
    found = circle(arrows)
    if found:
        places = ", ".join(example[arrow] for arrow in zip(found, found[1:]))
        wrong.append(f"a circle: {' -> '.join(found)} (at {places})")
    return wrong


def main():
    root = pathlib.Path(sys.argv[1])
    wrong = judge(root)
    for line in wrong:
        print(f"FAILED: {line}")
    if wrong:
        return 1
    print(f"includes of {len(LEVEL)} rooms point downwards only")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Reads hooks/*/functions.inc, the tables of the vendors' functions that the library knows. Everything that needs
their rows and is no C++ asks here.

  function_table.py exports-map HOOKS OUTPUT   writes the linker's version script
  function_table.py exports HOOKS              prints the exported names
  function_table.py check HOOKS                reads every table, and prints how many rows there are

A row is one line, and each function has one under the name that its library exports:

  FRACGPU_HOOKED(family, since, name, (parameters))               intercepted; the hook is written by hand
  FRACGPU_NAMED(family, since, name, (parameters), (arguments))   intercepted to give the calls under it its name
  FRACGPU_CALLED(family, since, name, (parameters))               only called by the hooks

`family` is one of FAMILIES below. `since` is the version that brought the function, in the unit that the head of the
table states:

  10020                      this version, and none before it
  by(402)                    this version has it; whether older ones do is not known
  since(405).declared(503)   the library exports it since 4.5, the header is known to declare it since 5.3
  since(503).undeclared()    the library exports it since 5.3, and the header that is compared need not declare it
  by(23).until(24)           some release of version 24 dropped it; `by(…)` and `since(…)` go with each of these

tests/abi compares names, parameters and versions with the vendors' headers and libraries.
"""
import os
import re
import sys

KINDS = ("HOOKED", "NAMED", "CALLED")

FAMILIES = {
    "linear": "linear memory",
    "array": "arrays",
    "vmm": "virtual memory management",
    "pool": "stream-ordered pools",
    "stream": "streams and their captures",
    "graph": "graphs with allocation nodes",
    "module": "modules and libraries of code",
    "overhead": "memory that the runtime takes by itself",
    "context": "contexts",
    "ipc": "memory of other processes",
    "info": "reports of memory",
    "process": "lists of processes",
    "device": "devices and their identity",
    "entry": "entry points",
}

# What the library exports besides the hooks; shim/interpose has them.
TRAMPOLINES = ("dlopen", "dlsym", "dlvsym")

SINCE = re.compile(r"(?:(\d+)|(since|by)\((\d+)\)(?:\.(?:(declared|until)\((\d+)\)|(undeclared)\(\)))?)")


class BadTable(Exception):
    """A row that is not understood: its place, what is wrong, and what is accepted."""


class Since:
    """The `since` column; the module's head explains its forms."""

    def __init__(self, text):
        match = SINCE.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is no version; accepted: 10020, by(10020), since(405).declared(503), "
                             "since(503).undeclared(), by(23).until(24)")
        self.version = int(match[1] or match[3])
        self.exact = match[2] != "by"
        self.text = text


class Row:
    """One function of one vendor."""

    def __init__(self, kind, family, since, name, parameters, arguments, place):
        self.kind = kind
        self.family = family
        self.since = since
        self.name = name
        self.parameters = parameters
        self.arguments = arguments
        self.place = place  # file:line

    @property
    def exported(self):
        return self.kind != "CALLED"


def split(text):
    """Splits at each comma outside parentheses."""
    columns, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            raise ValueError("a parenthesis is closed that was never opened")
        if char == "," and depth == 0:
            columns.append(text[start:i].strip())
            start = i + 1
    if depth != 0:
        raise ValueError("a parenthesis is not closed; a row is one line")
    return columns + [text[start:].strip()]


def names_of(parameters):
    """The names of a parameter list in parentheses."""
    inside = parameters[1:-1].strip()
    names = []
    for parameter in split(inside) if inside else []:
        name = re.search(r"[\s*&](\w+)$", parameter)
        if name is None:
            raise ValueError(f"the parameter '{parameter}' needs a type and a name")
        names.append(name[1])
    return names


def read_row(line, place):
    match = re.fullmatch(r"FRACGPU_(\w+)\((.*)\)", line)
    if match is None or match[1] not in KINDS:
        raise ValueError("this is neither a row, a comment nor an empty line; a row is one line and starts with "
                         + ", ".join(f"FRACGPU_{kind}(" for kind in KINDS))
    kind, columns = match[1], split(match[2])
    accepted = "family, since, name, (parameters)" + (", (arguments)" if kind == "NAMED" else "")
    if len(columns) != len(accepted.split(", ")):
        raise ValueError(f"FRACGPU_{kind} has {len(columns)} columns; accepted: FRACGPU_{kind}({accepted})")
    family, since, name, *lists = columns
    if family not in FAMILIES:
        raise ValueError(f"'{family}' is no family; accepted: {', '.join(FAMILIES)}")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"'{name}' is no name of a function")
    for column in lists:
        if not re.fullmatch(r"\(.*\)", column):
            raise ValueError(f"'{column}' must be in parentheses; accepted: FRACGPU_{kind}({accepted})")
    names = names_of(lists[0])
    if kind == "NAMED" and split(lists[1][1:-1]) != (names or [""]):
        raise ValueError(f"the arguments {lists[1]} are not the parameters' names: ({', '.join(names)})")
    return Row(kind, family, Since(since), name, lists[0], lists[1] if kind == "NAMED" else None, place)


def read(path):
    """The rows of one table, in its order. Raises BadTable."""
    rows, seen = [], {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip()
            if not line or line.startswith("//"):
                continue
            place = f"{path}:{number}"
            try:
                row = read_row(line, place)
                if row.name in seen:
                    raise ValueError(f"{row.name} has a row already, at {seen[row.name]}; each function has one")
            except ValueError as wrong:
                raise BadTable(f"{place}: {wrong}") from None
            seen[row.name] = place
            rows.append(row)
    if not rows:
        raise BadTable(f"{path}: it has no rows")
    return rows


def read_all(hooks):
    """The rows of every table under the folder `hooks`, by the vendor's folder ("cuda", "smi/nvml", ...)."""
    tables, seen = {}, {}
    for folder, folders, files in os.walk(hooks):
        folders.sort()
        if "functions.inc" in files:
            tables[os.path.relpath(folder, hooks)] = read(os.path.join(folder, "functions.inc"))
    for rows in tables.values():
        for row in rows:
            if row.name in seen:
                raise BadTable(f"{row.place}: {row.name} has a row already, at {seen[row.name]}; two vendors cannot "
                               "export the same name")
            seen[row.name] = row.place
    if not tables:
        raise BadTable(f"{hooks}: no functions.inc in it")
    return tables


def exported_names(hooks):
    return sorted([*TRAMPOLINES, *(row.name for rows in read_all(hooks).values() for row in rows if row.exported)])


def main(arguments):
    if arguments[:1] == ["exports-map"] and len(arguments) == 3:
        names = exported_names(arguments[1])
        with open(arguments[2], "w", encoding="utf-8") as output:
            output.write("{ global:\n" + "".join(f"{name};\n" for name in names) + "local: *; };\n")
    elif arguments[:1] == ["exports"] and len(arguments) == 2:
        print("\n".join(exported_names(arguments[1])))
    elif arguments[:1] == ["check"] and len(arguments) == 2:
        for folder, rows in read_all(arguments[1]).items():
            print(f"{folder}: {len(rows)} functions, {sum(row.exported for row in rows)} of them intercepted")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BadTable as bad:
        sys.exit(f"FAILED: {bad}")

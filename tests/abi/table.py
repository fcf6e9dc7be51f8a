"""table.py ABI_H OUTPUT: lists what an abi.h declares, for the comparison with the vendor's header.

Types and fields bear the vendor's names; a constant bears it in the comment behind it, and one without such a
comment is our own. Whatever is not understood is an error, so that nothing escapes the comparison.
"""
import re
import sys


def fail(text):
    sys.exit(f"{sys.argv[1]}: cannot be compared with the vendor's header: {' '.join(text.split())[:80]}")


def declarations(text):
    """Splits at each semicolon that is not inside braces."""
    depth, start = 0, 0
    for i, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        fail(text[start:])


def fields(body):
    for declaration in declarations(body):
        declaration = re.sub(r"\{.*\}", " ", declaration, flags=re.S)  # an unnamed struct inside
        if ":" in declaration or "(" in declaration:
            fail(declaration)
        for declarator in declaration.split(","):
            name = re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", declarator).group(1)
            if name != "unused":  # covers what the vendor calls differently from version to version
                yield name


def table(text):
    constant = r"inline constexpr [\w ]+ (k\w+)\s*=[^;]*;[ \t]*(?://[ \t]*([A-Z][A-Z0-9]*_[A-Z0-9_]+))?"
    for ours, theirs in re.findall(constant, text):
        yield f"ABI_CONSTANT({ours}, {theirs})" if theirs else f"// our own: {ours}"
    text = re.sub(r"//[^\n]*|^\s*#[^\n]*|static_assert\([^;]*;", "", text, flags=re.M)
    text = re.search(r"namespace fracgpu::\w+ \{(.*)\}", text, flags=re.S).group(1)
    for declaration in declarations(text):
        if declaration.startswith("inline constexpr "):
            continue
        if match := re.fullmatch(r"using (\w+)\s*=.*", declaration, flags=re.S):
            yield f"ABI_TYPE({match.group(1)})"
        elif match := re.fullmatch(r"(?:struct|union) (\w+) \{(.*)\}", declaration, flags=re.S):
            yield f"ABI_TYPE({match.group(1)})"
            yield from (f"ABI_FIELD({match.group(1)}, {field})" for field in fields(match.group(2)))
        elif not re.fullmatch(r"struct \w+", declaration):
            fail(declaration)


with open(sys.argv[1], encoding="utf-8") as source:
    lines = list(table(source.read()))
with open(sys.argv[2], "w", encoding="utf-8") as output:
    output.write("// Made from abi.h by table.py.\n" + "\n".join(lines) + "\n")

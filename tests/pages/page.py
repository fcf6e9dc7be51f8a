"""A Markdown page: its links, the paths that it names, and the commands that it shows."""
import glob
import os
import re
import shlex
from typing import NamedTuple

FOLDERS = ("bench", "containers", "docs", "hooks", "include", "shim", "tests", "tools")
PROGRAMS = ("fracgpu", "ctest", "cmake", "cpack", "ninja", "python3", "docker", "kubectl", "srun", "podman")
DOCKERFILE = ("COPY", "ENV", "FROM", "RUN")
# Of these a line of code is a command, and a word of prose is not.
IN_BLOCKS = PROGRAMS + DOCKERFILE + ("apt-get", "cd", "clang-format-14", "echo", "git", "install")


class Command(NamedTuple):
    page: str  # path of the page in the tree
    line: int
    text: str
    section: str  # the heading of level 2 that it stands under

    def where(self):
        return f"{self.page}:{self.line}: {self.text}"


class Page:
    """Reads one page. Every line of a block fenced as a shell's is a command, and in one fenced as a terminal's every
    line behind a $. Of blocks without a language those lines are that begin with a program that is known here."""

    def __init__(self, root, path):
        self.root, self.path = root, path
        with open(f"{root}/{path}", encoding="utf-8") as file:
            self.lines = file.read().splitlines()
        self.prose = []  # (line number, text without code, section)
        self.code = []  # (line number, text, whether it must be a command, section)
        self.other_code = []  # (line number, text), in no shell's language
        self.spans = []  # (line number, text, section)
        self.headings = set()
        self._split()

    def _split(self):
        fence, before, section = None, "", ""
        for number, line in enumerate(self.lines, 1):
            if mark := re.match(r" {0,3}(?:```+|~~~+)\s*(\S*)", line):
                fence = None if fence is not None else mark.group(1)
            elif fence is not None:
                if fence in ("", "dockerfile", "sh", "bash", "shell") or fence == "console" and line.startswith("$ "):
                    self.code.append((number, line, fence not in ("", "dockerfile"), section))
                else:
                    self.other_code.append((number, line))
            elif line.startswith("    ") and (before.strip() == "" or before.startswith("    ")):
                self.code.append((number, line[4:], False, section))
            else:
                if heading := re.match(r"(#+)\s+(.*)", line):
                    section = heading.group(2) if len(heading.group(1)) == 2 else section
                    self.headings.add(slug(heading.group(2)))
                self.spans += [(number, span, section) for span in re.findall(r"`([^`]+)`", line)]
                self.prose.append((number, re.sub(r"`[^`]*`", "x", line), section))
            before = line

    def broken_links(self, pages):
        """Links to files, headings and definitions that are not there. `pages`: {path: Page} of the tree."""
        defined = {name.lower() for _, line, _ in self.prose for name in re.findall(r"^\[([^\]]+)\]:\s*\S+", line)}
        for number, line, _ in self.prose:
            here = f"{self.path}:{number}"
            for name in re.findall(r"\[[^\]]+\]\[([^\]]+)\]", line):
                if name.lower() not in defined:
                    yield f"{here}: [{name}] is defined nowhere"
            for target in re.findall(r"\]\(([^)\s]+)\)", line) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", line):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                path = os.path.normpath(os.path.join(os.path.dirname(self.path), file)) if file else self.path
                if not os.path.exists(f"{self.root}/{path}"):
                    yield f"{here}: the link {target} leads nowhere"
                elif anchor and path in pages and anchor not in pages[path].headings:
                    yield f"{here}: {path} has no heading #{anchor}"

    def missing_paths(self):
        """Paths of the tree that are named, with * and {a,b} as in a shell, and match nothing."""
        folders = "|".join(FOLDERS)
        texts = [each[:2] for each in self.spans] + [each[:2] for each in self.code] + self.other_code
        for number, text in texts:
            for found in re.finditer(rf"(?<![\w./<>-])(?:{folders})/[\w./*{{}},+-]*", text):
                named = found.group().rstrip(".,")
                for path in expanded(named):
                    if not glob.glob(f"{self.root}/{path}"):
                        yield f"{self.path}:{number}: there is no {path}"

    def commands(self):
        joined = ""
        for number, line, must_be, section in self.code:
            joined += re.sub(r"^\$ ", "", line)
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            text, joined = re.sub(r"(^|\s+)#( .*|$)", "", joined).strip(), ""
            if is_command(self.root, text, IN_BLOCKS) or must_be and text:
                yield Command(self.path, number, text, section)
        for number, span, section in self.spans:
            text = span.replace("\\|", "|")
            if len(words(text)) > 1 and is_command(self.root, text, PROGRAMS):
                yield Command(self.path, number, text, section)


def pages_of(root):
    """{path: Page} of the tree, without what was built."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each not in ("build", "node_modules") and not each.startswith(".")]
        for file in files:
            if file.endswith(".md"):
                path = os.path.relpath(f"{folder}/{file}", root)
                found[path] = Page(root, path)
    return dict(sorted(found.items()))


def slug(heading):
    """As GitHub names a heading's anchor."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def expanded(text):
    """The texts that a shell makes of {a,b}."""
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    return [each for choice in found.group(1).split(",")
            for each in expanded(text[:found.start()] + choice + text[found.end():])]


def words(text):
    """As a shell splits them; an unfinished quote is a part of its word."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def without_variables(split):
    """({variable: value}, the other words)"""
    variables = {}
    for index, word in enumerate(split):
        name = re.match(r"([A-Z_]+)=", word)
        if not name:
            return variables, split[index:]
        variables[name.group(1)] = word[name.end():]
    return variables, []


def is_command(root, text, programs):
    variables, rest = without_variables(words(text))
    if not rest:
        return False
    first = rest[0]
    if first == "fracgpu" and len(rest) > 1:
        return re.match(r"[a-z-]", rest[1]) is not None  # else the first line of a screen
    if first in programs or (first == "…" and variables):
        return True
    if first.startswith("build/"):
        return "*" not in first and len(rest) > 1
    # A script of the tree; files that are not run are only named.
    return (first.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and first.endswith((".sh", ".py"))
            and (programs is IN_BLOCKS or len(rest) > 1) and "*" not in first and not os.path.isdir(f"{root}/{first}"))

"""Every test in the tree is run by ctest: pytest collects each Python test from a file that ctest names, and each C++ file
with tests is in a CMakeLists.txt."""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def named_tests(node, scope=""):
    """Full names of the tests that a module or class defines, also of those that pytest cannot see because they are nested,
    redefined or outside a test class."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name.startswith("test_"):
            yield f"{scope}::{each.name}"
        if isinstance(each, ast.ClassDef):
            yield from named_tests(each, f"{scope}::{each.name}")
        else:
            yield from named_tests(each, scope)


def never_collected(root, collected):
    """Python tests below `root` that are not in `collected`, and those that another one of the same name replaces."""
    for file in sorted(root.rglob("*.py")):
        names = [f"{file.relative_to(root)}{name}" for name in named_tests(ast.parse(file.read_text(encoding="utf-8")))]
        yield from (name for name in names if name not in collected or names.count(name) > 1)


def never_compiled(root):
    """C++ files with tests that no CMakeLists.txt of their folder or of one above it names."""
    for file in sorted(root.rglob("*.cc")):
        has_tests = re.search(r"^(TYPED_)?TEST(_F|_P)?\(", file.read_text(encoding="utf-8"), re.M)
        if not has_tests and not file.name.endswith("_test.cc"):
            continue
        lists = [folder / "CMakeLists.txt" for folder in file.parents if folder.is_relative_to(root)]
        text = "".join(re.sub("#.*", "", each.read_text(encoding="utf-8")) for each in lists if each.exists())
        if not re.search(rf"(?<![\w.-]){re.escape(file.name)}\b", text):
            yield str(file.relative_to(root))


def entries(build):
    """What ctest gives to pytest: paths, by folder. An entry that selects tests by -k does not count."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    folders = {}
    for command in (test.get("command", []) for test in json.loads(shown.stdout)["tests"]):
        if "pytest" in command and "-k" not in command:
            paths = [word for word in command[command.index("pytest") + 1:] if not word.startswith("-")]
            folders.setdefault(os.path.dirname(paths[0]), []).extend(paths)
    return folders


def test_every_python_test_is_collected(build):
    root, collected, skipped = SOURCE / "tests", set(), set()
    folders = entries(build)
    for paths in folders.values():
        collect = [sys.executable, "-B", "-m", "pytest", "--collect-only", "-q", f"--build={build}"]
        done = subprocess.run([*collect, *sorted(set(paths))], capture_output=True, text=True, check=False, cwd=root)
        assert done.returncode in (0, 77), done.stdout + done.stderr
        collected |= set(re.findall(r"^([\w/]+\.py(?:::\w+)+)", done.stdout, re.M))
        skipped |= set(re.findall(r"^SKIPPED \[\d+\] ([\w/]+\.py)", done.stdout, re.M))  # as a whole, for want of a package
    # A folder whose CMakeLists.txt returned early, for want of headers for example, has no entry here.
    left_out = [folder for folder in root.rglob("*") if str(folder) not in folders and (folder / "CMakeLists.txt").exists()
                and "add_pytest(" in (folder / "CMakeLists.txt").read_text(encoding="utf-8")]
    print(f"{len(collected)} tests; skipped: {skipped}; not configured here: {[str(folder) for folder in left_out]}")
    wrong = [name for name in never_collected(root, collected)
             if (file := name.split("::")[0]) not in skipped and root / os.path.dirname(file) not in left_out]
    assert not wrong, f"ctest never runs these: {wrong}"


def test_every_cc_test_is_compiled():
    assert not list(never_compiled(SOURCE / "tests"))


@pytest.mark.parametrize("text, collected, wrong", [
    ("def test_a(): pass", "::test_a", ""),
    ("def test_a(): pass\ndef test_b(): pass", "::test_a", "::test_b"),
    ("def test_a(): pass\ndef test_a(): pass", "::test_a", "::test_a ::test_a"),
    ("def make():\n def test_a(): pass", "::make", "::test_a"),
    ("class Some:\n def test_a(self): pass", "", "::Some::test_a"),
    ("class Case(unittest.TestCase):\n def test_a(self): pass", "::Case::test_a", "")])
def test_what_is_never_collected_is_found(tmp_path, text, collected, wrong):
    (tmp_path / "x_test.py").write_text(text)
    assert list(never_collected(tmp_path, {f"x_test.py{collected}"})) == [f"x_test.py{each}" for each in wrong.split()]


@pytest.mark.parametrize("text, found", [
    ("add_executable(x x_test.cc)", False), ("add_executable(x\n  y.cc x_test.cc)", False), ("# x_test.cc", True),
    ("add_executable(x xx_test.cc)", True), ("", True)])
def test_what_is_never_compiled_is_found(tmp_path, text, found):
    (tmp_path / "CMakeLists.txt").write_text(text)
    (tmp_path / "x_test.cc").write_text("")
    assert list(never_compiled(tmp_path)) == ["x_test.cc"] * found

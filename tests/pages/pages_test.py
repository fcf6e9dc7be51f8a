"""Every page's links and paths lead somewhere, and every command that a page shows works."""
import os
import re
import subprocess

import pytest

from follow import Follower
from machine import COMMAND
from page import FOLDERS, Page, pages_of

SOURCE = os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../..")
PROFILE = "a100-40gb+a100-40gb+h100-80gb-mig-empty"
# Each is one fault, which must be found and be the only one.
FAULTS = [
    ("a [link](gone.md)", "leads nowhere"),
    ("a [link](#gone)", "has no heading"),
    ("a [link][gone]", "defined nowhere"),
    ("a [link][ref]\n\n[ref]: gone.md", "leads nowhere"),
    ("see `shim/gone.cc`", "there is no shim/gone.cc"),
    ("see `tests/{unit,gone}`", "there is no tests/gone"),
    ("    shim/gone/  a room", "there is no shim/gone/"),
    ("`fracgpu gone`", "no subcommand"),
    ("    fracgpu status --gone", "no option --gone"),
    ("    fracgpu run --memory 8Gone -- true", "exit status 125"),
    ("    fracgpu limit TENANT 12", "exit status"),
    ("```sh\nfracgpu cdi generate --gone\n```", "no option --gone"),
    ("    ctest --test-dir build/release -L gone", "no test matches"),
    ("    ctest --gone", "not known here"),
    ("    FRACGPU_CAMPAIGN=1 build/release/tests/fault/ledger_steps --gtest_filter='Gone*'", "no test matches"),
    ("    build/release/tests/fault/gone --gtest_filter='*'", "is not built"),
    ("    build/release/bench/contention --gone 1", "exit status 2"),
    ("    python3 -m pytest tests/tools/run_test.py -k gone", "no test matches"),
    ("    cmake --preset gone", "no preset gone"),
    ("    cmake --build --preset release --target gone", "no target gone"),
    ("    tests/run.sh --gone", "not known here"),
    ("    containers/demo.sh --gone", "no option"),
    ("    containers/packages.sh gone", "not understood"),
    ("    python3 bench/run.py --gone", "no option"),
    ("    docker run gone", "nobody follows docker"),
    ("```sh\ngone --help\n```", "nobody follows gone"),
    ("    ENV LD_PRELOAD=libgone.so FRACGPU_MEMORY_LIMIT=8GiB", "total="),
]


@pytest.fixture
def follower(machine):
    follower = Follower(SOURCE, machine(PROFILE))
    yield follower
    follower.close()


def faults_of(page, pages, follower):
    yield from page.broken_links(pages)
    yield from page.missing_paths()
    for command in page.commands():
        fault = follower.fault(command)
        if fault:
            yield fault


def test_every_page_is_right(follower):
    pages = pages_of(SOURCE)
    faults = [fault for page in pages.values() for fault in faults_of(page, pages, follower)]
    assert not faults, "\n".join(["", *faults])
    assert follower.run_count > 20, f"only {follower.run_count} commands were run"
    print(f"{len(pages)} pages; {follower.run_count} commands run; not run:")
    for text, why in sorted(set(follower.not_run)):
        print(f"  {text}: {why}")


def test_every_fault_is_found(follower, tmp_path):
    for entry in os.scandir(SOURCE):
        if entry.name in FOLDERS:
            os.symlink(entry.path, tmp_path / entry.name)
    for text, expected in FAULTS:
        (tmp_path / "PAGE.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")
        page = Page(str(tmp_path), "PAGE.md")
        faults = list(faults_of(page, {page.path: page}, follower))
        assert len(faults) == 1 and expected in faults[0], f"{text!r} should be {expected!r}: {faults}"


def test_each_folder_has_its_page():
    missing = [folder for folder in FOLDERS if not os.path.exists(f"{SOURCE}/{folder}/README.md")]
    assert not missing, missing


def test_readme_names_every_command_and_variable():
    with open(f"{SOURCE}/README.md", encoding="utf-8") as file:
        readme = file.read()
    told = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  (\w+)  ", told.split("Subcommands:")[1].split("\n\n")[0], re.M)
    missing = [name for name in commands if f"| `fracgpu {name}" not in readme]
    # What the sources name as a text of its own is a variable of the environment.
    for folder in ("shim", "hooks", "tools"):
        for where, _, files in os.walk(f"{SOURCE}/{folder}"):
            for name in files:
                if name.endswith((".cc", ".h")):
                    with open(f"{where}/{name}", encoding="utf-8") as file:
                        missing += [variable for variable in re.findall(r'"(FRACGPU_[A-Z_]+)"', file.read())
                                    if f"| `{variable}` |" not in readme]
    assert not missing, sorted(set(missing))

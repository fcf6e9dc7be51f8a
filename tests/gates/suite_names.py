#!/usr/bin/env python3
"""suite_names.py SOURCE: a name that ctest prints leads to one place.

A suite of GoogleTest belongs to one folder of tests/, a suite of the simulated node begins with Sim, no other does, and
files with tests are called *_test.cc.
"""
import collections
import pathlib
import re
import sys

SUITE = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),", re.MULTILINE)
SIMULATED = "tests/sim/test"


def judge(root):
    wrong = []
    places = collections.defaultdict(set)
    for file in sorted((root / "tests").rglob("*.cc")):
        folder = file.parent.relative_to(root).as_posix()
        suites = set(SUITE.findall(file.read_text(encoding="utf-8")))
        if suites and not file.name.endswith("_test.cc"):
            wrong.append(f"{folder}/{file.name}: has tests, and is not called *_test.cc")
        for suite in suites:
            places[suite].add(folder)
            if suite.startswith("Sim") != (folder == SIMULATED):
                wrong.append(f"{folder}/{file.name}: {suite}: suites of the simulated node begin with Sim, and no others")
    wrong += [f"{suite}: in {' and in '.join(sorted(folders))}" for suite, folders in sorted(places.items())
              if len(folders) > 1]
    return wrong, len(places)


def main():
    wrong, count = judge(pathlib.Path(sys.argv[1]))
    for line in wrong:
        print(f"FAILED: {line}")
    if not count:
        print("FAILED: no suites found")
    if wrong or not count:
        return 1
    print(f"{count} suites, each in one place")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What the build costs: CPU seconds for each source file that goes into the targets, and the slowest ones.

Each file is compiled once more, alone and without a compiler cache, into a file that is thrown away. CPU seconds depend on
the machine, though little on what else it does; compare two trees on the same one.
"""
import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile

# What containers/demo.sh builds.
DEMO = "fracgpu_shim fracgpu_command cuda_client hip_program sim_cuda sim_nvml sim_hsa sim_kfd simnode".split()


def compilations(build, targets):
    """The compiler's commands, without launchers, as (source, arguments)."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "commands", *targets], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        if " -c " not in line or " -o " not in line:
            continue
        words = shlex.split(line)
        if "&&" in words:
            continue
        while os.path.basename(words[0]) in ("ccache", "sccache", "env"):
            words = words[1:]
        yield words[words.index("-c") + 1], words


def cpu_seconds(words, build, output):
    words = list(words)
    words[words.index("-o") + 1] = output
    if "-MF" in words:
        words[words.index("-MF") + 1] = output + ".d"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=build, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release", help="a configured and built tree (default: build/release)")
    parser.add_argument("--slowest", type=int, default=10, help="how many files to name (default: 10)")
    parser.add_argument("targets", nargs="*", help="of CMake; default: what containers/demo.sh builds. `all` is everything")
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(arguments.build, "build.ninja")):
        parser.error(f"{arguments.build} is no configured build folder; cmake --preset release makes one")
    root = os.path.abspath(".")
    costs = []
    with tempfile.TemporaryDirectory() as scratch:
        for source, words in compilations(arguments.build, arguments.targets or DEMO):
            costs.append((cpu_seconds(words, arguments.build, os.path.join(scratch, "object")), source))
    costs.sort(reverse=True)
    print(f"{len(costs)} files, {sum(cost for cost, _ in costs):.0f} CPU seconds")
    for cost, source in costs[: arguments.slowest]:
        print(f"{cost:6.1f}  {os.path.relpath(source, root)}")


if __name__ == "__main__":
    main()

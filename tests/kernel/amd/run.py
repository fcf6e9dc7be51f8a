"""run.py BUILD [--stack 6.4.3] [--card MIB] [--cap CAP] [--library FILE] [--trace] PROGRAM ARGS …

Runs one program on AMD's own runtimes over the simulated kernel driver, and says what KFD counted. PROGRAM is one of
tests/clients (hip_program, hsa_program, hip_client) or a path. Without --cap nothing of ours is preloaded.
"""
import argparse
import sys
import unittest

import rig


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--stack", default="5.2.3", choices=rig.STACKS)
    parser.add_argument("--card", type=int, default=8192)
    parser.add_argument("--cap")
    parser.add_argument("--library", default=rig.LIBRARY)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def run(asked):
    with rig.Machine(asked.card) as machine:
        outcome = machine.run(rig.STACKS[asked.stack], asked.program, asked.arguments, cap=asked.cap, library=asked.library,
                              extra={"SIMULATED_KFD_TRACE": "1"} if asked.trace else None)
        print("\n".join(outcome.lines))
        print(outcome.errors, end="", file=sys.stderr)
        counts = machine.counts()
        card = counts["cards"][0]
        print(f"KFD: peak {card['peak']} ({card['peak'] / rig.MIB:.1f} MiB), now {card['used']},"
              f" {counts['unknown_ioctls']} unknown ioctls")
        return outcome.status


if __name__ == "__main__":
    try:
        sys.exit(run(options()))
    except unittest.SkipTest as why:
        sys.exit(f"skipped: {why}")

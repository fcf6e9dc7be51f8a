"""start_cost.py BUILD [ROUNDS]: what the library adds to the start of /bin/true in a container of each Debian.

Prints; nothing is judged by time. Containers with and without it take turns, and medians are compared.
"""
import statistics
import sys
import unittest

from rig import PODMAN, RUN, SOURCE, STORAGE, capped, debian, needs, output


def measure(image, program):
    """Microseconds from start to end, the same undisturbed, and of the processor."""
    out = output([*PODMAN, "run", "--rm", *RUN, "-v", f"{program}:/start_cost:ro", image, "/start_cost"])
    return [int(each) / 1000 for each in out.split()]


try:
    needs()
except unittest.SkipTest as why:
    sys.exit(f"skipped: {why}")
START_COST = f"{STORAGE}/start_cost"
output(["cc", "-O2", "-static", "-o", START_COST, f"{SOURCE}/tests/containers/start_cost.c"])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
for release in (11, 12, 13):
    images = debian(release), capped(debian(release), 8)
    pairs = [[measure(image, START_COST) for image in images] for _ in range(ROUNDS)]
    for what, name in enumerate(("from start to end", "undisturbed", "of the processor")):
        without, with_it = (statistics.median(pair[side][what] for pair in pairs) for side in (0, 1))
        added = statistics.median(pair[1][what] - pair[0][what] for pair in pairs)
        print(f"Debian {release}, {name}: {without:.0f} µs without, {with_it:.0f} µs with it, {added:.0f} µs added")

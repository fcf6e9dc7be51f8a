"""Random calls of all families at a full cap, on NVIDIA's own driver.

RM's own count never passes the cap by a byte, also beside processes that are killed. When all stand still, the library
reports no less in use than RM counts, and hardly more. FRACGPU_SEED chooses the calls; FRACGPU_CAMPAIGN makes more of them, with another seed each time.
"""
import os
import sys
import time
import unittest

import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
SEED = int(os.environ.get("FRACGPU_SEED", time.time_ns() % 1000000 if "FRACGPU_CAMPAIGN" in os.environ else 7777))
CALLS = 20000 if "FRACGPU_CAMPAIGN" in os.environ else 1500
MIB = rig.MIB
MOST_TOO_MUCH = 64 * MIB  # small arrays are charged a chunk each until a reading, 32 MiB a process


class Random(unittest.TestCase):
    def judge(self, processes, cap_mib, victims=0):
        print(f"FRACGPU_SEED={SEED}", file=sys.stderr)
        cap = f"{cap_mib}MiB"
        with rig.Gpu(BUILD) as gpu:
            halves = [[f"random:{SEED + i}:{CALLS}", "wait", f"random:{SEED - i - 1}:{CALLS}"] for i in range(processes)]
            board = {}
            if BUILD.release != "470":  # whose imports of pools fail, or allocations after them
                board = {"RANDOM_BOARD": f"{gpu.folder}/board"}
                os.mkdir(board["RANDOM_BOARD"])
            children = [gpu.start("init", "wait", *half, "info", "wait", "info", "wait", cap=cap, **board) for half in halves]
            doomed = [gpu.start("init", "wait", f"random:{SEED + 100 + i}:1000000", cap=cap, **board) for i in range(victims)]
            for child in children + doomed:
                child.until("ready")
            for child in children + doomed:
                child.go_on()
            answers = [child.until("random") for child in children]
            for child in children:
                child.until("ready")
            for child in doomed:
                child.end()
            for child in children:
                child.go_on()
            last = [child.until("random") for child in children]
            answers += last
            imported = sum(answer["imported"] for answer in last)
            for child in children:
                child.until("ready")
            # All stand still. Each looks once more, one after another.
            for child in children:
                child.go_on()
                info = child.until("info")
                child.until("ready")
            accounting = gpu.accounting()
            used = info["total"] - info["free"]
            print(f"{processes} processes, {answers}; RM {accounting['peak'] / MIB:.3f} of {cap_mib} MiB at most, at rest "
                  f"{accounting['used'] / MIB:.3f}, by the library {used / MIB:.3f}, imported {imported / MIB:.0f}", file=sys.stderr)
            self.assertEqual(gpu.unknown(), "")
            self.assertLessEqual(accounting["peak"], cap_mib * MIB, "RM's count passed the cap")
            self.assertGreater(sum(answer["refused"] for answer in answers), 0, "the cap was never full: nothing was tested")
            self.assertGreaterEqual(used, accounting["used"], "the library counts less than RM")
            # A reading cannot tell the freed exports that a process has imported from its own overhead, and what an
            # exported pool has released stays charged while processes have imported as much of pools.
            self.assertLessEqual(used, accounting["used"] + imported + MOST_TOO_MUCH, "the library counts more than RM")

    def test_one_process(self):
        self.judge(1, 900)

    def test_two_processes(self):
        self.judge(2, 1700)

    def test_beside_two_that_are_killed(self):
        self.judge(2, 2400, victims=2)  # four contexts at once need room for four estimates of 576 MiB

    def test_eight_processes(self):
        self.judge(8, 4800)  # as of eight

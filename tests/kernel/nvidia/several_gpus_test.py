"""Several GPUs in one process on NVIDIA's own driver: each has a cap of its own, and RM's own count of none passes it.

At least as much is granted on each as on cards that have no more than the cap. No GPU reaches another one's memory.
"""
import unittest

import fill_test
import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
MIB = rig.MIB
CAP_MIB, CARD_MIB = rig.CAP_MIB, rig.CARD_MIB

# Ways of fill_test.py.
WAYS = ["pieces of 1 MiB", "a mix", "async", "explicit pools", "VMM", "arrays of 256 KiB", "graph nodes", "kernel graphs",
        "modules", "streams at a full cap", "a stack limit", "local memory at a full cap"]
FILLS = {f"{way} on each": ["gpu:1", *fill_test.FILLS[way], "gpu:0", *fill_test.FILLS[way], "gpu:1", "fill:1024"]
         for way in WAYS}
FILLS |= {
    "VMM without a context": ["location:1", "physical:2048", "gpu:0", "fill:1024"],
    "VMM beside a context": ["gpu:1", "gpu:0", "location:1", "physical:2048", "gpu:0", "fill:1024"],
    "pools beside a context": ["gpu:1", "gpu:0", "location:1", "pools:2048", "gpu:0", "fill:1024", "gpu:1", "fill:1024"],
}


class SeveralGpus(unittest.TestCase):
    def compare(self, run, least_peaks=(CAP_MIB - 64, CAP_MIB - 64)):
        """`run(gpus, cap)` returns the answers that count. `least_peaks`: MiB that the GPUs have come to under the cap."""
        answers = []
        for mib, cap in ((CAP_MIB, None), (CARD_MIB, f"{CAP_MIB}MiB")):
            with rig.Gpu(BUILD, mib, gpus=2) as gpus:
                answers.append(run(gpus, cap))
                peaks = [gpus.accounting(number)["peak"] for number in range(2)]
                self.assertEqual(gpus.unknown(), "")
        for number, least in enumerate(least_peaks):
            self.assertLessEqual(peaks[number], CAP_MIB * MIB, f"RM's count of GPU {number}")
            self.assertGreaterEqual(peaks[number], least * MIB, f"GPU {number} was not filled")
        self.assertEqual(len(answers[1]), len(answers[0]), answers)
        for there, here in zip(*answers):
            self.assertGreaterEqual(rig.granted(here), rig.granted(there), f"{here}: less than from cards of that size")

    def test_opencl(self):
        self.needs_graphics(BUILD.opencl)
        self.compare(lambda gpus, cap: gpus.opencl("loader", "gpu:1", "buffers:1024", "gpu:0", "buffers:1024", cap=cap))

    def test_vulkan(self):
        self.needs_graphics(BUILD.vulkan)
        self.compare(lambda gpus, cap: gpus.vulkan("gpu_number:1", "device", "memory:1024", cap=cap), (0, CAP_MIB - 64))

    def needs_graphics(self, part):
        if BUILD.release == "470":
            self.skipTest("for releases 535 and 550")
        if missing := BUILD.missing_for(part):
            self.skipTest(f"{missing} is not there")

    def test_each_has_its_own_cap(self):
        with rig.Gpu(BUILD, CARD_MIB, gpus=2) as gpus:
            caps = "0=2GiB,1=1GiB"
            totals = [answer["total"] for answer in gpus.client("init", "info", "gpu:1", "info", cap=caps) if "total" in answer]
            self.assertEqual(totals, [2048 * MIB, 1024 * MIB])
            gpus.client("init", "gpu:1", "fill:1024", "gpu:0", "fill:1024", cap=caps)
            self.assertEqual([gpus.accounting(number)["peak"] for number in range(2)], [2048 * MIB, 1024 * MIB])
            shown = gpus.run([BUILD.smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits"], cap=caps)
            self.assertEqual(shown.stdout.split(), ["2048", "1024"], shown)

    def test_a_hidden_gpu_changes_no_number_of_a_cap(self):
        with rig.Gpu(BUILD, CARD_MIB, gpus=2) as gpus:
            gpus.client("init", "fill:1024", cap="0=1GiB,1=2GiB", CUDA_VISIBLE_DEVICES="1")
            self.assertEqual([gpus.accounting(number)["peak"] for number in range(2)], [0, 2048 * MIB])


    def test_random_calls(self):
        # Two processes fill both GPUs by turns. In the end all stand still, and the library counts what RM counts on each.
        with rig.Gpu(BUILD, CARD_MIB, gpus=2) as gpus:
            words = [["gpu:1", f"random:{seed}:600", "gpu:0", f"random:{seed + 1}:600", "gpu:1", f"random:{seed + 2}:600"]
                     for seed in (10, 20)]
            children = [gpus.start("init", "gpu:1", "wait", *half, "wait", "info", "gpu:0", "info", "wait", cap="1700MiB")
                        for half in words]
            for child in children:
                child.until("ready")
            for child in children:
                child.go_on()
            refused = sum(child.until("random")["refused"] for child in children for _ in range(3))
            self.assertGreater(refused, 0, "no cap was full")
            for child in children:
                child.until("ready")
            for child in children:
                child.go_on()
                told = [child.until("info") for _ in range(2)]
                child.until("ready")
            for number, info in ((1, told[0]), (0, told[1])):
                accounting = gpus.accounting(number)
                self.assertLessEqual(accounting["peak"], 1700 * MIB, f"RM's count of GPU {number}")
                self.assertEqual(info["total"] - info["free"], accounting["used"], f"the library's count of {number}")
            self.assertEqual(gpus.unknown(), "")


def add(name, commands):
    def judge(self):
        self.compare(lambda gpus, cap: gpus.client("init", *commands, cap=cap))
    setattr(SeveralGpus, "test_" + name.replace(" ", "_"), judge)


for way, words in FILLS.items():
    add(way, words)

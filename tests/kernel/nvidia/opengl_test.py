"""NVIDIA's own OpenGL, by EGL, under a cap as on a card of that size: RM's peak and all that the program sees are equal."""
import unittest

import rig

BUILD = rig.Build()
MIB = rig.MIB
SCENES = {
    "nothing": ["info"],
    "buffers that fit": ["buffers:10:20", "info"],
    "more buffers than fit": ["buffers:50:100", "info", "buffers:1:50"],
    "small buffers": ["buffers:1:1500", "info"],
    "more textures than fit": ["textures:700", "info"],
}


def setUpModule():
    BUILD.needs()
    if missing := BUILD.missing_for(BUILD.vulkan):
        raise unittest.SkipTest(f"{missing} is not there")


class AsOnACard(unittest.TestCase):
    """With a method for each of SCENES."""

    def compare(self, commands, mib):
        def end(card_mib, cap):
            with rig.Gpu(BUILD, card_mib) as gpu:
                answers = gpu.opengl(*commands, cap=cap)
                self.assertEqual(gpu.unknown(), "")
                return answers, gpu.accounting()["peak"]
        (bare, bare_peak), (capped, peak) = end(mib, None), end(4 * mib, f"{mib}MiB")
        self.assertLessEqual(peak, mib * MIB, "RM's count")
        self.assertEqual(capped, bare)
        self.assertEqual(peak, bare_peak)

    def test_two_programs(self):
        """Each gets what the other has left, and both go on."""
        with rig.Gpu(BUILD) as gpu:
            first = gpu.start_opengl("buffers:50:100", "wait", cap="1GiB")
            self.assertEqual(first.until("buffers")["rc"], 0)
            first.until("ready")
            second = gpu.opengl("buffers:50:100", "info", cap="1GiB")
            self.assertEqual(second[0]["rc"], 0)
            self.assertEqual(second[1]["total"], 1024)
            self.assertLessEqual(gpu.accounting()["peak"], 1024 * MIB)

    def test_what_a_killed_program_had_is_free(self):
        with rig.Gpu(BUILD) as gpu:
            alone = gpu.opengl("buffers:50:100", cap="1GiB")
            peak = gpu.accounting()["peak"]
            first = gpu.start_opengl("buffers:50:100", "wait", cap="1GiB")
            first.until("ready")
            first.end()
            gpu.reset()
            self.assertEqual(gpu.opengl("buffers:50:100", cap="1GiB"), alone)
            self.assertEqual(gpu.accounting()["peak"], peak)


def add(name, commands):
    for mib in (128, 1024):
        def judge(self, mib=mib):
            self.compare(commands, mib)
        setattr(AsOnACard, f"test_{name.replace(' ', '_')}_with_{mib}_MiB", judge)


for scene, its_commands in SCENES.items():
    add(scene, its_commands)

"""NVIDIA's own OpenCL under a cap of 2 GiB, by a loader and without one.

Two oracles: RM's own count never passes the cap by a byte, and at least as much is granted as the driver alone grants on
a card that has no more than the cap.
"""
import os
import unittest

import rig

BUILD = rig.Build()
MIB = rig.MIB
CAP_MIB, CARD_MIB = rig.CAP_MIB, rig.CARD_MIB

# The commands of opencl_client.py by which one process fills.
FILLS = {
    "buffers of 1 MiB": ["context", "buffers:1024"],
    "buffers of 3 MiB": ["context", "buffers:3072"],
    "buffers of 100 KiB": ["context", "take:1433600", "buffers:100"],
    "buffers of 1025 KiB": ["context", "buffers:1025"],
    "a mix": ["context", "buffers:100:1025:5000:4:1024:300"],
    "random sizes": ["context", "random:4:3000:1"],
    "small random sizes": ["context", "take:1024000", "random:4:1024:2"],
    "what is released": ["context", "take:1024000", "random:4:2048:3", "release:2", "buffers:300"],
    "cycles of half a card": ["context", "cycle:1048576:20"],
    "cycles of 1 MiB": ["context", "cycle:1024:1000", "take:1024000", "buffers:1024"],
    "host pointers": ["context", "take:1433600", "host:use:3072"],
    "allocated host pointers": ["context", "host:alloc:3072"],
    "copied host pointers": ["context", "take:1433600", "host:copy:3072"],
    "mapped buffers": ["context", "mapped:3072"],
    "buffers of the extension": ["context", "nv:3072"],
    "buffers with properties": ["context", "properties:3072"],
    "a part of a buffer": ["context", "sub:1048576", "buffers:1024"],
    "shared virtual memory": ["context", "svm:3072"],
    "small shared virtual memory": ["context", "take:1024000", "svm:100"],
    "freed shared virtual memory": ["context", "svm_cycle:512000:0", "svm_cycle:512000:1", "buffers:1024"],
    "images": ["context", "images:1000:1000"],
    "small images": ["context", "take:1433600", "images:100:100:0:4"],
    "flat images": ["context", "images:333:777"],
    "deep images": ["context", "images:100:100:100"],
    "contexts": ["contexts"],
    "a context by type": ["context_from_type", "context", "buffers:1024"],
    "a context that went": ["context", "buffers:1024", "release", "release_context", "context", "buffers:1024"],
    "what is used long after it was created": ["context", "unused:3000:1024:3072:100:5000:700", "shuffle", "buffers:100"],
    "private memory": ["context", "kernel:2048", "launch", "buffers:1024"],
    "private memory that does not fit": ["context", "kernel:16384", "launch", "buffers:3072"],
    "queues": ["context", "queues:300", "buffers:1024"],
    "queues at a full cap": ["context", "buffers:1024", "queues:100"],
}


def setUpModule():
    BUILD.needs()
    if missing := BUILD.missing_for(BUILD.opencl):
        raise unittest.SkipTest(f"{missing} is not there")


class Fill(rig.Comparison):
    """With a method for each of FILLS, by a loader; and for what is more than that."""

    build = BUILD

    def test_without_a_loader(self):
        self.compare(lambda gpu, cap: gpu.opencl("icd", "context", "buffers:3072", cap=cap))
        self.compare(lambda gpu, cap: gpu.opencl("icd", "context", "nv:3072", cap=cap))

    def test_a_race(self):
        self.compare_race(rig.Gpu.start_opencl, "context", "buffers:1024")

    def test_beside_cuda(self):
        self.compare_beside(rig.Gpu.start, ["init", "alloc:512000"],
                            lambda gpu, cap: gpu.opencl("loader", "context", "buffers:1024", cap=cap))


class Churn(unittest.TestCase):
    """Random calls of several processes at a full cap; then all is given back, and another one gets it."""

    def test_processes(self):
        for seed in (0, 3):
            with self.subTest(seed), rig.Gpu(BUILD, CARD_MIB) as gpu:
                children = [gpu.start_opencl("context", "wait", f"churn:{seed * 3 + i}:600", "wait", "release", "wait",
                                             cap=f"{CAP_MIB}MiB") for i in range(3)]
                for child in children:
                    child.until("ready")
                for child in children:
                    child.go_on()
                churned = [child.until("churn") for child in children]
                self.assertEqual([answer["rc"] for answer in churned], [0, 0, 0])
                self.assertGreater(sum(answer["refused"] for answer in churned), 0, "the cap was never full")
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
                for child in children:
                    child.until("ready")
                    child.go_on()
                for child in children:
                    child.until("ready")
                fill = gpu.opencl("loader", "context", "buffers:1024", cap=f"{CAP_MIB}MiB")[-1]
                self.assertEqual(fill["granted"] / MIB, CAP_MIB - 4 * 382)
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)


class Shown(unittest.TestCase):
    def test_the_device_has_the_cap(self):
        for way in ("loader", "icd"):
            with rig.Gpu(BUILD) as gpu:
                info = gpu.opencl(way, "info", cap=f"{CAP_MIB}MiB")[-1]
                self.assertEqual((info["total"] / MIB, info["most"] / MIB), (CAP_MIB, CAP_MIB / 4))

    def test_clinfo(self):
        with rig.Gpu(BUILD) as gpu:
            shown = gpu.run([f"{BUILD.opencl}/bin/clinfo"], f"{CAP_MIB}MiB", **gpu.opencl_environment())
            self.assertRegex(shown.stdout, r"Global memory size +2147483648 \(2GiB\)")
            self.assertRegex(shown.stdout, r"Max memory allocation +536870912 \(512MiB\)")

    def test_smi_shows_what_is_used(self):
        with rig.Gpu(BUILD) as gpu:
            child = gpu.start_opencl("context", "take:102400", "unused:100:1024", "wait", cap=f"{CAP_MIB}MiB")
            child.until("ready")
            query = gpu.run([BUILD.smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader"], f"{CAP_MIB}MiB")
            self.assertEqual(query.stdout.strip(), "2048 MiB, 482 MiB", query.stderr)


class Others(unittest.TestCase):
    """An implementation that takes no device's memory runs as it does without the library."""

    def test_pocl(self):
        if not os.path.exists(BUILD.pocl):
            self.skipTest(f"{BUILD.pocl} is not there")
        commands = ("info", "context", "some:65536:48", "release", "release_context", "table")
        with rig.Gpu(BUILD) as gpu:
            bare = gpu.opencl("other", *commands)
            capped = gpu.opencl("other", *commands, cap=f"{CAP_MIB}MiB")
        self.assertEqual(bare, capped)


rig.add_fills(Fill, FILLS, lambda gpu, commands, cap: gpu.opencl("loader", *commands, cap=cap),
              ("buffers of 1 MiB", "a mix", "small random sizes", "images", "flat images", "small shared virtual memory", "private memory",
               "queues at a full cap"))

"""Figures of NVIDIA's own driver that the library relies on, by RM's count, without the library.

The library's figures are read from its sources. Where a driver is not watched at its ioctls, they are what it charges.
"""
import os
import re
import unittest

import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
MIB, CHUNK, UNIT = rig.MIB, 2 * rig.MIB, 512
SOURCES = os.path.join(rig.HERE, "../../..")


def constants(path, pattern):
    """The numbers that the pattern has in that source, which must have it once."""
    with open(f"{SOURCES}/{path}", encoding="utf-8") as file:
        found = re.findall(pattern, file.read())
    if len(found) != 1:
        raise AssertionError(f"{path} has {len(found)} matches for {pattern}")
    return [int(number) for number in (found[0] if isinstance(found[0], tuple) else found)]


def pages_of_stream(number):
    """What hooks/cuda/context_size.h computes."""
    first, step, further_step = constants("hooks/cuda/context_size.h",
                                          r"kFirst = (\d+), kStep = (\d+), kFurtherStep = (\d+);")
    (most,) = constants("hooks/cuda/context_size.h", r"kMostPagesOfStream = (\d+);")
    (twice,) = constants("hooks/cuda/context_size.h", r"number % kFurtherStep == (\d+) \? kMostPagesOfStream : 1")
    if number < first or number % step != first:
        return 0
    return most if number % further_step == twice else 1


class Streams(unittest.TestCase):
    def grown(self, *arguments):
        """At which streams the driver takes how many MiB."""
        with rig.Gpu(BUILD) as gpu:
            answer = gpu.client("init", ":".join(map(str, ("stream_growth", *arguments))))[-1]
            peak = gpu.accounting()["peak"]
        self.assertEqual(answer["again"], [], "the second time, the driver has the memory")
        self.assertEqual(answer["left"], sum(mib for _, mib in answer["grown"]), "destroyed streams give nothing back")
        self.assertEqual(peak, (BUILD.context_mib + answer["left"]) * MIB, "RM's count")
        return answer["grown"]

    def test_each_takes_what_the_library_charges(self):
        charged = [[number, 2 * pages_of_stream(number)] for number in range(1, 301) if pages_of_stream(number)]
        if BUILD.release == "470":  # takes 2 MiB at the 58th, and 3 at the 122nd, the 250th and so on
            charged = [[number, 3 if number % 128 == 122 else 2] for number, _ in charged]
        for kind in (0, 1):  # CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING
            self.assertEqual(self.grown(300, kind), charged, f"kind {kind}")
        self.assertEqual(self.grown(300, 1, -1), charged, "of a higher priority")

    def test_no_release_takes_more_than_the_library_charges(self):
        for number, mib in self.grown(600):
            self.assertLessEqual(mib, 2 * pages_of_stream(number), f"stream {number}")


class Graphs(unittest.TestCase):
    """Of kernels."""

    def grown(self, nodes, branches):
        """What the driver takes in all, in KiB."""
        with rig.Gpu(BUILD) as gpu:
            answer = gpu.client("init", f"graph_growth:{nodes}:{branches}")[-1]
            peak = gpu.accounting()["peak"]
        once, destroyed, again = answer["grown"]
        self.assertEqual((destroyed, again), (once, once), "a destroyed graph's memory stays, and serves the next one")
        self.assertLessEqual(BUILD.context_mib * MIB + once * 1024, peak)
        return once

    def test_each_kernel_and_branch_takes_what_the_library_charges(self):
        of_550, of_others = constants("hooks/cuda/graph_needs.cc", r"\? (\d+)u << 10 : (\d+)u << 10;")
        (of_branch,) = constants("hooks/cuda/graph_needs.cc", r"kBranch = (\d+)u << 10;")
        of_kernel = of_550 if BUILD.release == "550" else of_others
        grown = {shape: self.grown(*shape) for shape in ((1, 1), (100, 1), (100, 100), (1000, 1), (1000, 10), (1000, 100),
                                                         (1000, 1000), (2000, 1), (3000, 3000), (4000, 1))}
        for (nodes, branches), kib in grown.items():
            self.assertLessEqual(kib, nodes * of_kernel + branches * of_branch + 2048, f"{nodes} kernels in {branches} branches")
        kernel = (grown[4000, 1] - grown[1000, 1]) / 3000
        branch = (grown[3000, 3000] - grown[1000, 1000]) / 2000 - kernel
        self.assertEqual((round(kernel, 1), round(branch, 1)),
                         {"470": (64.5, 72.7), "535": (65.5, 96.3), "550": (8.9, 95.6)}[BUILD.release])
        for taken, charged in ((kernel, of_kernel), (branch, of_branch)):
            self.assertLess(taken, charged)
            if BUILD.release != "470":  # which is charged as 535
                self.assertLess(charged - taken, 3, "KiB")


class Heap(unittest.TestCase):
    """Where the driver puts small allocations, by the rule of shim/tracking/chunk_occupancy.h."""

    def test_each_address_is_foretold(self):
        with rig.Gpu(BUILD) as gpu:
            calls = gpu.client("init", "heap:1:13000")[-1]["calls"]
            self.assertEqual(gpu.accounting()["peak"], max(kib for _, _, kib in calls) * 1024)
        heap, large, in_chunks = HeapModel(), {}, 0
        for number, (size, address, kib) in enumerate(calls):
            if size == 0:
                if large.pop(address, 0) == 0:
                    heap.free(address)
            elif size > CHUNK - UNIT:
                large[address] = -(-size // CHUNK) * CHUNK
            else:
                in_chunks += 1
                foretold = heap.foretell(size)
                if foretold is None:
                    self.assertEqual(address % CHUNK, 0, f"call {number}, {size} bytes: a new chunk")
                    self.assertNotIn(address, heap.chunks, f"call {number}, {size} bytes: a new chunk")
                else:
                    self.assertEqual(address, foretold, f"call {number}, {size} bytes: best fit")
                heap.take(address, size)
            self.assertEqual(kib * 1024, BUILD.context_mib * MIB + len(heap.chunks) * CHUNK + sum(large.values()),
                             f"call {number}: RM's count")
        self.assertGreater(in_chunks, 5000)


class HeapModel:
    """512-byte rounding, chunks of 2 MiB, best fit over all holes, of equals the one that has been as it is for longest."""

    def __init__(self):
        self.chunks = set()
        self.sizes = {}  # by address
        self.holes = {}  # from each address to the end of the hole, in the order in which they became so

    def foretell(self, size):
        size = -(-size // UNIT) * UNIT
        holes = [(end - start, start) for start, end in self.holes.items() if end - start >= size]
        return min(holes, key=lambda hole: hole[0])[1] if holes else None  # the first of equals

    def take(self, address, size):
        size = -(-size // UNIT) * UNIT
        self.sizes[address] = size
        if address not in self.holes:
            self.chunks.add(address)
            self.holes[address] = address + CHUNK
        end = self.holes.pop(address)
        if address + size < end:
            self.holes[address + size] = end

    def free(self, address):
        end = address + self.sizes.pop(address)
        start, chunk = address, address // CHUNK * CHUNK
        before = next((hole for hole, its_end in self.holes.items() if its_end == address and hole >= chunk), None)
        if before is not None:
            del self.holes[before]
            start = before
        if end < chunk + CHUNK and end in self.holes:
            end = self.holes.pop(end)
        if end - start == CHUNK:
            self.chunks.remove(chunk)  # an empty chunk goes back at once
        else:
            self.holes[start] = end

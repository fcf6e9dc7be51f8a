"""fill_test.py BUILD: each way to memory is filled under a cap of 2 GiB on NVIDIA's own driver, until it is refused.

Two oracles: RM's own count never passes the cap by a byte, and at least as much is granted as the driver alone grants on
a card that has no more than the cap.
"""
import sys
import unittest

import rig

BUILD = rig.Build(sys.argv[1])
CAP_MIB = 2048

FILLS = {
    "pieces of 1 MiB": ["fill:1024"],
    "pieces of 100 KiB": ["fill:100"],
    "pieces of 1025 KiB": ["fill:1025"],
    "pieces of 3 MiB": ["fill:3072"],
    "a mix": ["fill:100:1025:5000:4:2047:300"],
    "fragmented": ["fragmented"],
    "pitch": ["pitch"],
    "async": ["asynchronous:2048"],
    "explicit pools": ["pools:2048"],
    "VMM": ["physical:2048"],
    "arrays of 4 MiB": ["arrays:1024"],
    "arrays of 256 KiB": ["arrays:256"],
    "graph nodes": ["graphs:20480"],
    "modules": ["modules:16384"],
    "a second context": ["context", "fill:1024"],
    "contexts": ["contexts"],
}

# Today's failures, with what was seen. The list is to become empty.
EXPECTED_TO_FAIL = {
    "arrays of 256 KiB": "1662 MiB granted of 1664",
}


class Fill(unittest.TestCase):
    """With a method for each."""


def add(name, commands):
    def judge(self):
        with rig.Gpu(BUILD, CAP_MIB) as gpu:
            bare = gpu.client("init", *commands)
        with rig.Gpu(BUILD) as gpu:
            capped = gpu.client("init", *commands, cap=f"{CAP_MIB}MiB")
            peak = gpu.books()["peak"]
            unknown = gpu.unknown()
        mib = rig.MIB
        print(f"{name}: RM {peak / mib:.3f} MiB, granted {capped[-1]['granted'] / mib:.3f}, "
              f"on a card of {CAP_MIB} MiB {bare[-1]['granted'] / mib:.3f}", file=sys.stderr)
        self.assertEqual(unknown, "")
        self.assertLessEqual(peak, CAP_MIB * mib, "RM's count passed the cap")
        self.assertGreaterEqual(capped[-1]["granted"], bare[-1]["granted"], "less was granted than by a card of that size")

    if name in EXPECTED_TO_FAIL:
        judge = unittest.expectedFailure(judge)
    setattr(Fill, "test_" + name.replace(" ", "_"), judge)


if __name__ == "__main__":
    if BUILD.missing():
        print(f"{BUILD.missing()} is not there: skipped")
        sys.exit(77)
    for fill, words in FILLS.items():
        add(fill, words)
    del sys.argv[1:]
    unittest.main(verbosity=2)

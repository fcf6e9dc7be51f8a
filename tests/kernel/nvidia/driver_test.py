"""driver_test.py BUILD: NVIDIA's own libraries on the simulated kernel driver, without fracgpu."""
import sys
import unittest

import rig

BUILD = rig.Build(sys.argv[1])
CONTEXT = 384 * rig.MIB  # what libcuda 535 takes of this chip


class Bare(unittest.TestCase):
    def test_smi_shows_the_gpu(self):
        with rig.Gpu(BUILD) as gpu:
            result = gpu.run([BUILD.smi])
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("0MiB / 24576MiB", result.stdout)
            self.assertEqual(gpu.unknown(), "")

    def test_smi_shows_a_process(self):
        with rig.Gpu(BUILD) as gpu:
            child = gpu.start([*rig.CLIENT, "init", "alloc:102400", "wait"])
            for _ in range(3):
                line = child.stdout.readline()
            self.assertIn("pid", line, child.stderr.read() if not line else "")
            query = gpu.run([BUILD.smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader"])
            self.assertEqual(query.stdout.strip(), f"{child.pid}, 484 MiB")

    def test_a_context_and_an_allocation_are_counted(self):
        with rig.Gpu(BUILD) as gpu:
            gpu.client("init", "alloc:102400")
            books = gpu.books()
            self.assertEqual(books["peak"], CONTEXT + 100 * rig.MIB)
            self.assertEqual(books["used"], 0, "the process is dead")


if __name__ == "__main__":
    if BUILD.missing():
        print(f"{BUILD.missing()} is not there: skipped")
        sys.exit(77)
    del sys.argv[1:]
    unittest.main(verbosity=2)

"""A row that is not understood is refused with its place, its fault and what is accepted."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

GOOD = "FRACGPU_HOOKED(linear, 3020, cuMemAlloc_v2, (CUdeviceptr* dptr, size_t bytesize))"


class FunctionTable(unittest.TestCase):
    def setUp(self):
        self.hooks = tempfile.TemporaryDirectory()
        self.addCleanup(self.hooks.cleanup)

    def write(self, folder, *lines):
        path = os.path.join(self.hooks.name, folder, "functions.inc")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as table:
            table.write("// A table.\n\n" + "\n".join(lines) + "\n")
        return path

    def read(self, *lines):
        return function_table.read(self.write("cuda", *lines))

    def refused(self, line, *words):
        with self.assertRaises(function_table.BadTable) as refusal:
            self.read(GOOD, line)
        for word in ("functions.inc:4: ", *words):
            self.assertIn(word, str(refusal.exception))

    def test_a_row_is_read(self):
        hooked, named, called = self.read(
            GOOD, "FRACGPU_NAMED(pool, by(402).until(7), a, (void** p, int n), (p, n))",
            "FRACGPU_CALLED(device, 1, b, ())")
        self.assertEqual((hooked.kind, hooked.family, hooked.name), ("HOOKED", "linear", "cuMemAlloc_v2"))
        self.assertEqual((hooked.since.version, hooked.since.exact), (3020, True))
        self.assertEqual((named.since.version, named.since.exact, named.arguments), (402, False, "(p, n)"))
        self.assertEqual([row.exported for row in (hooked, named, called)], [True, True, False])

    def test_what_is_no_row_is_refused(self):
        self.refused("FRACGPU_HOKED(linear, 1, a, ())", "FRACGPU_HOOKED(")
        self.refused("int x;", "neither a row, a comment nor an empty line")
        self.refused(GOOD[:-1], "a row is one line")
        self.refused(GOOD + " x", "neither a row")

    def test_wrong_columns_are_refused(self):
        self.refused("FRACGPU_HOOKED(cuMemFree, (CUdeviceptr p))", "2 columns", "family, since, name, (parameters)")
        self.refused("FRACGPU_HOOKED(liner, 1, a, ())", "'liner' is no family", "linear, array")
        self.refused("FRACGPU_HOOKED(linear, 12.4, a, ())", "'12.4' is no version", "by(10020)")
        self.refused("FRACGPU_HOOKED(linear, by(1).gone(), a, ())", "is no version")
        self.refused("FRACGPU_HOOKED(linear, 1, 2a, ())", "'2a' is no name")
        self.refused("FRACGPU_HOOKED(linear, 1, a, int b)", "must be in parentheses")
        self.refused("FRACGPU_HOOKED(linear, 1, a, (int))", "needs a type and a name")
        self.refused("FRACGPU_NAMED(linear, 1, a, (int b, int c), (c, b))", "not the parameters' names: (b, c)")

    def test_a_function_has_one_row(self):
        self.refused(GOOD, "has a row already", "functions.inc:3")
        self.write("cuda", GOOD)
        self.write("smi/nvml", GOOD)
        with self.assertRaisesRegex(function_table.BadTable, "two vendors cannot export the same name"):
            function_table.read_all(self.hooks.name)

    def test_only_what_is_intercepted_is_exported(self):
        self.write("cuda", GOOD, "FRACGPU_CALLED(device, 1, b, ())")
        self.assertEqual(function_table.exported_names(self.hooks.name), ["cuMemAlloc_v2", "dlopen", "dlsym", "dlvsym"])

"""The judge of layers, judged: made-up trees that break each of its rules once, and one that breaks none."""
import pathlib
import tempfile
import unittest

import layering

CLEAN = {
    "include/fracgpu/ledger_layout.h": "",
    "shim/base/text.h": "#include <string>\n",
    "shim/base/environment.cc": 'const char* v = secure_getenv("X");\n',
    "shim/ledger/ledger.h": '#include "fracgpu/ledger_layout.h"\n#include "shim/base/text.h"\n',
    "shim/config/identity.h": '#include "shim/ledger/ledger.h"\n',
    "shim/charge/linear.h": '#include "shim/config/identity.h"\n',
    "shim/interpose/start.cc": '#include "shim/config/identity.h"\n',
    "hooks/library_hook.h": '#include "shim/charge/linear.h"\n',
    "hooks/cuda/hook.h": '#include "hooks/library_hook.h"\n',
    "hooks/vendors.cc": '#include "hooks/cuda/hook.h"\n#include "hooks/library_hook.h"\n',
    "tools/main.cc": '#include "tools/commands/run.h"\n',
    "tools/commands/run.h": '#include "tools/cli/output.h"\n#include "cli/other.h"\n',
    "tools/cli/output.h": '#include "shim/base/text.h"\n',
    "tests/sim/node/node.h": "",
    "tests/sim/cuda/driver.cc": '#include "sim/node/node.h"\n',
    "bench/driver.h": '#include "shim/base/text.h"\n',
    "bench/CMakeLists.txt": "add_executable(driver_calls driver_calls.cc)\n",
}


class Layering(unittest.TestCase):
    def judge(self, changes):
        """What is said of the clean tree with these files added to it or put in the place of its own."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in (CLEAN | changes).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return layering.judge(root)

    def expect_one(self, changes, *parts):
        wrong = self.judge(changes)
        self.assertEqual(len(wrong), 1, wrong)
        for part in parts:
            self.assertIn(part, wrong[0])

    def test_clean_tree(self):
        self.assertEqual(self.judge({}), [])

    def test_arrow_up(self):
        self.expect_one({"shim/base/text.cc": '\n#include "shim/ledger/ledger.h"\n'},
                        "shim/base/text.cc:2", "points up", "shim/ledger/ledger.h")
        self.expect_one({"tools/cli/output.cc": '#include "tools/commands/run.h"\n'}, "tools/cli/output.cc:1")

    def test_arrow_from_a_hook_to_the_folder_of_all(self):
        self.expect_one({"hooks/all.h": "", "hooks/cuda/hook.cc": '#include "hooks/all.h"\n'}, "points up")

    def test_include_beside_the_file(self):
        self.expect_one({"shim/base/text.cc": '#include "../ledger/ledger.h"\n'}, "shim/base/text.cc:1", "points up")

    def test_circle_in_one_layer(self):
        self.expect_one({"shim/ledger/slots.cc": '#include "shim/config/identity.h"\n'},
                        "a circle", "shim/config -> shim/ledger -> shim/config",
                        "shim/config/identity.h:1", "shim/ledger/slots.cc:1")

    def test_circle_of_three(self):
        self.expect_one({"shim/sharing/imports.h": '#include "shim/config/identity.h"\n',
                         "shim/tracking/live_map.h": '#include "shim/sharing/imports.h"\n',
                         "shim/config/limits.h": '#include "shim/tracking/live_map.h"\n'}, "a circle")

    def test_room_without_a_place(self):
        self.expect_one({"shim/new_room/thing.h": ""}, "shim/new_room/thing.h", "no place")

    def test_interpose_knows_no_hook(self):
        self.expect_one({"shim/interpose/start.cc": '#include "hooks/cuda/hook.h"\n'}, "vendor_backends")

    def test_command_knows_no_hook(self):
        self.expect_one({"tools/commands/run.cc": '#include "hooks/cuda/hook.h"\n'}, "intercepts nothing")

    def test_simulated_node_shares_no_code(self):
        for target in ("shim/base/text.h", "hooks/cuda/hook.h", "tools/cli/output.h", "fracgpu/ledger_layout.h"):
            self.expect_one({"tests/sim/cuda/driver.cc": f'#include "{target}"\n'}, "shares no code")

    def test_benchmark_takes_nothing_out_of_tests(self):
        self.expect_one({"bench/driver.cc": '#include "sim/node/node.h"\n'}, "bench/driver.cc:1", "without the tests")
        self.expect_one({"bench/CMakeLists.txt": "add_executable(x ../tests/sim/node/node.cc)\n"}, "bench/CMakeLists.txt:1")

    def test_environment_is_read_in_one_place(self):
        for read in ('getenv("X")', 'secure_getenv("X")', 'std::getenv("X")', "*environ"):
            self.expect_one({"hooks/cuda/hook.cc": f"const char* v = {read};\n"}, "hooks/cuda/hook.cc:1")

"""llama.cpp under caps and on cards of these sizes, on NVIDIA's own driver 550: a campaign."""
import re

import gguf
import part

BUILD = part.rig.Build(release="550")
LLAMA = part.Part(BUILD, "llama-cpp", ["llama", "ggml/backends0"])
MODEL = f"{BUILD.folder}/parts/zeros.gguf"  # 637 MiB
# From a size at which not even a context fits to one at which all runs.
SIZES_MIB = (256, 384, 448, 512, 640, 768, 832, 896, 960, 992, 1024, 1040, 1056, 1152, 2048)


def printed(result):
    """All of it except times, addresses and the library's own lines."""
    lines = [line for line in (result.stdout + result.stderr).splitlines()
             if not line.startswith(("fracgpu", "llama_perf", "|"))]
    return [re.sub(r"0x[0-9a-f]+|took .* ms", "", line) for line in lines]


def setUpModule():
    BUILD.needs()
    LLAMA.require(megabytes=351)
    gguf.make(MODEL, layers=16)


class Llama(part.Comparison):
    def judge(self, mib):
        # It looks for its back ends where it was installed, beside the program and in the current folder.
        bench = LLAMA.command("llama-bench", "-m", MODEL, "-ngl", "99", "-p", "32", "-n", "4", "-r", "1", "-v")
        command = ["/usr/bin/env", "-C", f"{LLAMA.libraries}/ggml/backends0", *bench]
        bare = self.compare(BUILD, mib, command, printed, LD_LIBRARY_PATH="", GGML_NO_BACKTRACE="1")
        if mib == max(SIZES_MIB):
            self.assertEqual(bare.returncode, 0, bare.stderr)


for python_mib in SIZES_MIB:
    setattr(Llama, f"test_{python_mib}_MiB", lambda self, mib=python_mib: self.judge(mib))

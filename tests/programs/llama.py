"""llama.cpp's benchmark with a model of 637 MiB, all layers on the GPU."""
import os
import re

import gguf
import part
from machine import BUILD


class Bench(part.Part):
    """`name` of the part. `driver`: folders of libraries in front of its own."""

    def __init__(self, name, *driver):
        super().__init__(name, *driver, "llama", "ggml/backends0")
        self.model = os.path.abspath(f"{BUILD}/parts/zeros.gguf")
        gguf.make(self.model, layers=16)
        self.words = [self.program("llama-bench"), *f"-m {self.model} -ngl 99 -p 32 -n 4 -r 1 -v".split()]

    def command(self, *words):
        # llama.cpp looks for its back ends where it was installed, beside the program and in the current folder.
        return ["/usr/bin/env", "-C", f"{self.libraries}/ggml/backends0", *super().command(*words)]


def printed(lines, of_the_library="fracgpu"):
    """Without times, addresses and the library's own lines."""
    kept = [line for line in lines if not line.startswith(("llama_perf", "|", of_the_library))]
    return [re.sub(r"0x[0-9a-f]+|took .* ms", "", line) for line in kept]

"""llama.cpp under caps and on cards of these sizes, on AMD's own HIP 6.4.3: a campaign."""
import glob
import importlib.util
import os
import re

import pytest

import gguf

HERE = os.path.dirname(os.path.abspath(__file__))
# Not by its plain name: the other tests of this folder use NVIDIA's rig.
spec = importlib.util.spec_from_file_location("amd_rig", f"{HERE}/../kernel/amd/rig.py")
rig = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rig)

MIB = rig.MIB
# From a size at which the model does not fit to one at which all runs. At 832 and 896 MiB the end depends on timing.
SIZES_MIB = (512, 640, 704, 768, 960, 1024, 1280, 2048)
KFD_KEEPS_MIB = 8  # of a card: programs get the rest


class Packages:
    """llama.cpp and HIP of Debian sid, as a stack of the rig."""

    def __init__(self):
        self.root = rig.part("llama-cpp-hip")
        self.libraries = f"{self.root}/usr/lib/x86_64-linux-gnu"

    def command(self, program):
        # llama.cpp looks for its back ends where it was installed, beside the program and in the current folder.
        backends = f"{self.libraries}/ggml/backends0"
        folders = [f"{self.libraries}/llama", backends, self.libraries, f"{self.root}/usr/lib",
                   *(f"{self.libraries}/{name}" for name in ("blas", "lapack"))]
        return ["/usr/bin/env", "-C", backends, glob.glob(f"{self.root}/lib64/ld-linux-*")[0], "--library-path",
                ":".join(folders), program], {"GGML_NO_BACKTRACE": "1"}


@pytest.fixture(scope="module")
def packages():
    return Packages()


@pytest.fixture(scope="module")
def model(build):
    path = f"{build}/parts/zeros.gguf"  # 637 MiB
    gguf.make(path, layers=16)
    return path


def printed(lines):
    """Without times, addresses, the size of the card and the library's own lines. ROCr prints "HSA exception" also when the
    library looks for a hole in its blocks."""
    kept = [line for line in lines if not line.startswith(("fracgpu", "llama_perf", "|", "HSA exception"))]
    return [re.sub(r"0x[0-9a-f]+|took .* ms|VRAM: \d+ MiB", "", line) for line in kept]


def bench(packages, model, card_mib, cap):
    """The exit status, the lines and KFD's peak."""
    with rig.Machine(card_mib) as machine:
        words = f"-m {model} -ngl 99 -p 32 -n 4 -r 1 -v"
        program = machine.start(packages, f"{packages.root}/usr/bin/llama-bench", words, cap)
        lines = []
        while (line := program.line(seconds=200)) is not None:
            lines.append(line)
        outcome = program.finish()
        return outcome.status, printed([*lines, *outcome.errors.splitlines()]), machine.peak()


@pytest.mark.campaign("it fetches 484 MB")
@pytest.mark.parametrize("mib", SIZES_MIB)
def test_llama_bench(packages, model, mib):
    status, bare, bare_peak = bench(packages, model, mib + KFD_KEEPS_MIB, None)
    capped_status, capped, peak = bench(packages, model, 2 * mib, f"{mib}MiB")
    print(f"{mib} MiB: exit status {status}, {len(bare)} lines; KFD at most {bare_peak / MIB:.0f} MiB on a card of that size, "
          f"{peak / MIB:.0f} under the cap")
    assert peak <= mib * MIB, "KFD's count exceeded the cap"
    assert capped == bare
    assert capped_status == status
    assert status == 0 or mib < max(SIZES_MIB), bare

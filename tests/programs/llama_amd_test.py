"""llama.cpp under caps and on cards of these sizes, on AMD's own HIP 6.4.3."""
import importlib.util
import os
import re

import pytest

import llama

# Not by its plain name: the other tests of this folder use NVIDIA's rig.
spec = importlib.util.spec_from_file_location("amd_rig", f"{os.path.dirname(os.path.abspath(__file__))}/../kernel/amd/rig.py")
rig = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rig)

MIB = rig.MIB
# From a size at which the model does not fit to one at which all runs. At 832 and 896 MiB the result depends on timing.
SIZES_MIB = (512, 640, 704, 768, 960, 1024, 1280, 2048)
KFD_KEEPS_MIB = 8  # of a card: programs get the rest


class Stack(llama.Bench):
    """llama.cpp and HIP of Debian sid, as a stack of the rig."""

    def command(self, program):
        return super().command(program), {"GGML_NO_BACKTRACE": "1"}


@pytest.fixture(scope="module")
def stack():
    return Stack("llama-cpp-hip")


def printed(lines):
    """Also without the card's size and "HSA exception": ROCr prints that when the library looks for a hole in its blocks."""
    return [re.sub(r"VRAM: \d+ MiB", "", line) for line in llama.printed(lines) if not line.startswith("HSA exception")]


def bench(stack, card_mib, cap):
    """The exit status, the lines and KFD's peak."""
    with rig.Machine(card_mib) as machine:
        name, *words = stack.words
        program = machine.start(stack, name, words, cap)
        lines = []
        while (line := program.line(seconds=200)) is not None:
            lines.append(line)
        outcome = program.finish()
        return outcome.status, printed([*lines, *outcome.errors.splitlines()]), machine.peak()


@pytest.mark.campaign("it fetches 484 MB")
@pytest.mark.parametrize("mib", SIZES_MIB)
def test_llama_bench(stack, mib):
    status, bare, bare_peak = bench(stack, mib + KFD_KEEPS_MIB, None)
    capped_status, capped, peak = bench(stack, 2 * mib, f"{mib}MiB")
    print(f"{mib} MiB: exit status {status}, {len(bare)} lines; KFD at most {bare_peak / MIB:.0f} MiB on a card of that size, "
          f"{peak / MIB:.0f} under the cap")
    assert peak <= mib * MIB, "KFD's count exceeded the cap"
    assert capped == bare
    assert capped_status == status
    assert status == 0 or mib < max(SIZES_MIB), bare

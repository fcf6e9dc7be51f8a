"""llama.cpp under caps and on cards of these sizes, on NVIDIA's own driver 550."""
import pytest

import llama
import on_nvidia

# From a size at which not even a context fits to one at which all runs.
SIZES_MIB = (256, 384, 448, 512, 640, 768, 832, 896, 960, 992, 1024, 1040, 1056, 1152, 2048)


@pytest.fixture(scope="module")
def bench():
    return llama.Bench("llama-cpp", *on_nvidia.DRIVER)


def printed(result):
    return llama.printed((result.stdout + result.stderr).splitlines())


@pytest.mark.campaign("it fetches 351 MB")
@pytest.mark.parametrize("mib", SIZES_MIB)
def test_llama_bench(bench, mib):
    bare = on_nvidia.compare(mib, bench.command(*bench.words), printed, LD_LIBRARY_PATH="", GGML_NO_BACKTRACE="1")
    assert bare.returncode == 0 or mib < max(SIZES_MIB), bare.stderr

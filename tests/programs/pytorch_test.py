"""PyTorch 2.6 under a cap and on a card of that size, on NVIDIA's own driver 550."""
import glob
import os
import re
import subprocess

import pytest

import on_nvidia
import part

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_client.py")
STUB = os.path.abspath(f"{on_nvidia.BUILD.folder}/parts/cudnn-stub")
# Ways to use memory (pytorch_client.py), with the setting of PyTorch's allocator.
WAYS = {
    "allocator": ("allocator", ""),
    "expandable_segments": ("allocator", "expandable_segments:True"),
    "cudaMallocAsync": ("allocator", "backend:cudaMallocAsync"),
    "fraction": ("fraction", ""),
    "training": ("training", ""),
    "server": ("server", ""),
    "graphs": ("graphs", ""),
    "nccl": ("nccl", ""),
    "libraries": ("libraries", ""),
    "two_gpus": ("two_gpus", ""),
    "ranks": ("ranks", ""),
}
ON_TWO_GPUS = ("two_gpus", "ranks")


def make_stub(libraries):
    """Debian has no cuDNN, with which PyTorch is linked. Each function of the stub returns 1001, "not initialized"."""
    needed = subprocess.run(["nm", "-D", "--undefined-only", *glob.glob(f"{libraries}/libtorch*.so*")],
                            capture_output=True, text=True, check=True).stdout
    source = "".join(f"int {name}(void) {{ return 1001; }}\n" for name in sorted(set(re.findall(r" U (cudnn\w+)", needed))))
    os.makedirs(STUB, exist_ok=True)
    subprocess.run(["cc", "-x", "c", "-", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", f"{STUB}/libcudnn.so.9"],
                   input=source, text=True, check=True)


@pytest.fixture(scope="module")
def pytorch():
    packages = part.Part("pytorch-2.6", *on_nvidia.DRIVER, STUB)
    make_stub(packages.libraries)
    return packages


@pytest.mark.campaign("it fetches 1.4 GB")
@pytest.mark.parametrize("mib", (1024, 2048, 4096))
@pytest.mark.parametrize("name", WAYS)
def test_pytorch(pytorch, name, mib):
    way, setting = WAYS[name]
    command = pytorch.command(pytorch.program("python3.*"), "-B", CLIENT, way)
    gpus = 2 if way in ON_TWO_GPUS else 1
    bare = on_nvidia.compare(mib, command, lambda result: result.stdout.splitlines(), gpus, LD_LIBRARY_PATH=pytorch.paths,
                             PYTHONHOME=f"{pytorch.root}/usr", PYTHONPATH=f"{pytorch.root}/usr/lib/python3/dist-packages",
                             PYTORCH_CUDA_ALLOC_CONF=setting)
    assert bare.returncode == 0, bare.stderr

"""PyTorch 2.6 under a cap and on a card of that size, on NVIDIA's own driver 550: a campaign."""
import glob
import os
import subprocess

import part

BUILD = part.rig.Build(release="550")
STUB = os.path.abspath(f"{BUILD.folder}/parts/cudnn-stub")
PYTORCH = part.Part(BUILD, "pytorch-2.6", [STUB])
SIZES_MIB = (1024, 2048, 4096)
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
}


def make_stub():
    """Debian has no cuDNN, with which PyTorch is linked. Each function of the stub returns 1001, "not initialized"."""
    names = part.undefined(r"cudnn\w+", *glob.glob(f"{PYTORCH.libraries}/libtorch*.so*"))
    os.makedirs(STUB, exist_ok=True)
    subprocess.run(["cc", "-x", "c", "-", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", f"{STUB}/libcudnn.so.9"],
                   input="".join(f"int {name}(void) {{ return 1001; }}\n" for name in names), text=True, check=True)


def setUpModule():
    BUILD.needs()
    PYTORCH.require(megabytes=1400)


class PyTorch(part.Comparison):
    @classmethod
    def setUpClass(cls):
        make_stub()

    def judge(self, name, mib):
        way, setting = WAYS[name]
        command = PYTORCH.command("python3.*", "-B", f"{part.HERE}/pytorch_client.py", way)
        bare = self.compare(BUILD, mib, command, lambda result: result.stdout.splitlines(),
                            LD_LIBRARY_PATH=":".join(PYTORCH.paths), PYTHONHOME=f"{PYTORCH.root}/usr",
                            PYTHONPATH=f"{PYTORCH.root}/usr/lib/python3/dist-packages", PYTORCH_CUDA_ALLOC_CONF=setting)
        self.assertEqual(bare.returncode, 0, bare.stderr)


for python_name in WAYS:
    for python_mib in SIZES_MIB:
        setattr(PyTorch, f"test_{python_name}_{python_mib}_MiB",
                lambda self, name=python_name, mib=python_mib: self.judge(name, mib))

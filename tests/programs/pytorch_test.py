"""pytorch_test.py BUILD: PyTorch 2.6 prints the same under a cap as on a card of that size, on NVIDIA's own driver 550.

A campaign: FRACGPU_CAMPAIGN fetches its packages, 1.4 GB. The oracle is the bare driver on a simulated card of the cap's size.
"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "kernel", "nvidia"))
import rig  # noqa: E402 # pylint: disable=wrong-import-position

BUILD = rig.Build(sys.argv[1], "550")
ROOT = f"{BUILD.folder}/parts/pytorch-2.6"
LIBRARIES = f"{ROOT}/usr/lib/x86_64-linux-gnu"
STUB = f"{BUILD.folder}/parts/cudnn-stub"
MIB = rig.MIB
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
    symbols = subprocess.run(["nm", "-D", "--undefined-only", *glob.glob(f"{LIBRARIES}/libtorch*.so*")],
                             capture_output=True, text=True, check=True).stdout
    source = "".join(f"int {name}(void) {{ return 1001; }}\n" for name in sorted(set(re.findall(r" U (cudnn\w+)", symbols))))
    os.makedirs(STUB, exist_ok=True)
    subprocess.run(["cc", "-x", "c", "-", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", f"{STUB}/libcudnn.so.9"],
                   input=source, text=True, check=True)


class PyTorch(rig.unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_stub()

    def run_way(self, name, card_mib, cap):
        """By the C library of the packages. Returns the exit status, the lines, RM's peak and the messages."""
        way, setting = WAYS[name]
        paths = ":".join([*BUILD.driver, STUB, LIBRARIES, f"{LIBRARIES}/blas", f"{LIBRARIES}/lapack",
                          f"{LIBRARIES}/nvidia/current", f"{ROOT}/usr/lib"])
        command = [glob.glob(f"{ROOT}/lib64/ld-linux-*")[0], "--library-path", paths, glob.glob(f"{ROOT}/usr/bin/python3.*")[0],
                   "-B", f"{HERE}/pytorch_client.py", way]
        with rig.Gpu(BUILD, card_mib) as gpu:
            result = gpu.run(command, cap, seconds=280, LD_LIBRARY_PATH=paths, PYTHONHOME=f"{ROOT}/usr",
                             PYTHONPATH=f"{ROOT}/usr/lib/python3/dist-packages", PYTORCH_CUDA_ALLOC_CONF=setting)
            self.assertEqual(gpu.unknown(), "")
            return result.returncode, result.stdout.splitlines(), gpu.accounting()["peak"], result.stderr

    def judge(self, name, mib):
        status, bare, bare_peak, errors = self.run_way(name, mib, None)
        self.assertEqual(status, 0, errors)
        status, capped, peak, errors = self.run_way(name, 2 * mib, f"{mib}MiB")
        print(f"{name}, {mib} MiB: {len(bare)} lines; RM at most {bare_peak / MIB:.0f} MiB on a card of that size, "
              f"{peak / MIB:.0f} under the cap", file=sys.stderr)
        self.assertLessEqual(peak, mib * MIB, "RM's count passed the cap")
        self.assertEqual(capped, bare, errors)
        self.assertEqual(status, 0, errors)


for python_name in WAYS:
    for python_mib in SIZES_MIB:
        setattr(PyTorch, f"test_{python_name}_{python_mib}_MiB",
                lambda self, name=python_name, mib=python_mib: self.judge(name, mib))


if __name__ == "__main__":
    if "FRACGPU_CAMPAIGN" in os.environ:
        subprocess.run([f"{HERE}/../fetch.sh", "pytorch-2.6", ROOT], check=False)
    if not os.path.exists(f"{ROOT}/.fetched-pytorch-2.6"):
        print("no PyTorch of Debian trixie: skipped. FRACGPU_CAMPAIGN=1 fetches it (1.4 GB)")
        sys.exit(77)
    rig.run_tests(BUILD)

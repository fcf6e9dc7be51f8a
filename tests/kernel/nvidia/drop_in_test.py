"""The library in the place of HAMi-core's, and under NVIDIA's own variables.

The variables are those that HAMi's device plugin and NVIDIA's container toolkit give a container. Checked with NVIDIA's own
driver and nvidia-smi, and with RM's count.
"""
import os
import shutil
import unittest

import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
MIB = rig.MIB


class DropIn(unittest.TestCase):
    def setUp(self):
        context = rig.Gpu(BUILD, rig.CARD_MIB)
        self.gpu = context.__enter__()
        self.addCleanup(context.__exit__)
        self.addCleanup(self.remove_ledgers)
        self.library = f"{self.gpu.folder}/libvgpu.so"
        shutil.copyfile(BUILD.library, self.library)

    def remove_ledgers(self):
        """Those that are named by the shared file, whose folder's number is in the name."""
        number = f"{os.stat(self.gpu.folder).st_ino:x}"
        for entry in os.scandir("/dev/shm"):
            if entry.name.startswith("fracgpu-file-") and entry.name.split("-")[4] == number:
                os.unlink(entry.path)

    def hami(self, **more):
        """What HAMi's device plugin hands out for 2 GiB of one GPU, and the library in HAMi-core's place."""
        return {"LD_PRELOAD": f"{self.library}:{BUILD.simulator}", "NVIDIA_VISIBLE_DEVICES": "GPU-0",
                "CUDA_DEVICE_MEMORY_LIMIT_0": "2048m", "CUDA_DEVICE_SM_LIMIT": "30", "LIBCUDA_LOG_LEVEL": "1",
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{self.gpu.folder}/0c3e.cache", **more}

    def toolkit(self, **more):
        return {"LD_PRELOAD": f"{BUILD.library}:{BUILD.simulator}", "NVIDIA_GPU_MEMORY_REQUEST": "1024",
                "NVIDIA_GPU_MEMORY_LIMIT": "2048", "FRACGPU_TENANT": self.gpu.tenant, **more}

    def smi_total(self, variables):
        query = self.gpu.run([BUILD.smi, "--query-gpu=memory.total", "--format=csv,noheader"], **variables)
        return query.stdout.strip() or query.stderr

    def test_nvidia_smi_shows_the_limit(self):
        self.assertEqual(self.smi_total(self.hami()), "2048 MiB")
        self.assertEqual(self.smi_total(self.toolkit()), "2048 MiB")
        self.assertEqual(self.smi_total(self.hami(FRACGPU_MEMORY_LIMIT="1GiB")), "1024 MiB", "the smallest holds")
        self.assertEqual(self.smi_total(self.hami(NVIDIA_GPU_MEMORY_LIMIT="1536")), "1536 MiB", "the smallest holds")

    def test_processes_that_share_the_file_share_the_limit(self):
        children = [self.gpu.start("init", "fill:1024", "wait", **self.hami()) for _ in range(2)]
        for child in children:
            child.until("ready")
        self.assertLessEqual(self.gpu.accounting()["peak"], 2048 * MIB)
        self.assertGreaterEqual(self.gpu.accounting()["used"], 2046 * MIB)

    def test_another_file_is_another_limit(self):
        first = self.gpu.start("init", "fill:1024", "wait", **self.hami())
        first.until("ready")
        second = self.gpu.client("init", "alloc:1024000",
                                 **self.hami(CUDA_DEVICE_MEMORY_SHARED_CACHE=f"{self.gpu.folder}/9f11.cache"))
        self.assertEqual([answer["rc"] for answer in second], [0, 0])

    def test_the_toolkits_limit_holds(self):
        self.gpu.client("init", "fill:1024", **self.toolkit())
        self.assertEqual(self.gpu.accounting()["peak"], 2048 * MIB)

    def test_limits_of_compute_are_named_and_not_enforced(self):
        run = self.gpu.run([*rig.CLIENT, "init"], **self.hami())
        said = [line for line in run.stderr.splitlines() if "CUDA_DEVICE_SM_LIMIT" in line]
        self.assertEqual(len(said), 1, run.stderr)
        self.assertIn("memory only", said[0])

    def test_what_is_malformed_refuses_memory_in_one_line(self):
        for variables in (self.hami(CUDA_DEVICE_MEMORY_LIMIT_0="2gb"), self.toolkit(NVIDIA_GPU_MEMORY_LIMIT="2g"),
                          self.hami(CUDA_OVERSUBSCRIBE="true"),
                          self.hami(CUDA_DEVICE_MEMORY_SHARED_CACHE=f"{self.gpu.folder}/gone/0.cache")):
            run = self.gpu.run([*rig.CLIENT, "init"], **variables)
            refused = [line for line in run.stderr.splitlines() if "refused" in line]
            self.assertEqual(len(refused), 1, run.stderr)
            self.assertNotIn('"rc": 0', run.stdout)
        self.assertEqual(self.gpu.accounting()["peak"], 0)

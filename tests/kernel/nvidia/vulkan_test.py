"""NVIDIA's own Vulkan, alone and under a cap of 2 GiB.

Under the cap there are two oracles: RM's own count never passes the cap by a byte, and at least as much is granted as the
driver alone grants on a card that has no more than the cap.
"""
import os
import random
import unittest

import rig

BUILD = rig.Build()
MIB = rig.MIB
CAP_MIB, CARD_MIB = rig.CAP_MIB, rig.CARD_MIB
REFUSED = -2  # VK_ERROR_OUT_OF_DEVICE_MEMORY
LEFT_MIB = 4  # of a full card: at most, of pieces of 3 MiB

# The commands of vulkan_client.py by which one process fills.
FILLS = {
    "memory of 1 MiB": ["device", "memory:1024"],
    "memory of 3 MiB": ["device", "memory:3072"],
    "memory of 100 KiB": ["device", "allocate:1843200", "memory:100"],
    "memory of 1025 KiB": ["device", "memory:1025"],
    "one large piece": ["device", "allocate:1572864", "memory:1024"],
    "a piece that does not fit": ["device", "allocate:1048576", "allocate:1048576", "memory:1024"],
    "visible memory": ["device", "visible:3072"],
    "small visible memory": ["device", "allocate:1843200", "visible:100"],
    "both kinds of memory": ["device", "allocate:1048576", "visible:3072", "memory:1024"],
    "buffers": ["device", "buffers:1000"],
    "small buffers": ["device", "allocate:1843200", "buffers:100"],
    "images": ["device", "images:1000:1000"],
    "small images": ["device", "allocate:1843200", "images:100:100"],
    "flat images": ["device", "images:4000:77"],
    "what is released": ["device", "buffers:3000", "release", "memory:1024"],
    "what is freed": ["device", "allocate:1048576", "memory:1024", "free:0", "visible:2048"],
    "beside host memory": ["device", "host:1024", "memory:1024"],
    "a device that went": ["device", "memory:1024", "end_device", "device", "memory:1024"],
    "several devices": ["device", "devices:3", "memory:1024"],
    "CUDA after Vulkan": ["device", "allocate:512000", "cuda:1024"],
    "Vulkan after CUDA": ["device", "cuda:819200", "memory:1024"],
    "memory that CUDA imported": ["device", "export:307200", "memory:1024"],
    "memory that Vulkan imported": ["device", "import:307200", "memory:1024"],
    "memory that only a descriptor holds": ["device", "abandon:512000", "abandon:307200", "memory:1024"],
    "memory that a descriptor held": ["device", "abandon:512000", "memory:1024", "let_go", "free:0", "memory:1024"],
}
# 550 offers no device-local memory that the host sees, on the simulated GPU.
HAS_VISIBLE = BUILD.release < "550"
if not HAS_VISIBLE:
    FILLS = {name: commands for name, commands in FILLS.items() if not any(word.startswith("visible") for word in commands)}


def setUpModule():
    BUILD.needs()
    if missing := BUILD.missing_for(BUILD.vulkan):
        raise unittest.SkipTest(f"{missing} is not there")


class Driver(unittest.TestCase):
    """Without fracgpu."""

    def setUp(self):
        self.gpu = rig.Gpu(BUILD, CAP_MIB)
        self.addCleanup(self.gpu.__exit__)

    def tearDown(self):
        for child in self.gpu.children:
            child.end()
        self.assertEqual(self.gpu.unknown(), "", "the driver asked what the simulator does not know")
        self.assertEqual(self.gpu.accounting()["used"], 0, "all processes have ended")

    def used(self):
        return self.gpu.accounting()["used"]

    def test_vulkaninfo(self):
        shown = self.gpu.run([f"{BUILD.vulkan}/bin/vulkaninfo", "--summary"], **self.gpu.vulkan_environment())
        self.assertEqual(shown.returncode, 0, shown.stdout + shown.stderr)
        self.assertRegex(shown.stdout, r"deviceName +=.* GeForce RTX 4090\n")
        self.assertRegex(shown.stdout, rf"driverInfo +=.* {BUILD.version}\n")

    def test_the_device_is_that_of_nvml(self):
        device = self.gpu.vulkan("device")[0]
        query = self.gpu.run([BUILD.smi, "--query-gpu=name,uuid", "--format=csv,noheader"])
        self.assertEqual(query.stdout.strip(), f"{device['name']}, GPU-{device['uuid']}")
        self.assertEqual(device["heaps"][0], CAP_MIB)

    def test_it_fills_the_card(self):
        visible = ["visible:3072"] if HAS_VISIBLE else []
        for fill in ("memory:1024", "memory:100", *visible, "buffers:1000", "images:500:500"):
            with self.subTest(fill):
                self.gpu.reset()
                answer = self.gpu.vulkan("device", fill)[-1]
                accounting = self.gpu.accounting()
                self.assertEqual(answer["rc"], REFUSED)
                self.assertLessEqual(answer["granted"], accounting["peak"])
                self.assertLessEqual(accounting["peak"], CAP_MIB * MIB)
                self.assertGreater(accounting["peak"], (CAP_MIB - LEFT_MIB) * MIB)
                self.assertEqual(accounting["used"], 0)

    def test_what_was_freed_is_taken_again(self):
        answers = self.gpu.vulkan("device", "memory:1024", "release", "memory:1024", "release", "buffers:1000", "release",
                                  "memory:1024", "free:0", "allocate:1024", "allocate:1024")
        first, again, buffers, last = (answers[i] for i in (1, 3, 5, 7))
        self.assertEqual([answer["count"] for answer in (again, buffers, last)], [first["count"]] * 3)
        self.assertEqual([answer["rc"] for answer in answers[-2:]], [0, REFUSED])

    def test_host_memory_takes_nothing(self):
        child = self.gpu.start_vulkan("device", "wait", "host:1024", "wait")
        child.until("ready")
        before = self.used()
        child.go_on()
        self.assertEqual(child.until("host")["granted"], 256 * MIB)
        self.assertEqual(self.used(), before)

    def test_a_device_gives_back_what_it_had(self):
        child = self.gpu.start_vulkan("device", "wait", "buffers:3000", "wait", "end_device", "device", "wait")
        child.until("ready")
        before = self.used()
        for grows in (True, False):
            child.go_on()
            child.until("ready")
            self.assertEqual(self.used() > before + MIB, grows)

    def test_the_budget_is_what_is_left(self):
        before, after = (answer for answer in self.gpu.vulkan("device", "budget", "allocate:1048576", "budget")
                         if answer["command"] == "budget")
        self.assertEqual(after["usage"][0] - before["usage"][0], 1024)
        self.assertEqual(before["heaps"][0], CAP_MIB)
        self.assertLess(before["budget"][0], CAP_MIB)

    def test_memory_that_both_apis_use_is_counted_once(self):
        for command in ("export:102400", "import:102400"):
            with self.subTest(command):
                child = self.gpu.start_vulkan("device", "cuda:4194304", "wait", command, "wait")
                child.until("ready")
                before = self.used()
                child.go_on()
                self.assertEqual(child.until(command)["rc"], 0)
                self.assertLess(self.used() - before, 104 * MIB)
                self.assertGreaterEqual(self.used() - before, 100 * MIB)
                child.end()

    def test_smi_lists_graphics_and_compute(self):
        """By the classes of a process's objects, as RM does: Vulkan has those of compute as well."""
        kinds = {"C[+]G": self.gpu.start_vulkan("device", "wait"), "C": self.gpu.start("init", "wait")}
        for child in kinds.values():
            child.until("ready")
        shown = self.gpu.run([BUILD.smi]).stdout
        for kind, child in kinds.items():
            self.assertRegex(shown, rf" {child.pid} +{kind} ")


class Fill(rig.Comparison):
    """With a method for each of FILLS, and for what takes more than one process."""

    build = BUILD

    def test_a_race(self):
        self.compare_race(rig.Gpu.start_vulkan, "device", "memory:1024")

    def test_beside_cuda(self):
        self.compare_beside(rig.Gpu.start, ["init", "alloc:512000"], lambda gpu, cap: gpu.vulkan("device", "memory:1024", cap=cap))

    def test_cuda_beside_it(self):
        self.compare_beside(rig.Gpu.start_vulkan, ["device", "allocate:512000"],
                            lambda gpu, cap: gpu.client("init", "fill:1024", cap=cap))

    def compare_import(self, start, first, fill, start_importer, way, close=None):
        """Memory that its exporter has freed, and that another process has imported: before and after that ends, or
        closes it. What is left must suffice for the estimate of a CUDA context."""
        def scene(gpu, cap):
            owner = start(gpu, first, "abandon:1024000", "wait", "let_go", fill, "wait", cap=cap)
            shared = owner.until("abandon")
            importer = start_importer(gpu, *way(shared["pid"], shared["fd"]), "wait", *([close, "wait"] if close else []), cap=cap)
            importer.until("ready")
            owner.until("ready")
            owner.go_on()
            answers = [owner.until(fill)]
            if close:
                importer.go_on()
                importer.until("ready")
            else:
                importer.end()
            return answers + gpu.client("init", "fill:1024", cap=cap)
        self.compare(scene)

    def test_memory_that_another_process_imports(self):
        self.compare_import(rig.Gpu.start_vulkan, "device", "memory:1024", rig.Gpu.start_vulkan,
                            lambda pid, fd: ("device", f"open:{pid}:{fd}:1024000"))

    def test_memory_that_cuda_imports(self):
        self.compare_import(rig.Gpu.start_vulkan, "device", "memory:1024", rig.Gpu.start,
                            lambda pid, fd: ("init", f"open_external:{pid}:{fd}:1024000"), "close_external")

    def test_memory_of_cuda_that_another_process_imports(self):
        self.compare_import(rig.Gpu.start, "init", "fill:1024", rig.Gpu.start_vulkan,
                            lambda pid, fd: ("device", f"open:{pid}:{fd}:1024000"))

    def test_after_a_kill(self):
        """What a killed process held is free for the next."""
        self.compare_beside(rig.Gpu.start_vulkan, ["device", "memory:3072"],
                            lambda gpu, cap: gpu.vulkan("device", "memory:1024", cap=cap), is_killed=True)


class Shown(unittest.TestCase):
    """Programs and tools see a GPU of the cap's size."""

    def test_heaps_and_budget(self):
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            device, before, _, after = gpu.vulkan("device", "budget", "allocate:1048576", "budget", cap=f"{CAP_MIB}MiB")
            self.assertEqual((device["heaps"][0], before["heaps"][0]), (CAP_MIB, CAP_MIB))
            self.assertEqual(after["usage"][0] - before["usage"][0], 1024)
            self.assertLess(before["budget"][0], CAP_MIB)

    def test_vulkaninfo(self):
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            shown = gpu.run([f"{BUILD.vulkan}/bin/vulkaninfo"], f"{CAP_MIB}MiB", **gpu.vulkan_environment())
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertRegex(shown.stdout, r"memoryHeaps\[0\]:\s+size += 2147483648 ")

    def test_smi(self):
        with rig.Gpu(BUILD) as gpu:
            child = gpu.start_vulkan("device", "allocate:1048576", "wait", cap=f"{CAP_MIB}MiB")
            child.until("ready")
            query = gpu.run([BUILD.smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader"], f"{CAP_MIB}MiB")
            used = gpu.accounting()["used"] // MIB  # 550 rounds up
            self.assertIn(query.stdout.strip(), [f"2048 MiB, {mib} MiB" for mib in (used, used + 1)], query.stderr)

    def test_a_limit_that_names_another_gpu(self):
        """Without a device that it can know, the library refuses all memory."""
        with rig.Gpu(BUILD) as gpu:
            refused = gpu.run([*rig.VULKAN_CLIENT, "device"], "GPU-00000000-1111-2222-3333-444444444444=1GiB",
                              **gpu.vulkan_environment())
            self.assertNotIn('"rc": 0', refused.stdout)
            self.assertRegex(refused.stderr, "fracgpu.*the limit names device GPU-00000000-.*, which this machine does not have")
            self.assertEqual(gpu.accounting()["peak"], 0)


class Storm(unittest.TestCase):
    """Programs of all of NVIDIA's APIs at one full cap, killed and started again."""

    def test_kills(self):
        programs = [lambda gpu, cap: gpu.start_vulkan("device", "memory:3000", "wait", cap=cap),
                    lambda gpu, cap: gpu.start("init", "fill:1025", "wait", cap=cap),
                    lambda gpu, cap: gpu.start_opengl("buffers:7:60", "wait", cap=cap)]
        if os.path.exists(BUILD.opencl):
            programs.append(lambda gpu, cap: gpu.start_opencl("context", "buffers:1024", "wait", cap=cap))
        chance, cap = random.Random(1), f"{CAP_MIB}MiB"
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            running = [start(gpu, cap) for start in programs]
            for i in range(24):
                victim = chance.randrange(len(running))
                if chance.random() < 0.5:
                    running[victim].finish()  # else in the middle of what it does
                running[victim].end()
                running[victim] = programs[(victim + i) % len(programs)](gpu, cap)
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
            for child in running:
                child.end()
            self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
            self.assertEqual(gpu.accounting()["used"], 0)
            gpu.reset()
            after = gpu.vulkan("device", "memory:1024", cap=cap)[-1]["granted"]
        with rig.Gpu(BUILD, CAP_MIB) as gpu:
            self.assertEqual(after, gpu.vulkan("device", "memory:1024")[-1]["granted"], "not as from a card of that size")


rig.add_fills(Fill, FILLS, lambda gpu, commands, cap: gpu.vulkan(*commands, cap=cap),
              ("memory of 1 MiB", "buffers", "images", "what is released", "several devices", "CUDA after Vulkan",
               "memory that CUDA imported", "memory that only a descriptor holds"))

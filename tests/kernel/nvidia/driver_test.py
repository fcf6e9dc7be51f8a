"""NVIDIA's own libraries on the simulated kernel driver, without fracgpu."""
import os
import signal
import sys
import unittest

import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
MIB = rig.MIB
CONTEXT = 384 * MIB  # what libcuda 535 and 550 take of this chip
HOSTILE = [sys.executable, "-B", os.path.join(rig.HERE, "hostile.py")]


class Driver(unittest.TestCase):
    def setUp(self):
        self.gpu = rig.Gpu(BUILD)
        self.addCleanup(self.gpu.__exit__)

    def known(self):
        self.assertEqual(self.gpu.unknown(), "", "the driver asked what the simulator does not know")

    def test_smi_shows_the_gpu(self):
        result = self.gpu.run([BUILD.smi])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r" 0MiB / +24576MiB")
        self.known()

    def test_smi_shows_a_process(self):
        child = self.gpu.start("init", "alloc:102400", "wait")
        child.until("ready")
        query = self.gpu.run([BUILD.smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader"])
        self.assertEqual(query.stdout.strip(), f"{child.pid}, 484 MiB")

    def test_a_context_and_an_allocation_are_counted(self):
        self.gpu.client("init", "alloc:102400")
        accounting = self.gpu.accounting()
        self.assertEqual(accounting["peak"], CONTEXT + 100 * MIB)
        self.assertEqual(accounting["used"], 0, "the process is dead")
        self.known()

    def test_the_peak_starts_anew_with_a_reset(self):
        child = self.gpu.start("init", "alloc:102400", "free:0", "wait", "alloc:10240", "wait")
        child.until("ready")
        self.assertEqual(self.gpu.accounting()["peak"], CONTEXT + 100 * MIB)
        self.gpu.reset()
        self.assertEqual(self.gpu.accounting()["peak"], CONTEXT)
        child.go_on()
        child.until("ready")
        accounting = self.gpu.accounting()
        self.assertEqual(accounting["peak"], CONTEXT + 10 * MIB)
        self.assertEqual([process["peak"] for process in accounting["processes"] if process["alive"]], [CONTEXT + 10 * MIB])

    def test_two_processes_share_one_count(self):
        children = [self.gpu.start("init", "alloc:102400", "info", "wait") for _ in range(2)]
        for child in children:
            child.until("ready")
        self.assertEqual(self.gpu.accounting()["used"], 2 * (CONTEXT + 100 * MIB))
        info = self.gpu.client("init", "info")[-1]
        self.assertEqual(info["total"] - info["free"], 3 * CONTEXT + 200 * MIB)

    def test_memory_of_a_killed_process_is_free_at_once(self):
        child = self.gpu.start("init", "alloc:1048576", "wait")
        child.until("ready")
        os.kill(child.pid, signal.SIGKILL)
        child.process.wait(60)
        self.assertEqual(self.gpu.accounting()["used"], 0)

    def test_memory_goes_with_exec(self):
        script = ("import os, sys; sys.argv = ['', 'init', 'alloc:102400']; import client; os._exit = lambda _: None; "
                  "client.main(); os.execvp('sh', ['sh', '-c', 'echo {}; read line'])")
        child = rig.Child([sys.executable, "-B", "-c", script], self.gpu.environment(PYTHONPATH=rig.HERE))
        self.addCleanup(child.end)
        self.assertEqual(child.until("alloc")["rc"], 0)
        self.assertEqual(child.answer(), {})  # of the shell
        self.assertEqual(self.gpu.accounting()["used"], 0)

    def test_copies_and_fills_are_done(self):
        self.assertEqual(self.gpu.client("init", "copies")[-1]["wrong"], [])
        self.known()

    def test_streams_wait_for_events(self):
        self.assertEqual(self.gpu.client("init", "ordered_streams")[-1]["wrong"], 0)

    def test_a_captured_graph_runs(self):
        self.assertEqual(self.gpu.client("init", "captured")[-1]["seen"], [77] * 3)
        self.known()

    def test_ptx_is_compiled_and_launched(self):
        answer = self.gpu.client("init", "ptx")[-1]
        self.assertEqual((answer["rc"], answer["launch"], answer["end"]), (0, 0, 0))
        self.known()

    def test_the_runtime_starts(self):
        script = (f"import ctypes; cuda = ctypes.CDLL('{BUILD.runtime}'); "
                  "print(cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1)))")
        result = self.gpu.run([sys.executable, "-c", script])
        self.assertEqual((result.stdout, result.stderr), ("0\n", ""))
        self.known()

    def test_pools_grow_and_are_trimmed(self):
        child = self.gpu.start("init", "pool_cycle:102400", "wait")
        self.assertEqual(child.until("pool_cycle")["rc"], 0)
        child.until("ready")
        accounting = self.gpu.accounting()
        self.assertEqual((accounting["used"], accounting["peak"]), (CONTEXT, CONTEXT + 128 * MIB), "steps of 32 MiB")
        self.known()

    def test_pools_outlive_a_reset(self):
        child = self.gpu.start("init", "pool_reset:102400", "wait")
        answer = child.until("pool_reset")
        self.assertEqual((answer["rc"], answer["before"], answer["after"]), (0, 128 * MIB, 128 * MIB))
        child.until("ready")
        self.assertEqual(self.gpu.accounting()["used"], CONTEXT + 128 * MIB, "the primary context is gone, its pool is not")
        self.known()

    def test_an_exported_allocation_is_opened_by_another(self):
        owner = self.gpu.start("init", "alloc:102400", "write:0:5", "export:0", "wait", "free:0", "wait")
        handle = owner.until("export")["handle"]
        other = self.gpu.start("init", f"open:{handle}", "read:0", "wait", "close:0", "wait")
        self.assertEqual(other.until("read")["value"], 5)
        self.assertEqual(self.gpu.accounting()["used"], 2 * CONTEXT + 100 * MIB, "to open it takes nothing")
        owner.go_on()
        self.assertEqual(owner.until("free")["rc"], 0)
        self.assertEqual(self.gpu.accounting()["used"], 2 * CONTEXT + 100 * MIB, "the other one has it")
        other.go_on()
        self.assertEqual(other.until("close")["rc"], 0)
        self.assertEqual(self.gpu.accounting()["used"], 2 * CONTEXT)
        self.known()

    def test_what_its_owner_frees_counts_for_the_last_who_opened_it(self):
        """As RM's list of duplicates has it: mem.c of the open kernel modules."""
        owner = self.gpu.start("init", "alloc:102400", "export:0", "wait", "free:0", "wait")
        handle = owner.until("export")["handle"]
        first = self.gpu.start("init", f"open:{handle}", "wait", "close:0", "wait")
        first.until("ready")
        last = self.gpu.start("init", f"open:{handle}", "wait", "close:0", "wait")
        last.until("ready")

        def counted(whose):
            used = {process["pid"]: process["used"] for process in self.gpu.accounting()["processes"]}
            self.assertEqual([used[child.pid] - CONTEXT for child in (owner, first, last)],
                             [100 * MIB if child is whose else 0 for child in (owner, first, last)])
        owner.until("ready")
        counted(owner)
        for leaves, heir in ((owner, last), (last, first), (first, None)):
            leaves.go_on()
            leaves.until("ready")
            counted(heir)
        self.known()

    def test_physical_memory_is_sent_to_another(self):
        path = f"{self.gpu.folder}/socket"
        owner = self.gpu.start("init", f"send_physical:20480:{path}", "wait")
        owner.until("listens")
        other = self.gpu.start("init", f"receive_physical:20480:{path}", "write:0:9", "wait")
        self.assertEqual(other.until("receive_physical")["rc"], 0)
        other.until("ready")
        owner.until("ready")
        self.assertEqual(self.gpu.accounting()["used"], 2 * CONTEXT + 20 * MIB)
        owner.end()
        self.assertEqual(self.gpu.accounting()["used"], CONTEXT + 20 * MIB, "the other one has it")
        self.known()

    def test_an_unknown_control_fails_loudly(self):
        result = self.gpu.run([*HOSTILE, "control", "0x2080fffe"])
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "0x56"), result.stderr)  # NV_ERR_NOT_SUPPORTED
        self.assertIn("rmsim: unknown control 0x2080fffe (no public name), 8 bytes", result.stderr)
        self.assertIn("0x2080fffe", self.gpu.unknown())
        result = self.gpu.run([*HOSTILE, "control", "0x20800102"])
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "0x3a"), result.stderr)  # NV_ERR_INVALID_PARAM_STRUCT
        self.assertIn("unknown size of control 0x20800102 (NV2080_CTRL_CMD_GPU_GET_INFO_V2), 8 bytes\n", self.gpu.unknown())

    def test_an_unknown_uvm_ioctl_fails_loudly(self):
        result = self.gpu.run([*HOSTILE, "uvm", "12345"])
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "22"), result.stderr)  # EINVAL
        self.assertEqual(self.gpu.unknown(), "rmsim: unknown UVM ioctl 0x3039 (its number says no size)\n")

    def test_hostile_calls_neither_crash_nor_hang(self):
        for seed in range(3):
            result = self.gpu.run([*HOSTILE, "storm", str(seed)])
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr[-2000:])
        self.assertEqual(self.gpu.accounting()["used"], 0)
        self.assertEqual(self.gpu.client("init", "alloc:1024")[-1]["rc"], 0, "it works as before")

    def test_a_half_dead_kernel_ends_its_programs(self):
        """Who holds the accounting is stopped for good."""
        child = self.gpu.start("init", "wait", "alloc:102400", RMSIM_LOCK_SECONDS="2")
        child.until("ready")
        holder = self.gpu.hold()
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        os.kill(holder.pid, signal.SIGSTOP)
        child.go_on()
        told = f"rmsim: thread {holder.pid} has held the lock of the accounting for 2 s"
        with self.assertRaisesRegex(AssertionError, f"(?s)status {-signal.SIGABRT}, of .*alloc:102400.*{told}"):
            child.until("alloc")
        holder.kill()
        self.assertEqual(self.gpu.accounting()["used"], 0)

    def test_a_kernel_whose_holder_dies_goes_on(self):
        child = self.gpu.start("init", "alloc:10240", "wait", "alloc:102400", "wait")
        child.until("ready")
        with self.gpu.hold() as holder:
            child.go_on()
            holder.kill()
        self.assertEqual(child.until("alloc")["rc"], 0)
        child.until("ready")
        self.assertEqual(self.gpu.accounting()["used"], CONTEXT + 110 * MIB)

    def test_what_hangs_is_ended_and_named(self):
        child = self.gpu.start("init", "wait", "alloc:102400")
        child.until("ready")
        child.watchdog.cancel()
        child.give_up()
        with self.assertRaisesRegex(AssertionError, "has not ended after 60 s, of .*alloc:102400.*; its last answer: .*ready"):
            child.until("alloc")
        with self.assertRaisesRegex(AssertionError, "(?s)client.py.* has not ended after 3 s. It said:.*ready"):
            self.gpu.run([*rig.CLIENT, "init", "wait", "heap:1:10000000"], seconds=3)

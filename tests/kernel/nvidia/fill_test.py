"""Each way to memory is filled under a cap of 2 GiB on NVIDIA's own driver.

Two oracles: RM's own count never passes the cap by a byte, and at least as much is granted as the driver alone grants on
a card that has no more than the cap.
"""
import unittest

import rig

BUILD = rig.Build()
setUpModule = BUILD.needs
MIB = rig.MIB
NO_POOLS = "on the simulated kernel driver, imports of pools fail with libcuda 470, or allocations after them"
CAP_MIB, CARD_MIB, CONTEXT_MIB = rig.CAP_MIB, rig.CARD_MIB, BUILD.context_mib

# The commands of client.py by which one process fills.
OTHER_LIMITS = ["limit:1:268435456", "limit:2:268435456", "limit:3:8", "limit:4:4096"]  # printf, heap, depth, pending launches
FILLS = {
    "pieces of 1 MiB": ["fill:1024"],
    "pieces of 100 KiB": ["fill:100"],
    "pieces of 1025 KiB": ["fill:1025"],
    "pieces of 3 MiB": ["fill:3072"],
    "a mix": ["fill:100:1025:5000:4:2047:300"],
    "fragmented": ["fragmented"],
    "pitch": ["pitch"],
    "async": ["asynchronous:2048"],
    "async after linear": ["alloc:512000", "asynchronous:2048"],
    "linear after async": ["pool_cycle:512000", "fill:1024"],
    "explicit pools": ["pools:2048"],
    "a pool with a gap": ["gap"],
    "a pool with a gap that is not waited for": ["gap:0"],
    "linear beside a pool that outlived a reset": ["pool_reset:512000", "fill:1024"],
    "a hole in a chunk that was exported": ["alloc:300", "export:0", "fill:10240", "fill:2048", "fill:300"],
    "a hole in a chunk that was freed in stream order": ["alloc:300", "alloc:300", "fill:10240", "fill:2048", "free_in_order:0",
                                                         "fill:300"],
    "VMM": ["physical:2048"],
    "arrays of 4 MiB": ["arrays:1024"],
    "arrays of 256 KiB": ["arrays:256"],
    "a sparse array of a dead context": ["sparse:16384", "fill:1024"],
    "graph nodes": ["graphs:20480"],
    "graph nodes after those of a dead context": ["graph_of_a_dead_context:307200:2097152"],
    "graph nodes that are uploaded at instantiation": ["uploaded_graph:1048576", "uploaded_graph:2097152", "fill:1024"],
    "kernel graphs": ["kernel_graphs:1000"],
    "wide kernel graphs": ["kernel_graphs:1000:1000"],
    "kernel graphs in branches": ["kernel_graphs:600:20"],
    "kernel graphs that are made again at a full cap": ["kernel_graphs:300:300", "destroy_graphs", "kernel_graphs:300:300",
                                                        "destroy_graphs:2", "kernel_graphs:300:300", "fill:1024"],
    "kernel graphs of another shape than those destroyed": ["kernel_graphs:1000:1000", "destroy_graphs", "kernel_graphs:4000",
                                                            "destroy_graphs:2", "kernel_graphs:500:1", "fill:100"],
    "linear after destroyed kernel graphs": ["kernel_graphs:1000:1000", "destroy_graphs", "fill:1024", "kernel_graphs:1000"],
    "a context after destroyed kernel graphs": ["kernel_graphs:1000:1000", "destroy_graphs", "context"],
    "a stack limit after destroyed kernel graphs": ["kernel_graphs:1000:1000", "destroy_graphs", "stack:4096", "fill:1024"],
    "local memory after destroyed kernel graphs": ["local:2048", "kernel_graphs:1000:1000", "destroy_graphs", "launch", "fill:1024"],
    "linear after a refused launch and destroyed kernel graphs": ["local:16384", "kernel_graphs:1000:1000", "launch", "destroy_graphs",
                                                                  "fill:1024"],
    "VMM after destroyed kernel graphs": ["kernel_graphs:1000:1000", "destroy_graphs", "physical:2048"],
    "async after destroyed kernel graphs": ["kernel_graphs:1000:1000", "destroy_graphs", "asynchronous:2048"],
    "modules": ["modules:16384"],
    "a second context": ["context", "fill:1024"],
    "contexts": ["contexts"],
    "streams": ["streams:300", "fill:1024"],
    "streams at a full cap": ["fill:1024", "streams:100"],
    "a stack limit": ["stack:4096", "fill:1024"],
    "a stack limit at a full cap": ["fill:1024", "stack:16384"],
    "a stack limit that just fits": ["alloc:1515520", "stack:2000"],
    "a stack limit that lacks 2 MiB": ["alloc:1611776", "stack:1500"],
    "limits that take memory on demand": [*OTHER_LIMITS, "fill:1024"],
    "limits that take memory on demand at a full cap": ["fill:1024", *OTHER_LIMITS],
    "a large buffer of a library that prints": ["limit:1:268435456", "printing_library", "get_module", "fill:1024"],
    "a large buffer of a library that prints at a full cap": ["limit:1:268435456", "printing_library", "fill:1024", "get_module"],
    "local memory": ["local:2048", "launch", "fill:1024"],
    "a stack limit that is set again after a launch was refused": ["local:2048", "launch", "local:16384", "fill:1024", "launch",
                                                                   "fill:1024", "same_stack"],
    "local memory at a full cap": ["local:16384", "fill:1024", "launch", "fill:1024"],
    "local memory of a graph's kernel": ["local:16384", "fill:1024", "graph_launch"],
    "local memory of a graph's kernel beside graphs that allocate": ["local:16384", "graphs:20480", "graph_launch"],
    "local memory of a kernel in a graph that allocates": ["local:16384", "alloc:1024000", "graph_launch:102400"],
    "local memory of a graph's new kernel": ["local:4", "graph_launch", "local:2048", "alloc:1536000", "graph_update", "fill:1024"],
    "local memory that fits, of a graph's new kernel": ["local:4", "graph_launch", "local:2048", "alloc:1024000", "graph_update",
                                                       "fill:1024"],
    "local memory where a pool has given memory back": ["alloc:1126400", "pool_idle:524288", "local:2048", "launch"],
    "local memory beside memory that only a descriptor holds": ["local:2048", "abandon:512000", "fill:1024", "launch"],
    "local memory beside a pool that only a descriptor holds": ["local:2048", "pool_export:512000", "pool_end", "fill:1024", "launch"],
    "memory that only a descriptor holds": ["abandon:512000", "abandon:307200", "fill:1024"],
    "memory that a descriptor held": ["abandon:512000", "fill:1024", "let_go", "fill:1024"],
    "a pool that only a descriptor holds": ["pool_export:512000", "pool_end", "fill:1024"],
    "a library whose image does not tell its size": ["library:61440", "alloc:1650000", "get_module", "fill:1024"],
    "a library that prints": ["printing_library", "alloc:1642496", "get_module", "fill:1024"],
}
# Those by which the drivers' releases differ.
BY_RELEASE = (
    "a mix", "fragmented", "async", "explicit pools", "a pool with a gap", "VMM", "arrays of 4 MiB", "arrays of 256 KiB",
    "graph nodes", "kernel graphs", "wide kernel graphs", "modules", "a second context", "streams at a full cap",
    "a stack limit at a full cap", "limits that take memory on demand at a full cap", "local memory at a full cap", "linear after destroyed kernel graphs",
    "a hole in a chunk that was exported", "memory that a descriptor held", "pieces of 1 MiB")
LIBRARIES_BY_RELEASE = ("a library whose image does not tell its size", "a library that prints")


class Fill(rig.Comparison):
    """With a method for each of FILLS, and for what takes more than one process."""

    build = BUILD
    leaves_room = ("test_contexts", "test_graph_nodes_after_those_of_a_dead_context",
                   "test_a_context_after_destroyed_kernel_graphs")

    def test_after_a_kill(self):
        """What a killed process held is free for the next."""
        self.compare_beside(rig.Gpu.start, ["init", "fill:3072"], lambda gpu, cap: gpu.client("init", "fill:1024", cap=cap),
                            is_killed=True)

    def test_local_memory_that_is_reserved(self):
        """The function is refused, and no launch; what it would have taken is there for others."""
        def scene(gpu, cap):
            fill, launch = gpu.client("init", "local:16384", "fill:1024", "launch", cap=cap, FRACGPU_RESERVE_LOCAL="on")[2:]
            return [fill, {"command": "launch", "count": int(launch["rc"] == 0)}]  # without a function, another error
        self.compare(scene)

    def test_local_memory_of_code_that_was_loaded_eagerly(self):
        for commands in (["local:2048", "alloc:512000", "launch", "fill:1024"], ["local:16384", "fill:1024", "launch", "fill:1024"]):
            def scene(gpu, cap):
                return gpu.client("init", *commands, cap=cap, CUDA_MODULE_LOADING="EAGER")
            with self.subTest(commands):
                self.compare(scene)

    @unittest.skipIf(BUILD.release < "550", "green contexts came with CUDA 12.4")
    def test_green_contexts(self):
        """What is allocated in one is the primary context's, and goes with that."""
        for last in (1, 0):
            def scene(gpu, cap):
                return gpu.client("init", f"green:1024000:{last}", "fill:1024", "info", cap=cap)
            with self.subTest(last=last):
                self.compare(scene)

    def test_a_race(self):
        self.compare_race(rig.Gpu.start, "init", "fill:1024")

    def test_ipc(self):
        """An importer has its own context and fills what is left; what it opened is counted once."""
        def scene(gpu, cap):
            owner = gpu.start("init", "alloc:512000", "export:0", "wait", cap=cap)
            handle = owner.until("export")["handle"]
            return gpu.client("init", f"open:{handle}", "fill:1024", cap=cap)
        self.compare(scene)

    @rig.only_in_campaigns_on("470")
    def test_ipc_whose_owner_frees(self):
        """An opened allocation stays while the importer has it."""
        def scene(gpu, cap):
            owner = gpu.start("init", "alloc:512000", "export:0", "wait", "free:0", "fill:1024", "wait", cap=cap)
            handle = owner.until("export")["handle"]
            importer = gpu.start("init", f"open:{handle}", "wait", cap=cap)
            importer.until("ready")
            owner.go_on()
            return [owner.until("fill")]
        self.compare(scene)

    @rig.only_in_campaigns_on("470")
    def test_ipc_whose_owner_frees_in_stream_order(self):
        def scene(gpu, cap):
            owner = gpu.start("init", "alloc:512000", "export:0", "wait", "free_in_order:0", "fill:1024", "wait", cap=cap)
            handle = owner.until("export")["handle"]
            importer = gpu.start("init", f"open:{handle}", "wait", cap=cap)
            importer.until("ready")
            owner.go_on()
            self.assertEqual(owner.until("free_in_order")["rc"], 0)
            return [owner.until("fill")]
        self.compare(scene)

    @rig.only_in_campaigns_on("470")
    def test_ipc_whose_importer_closes_last(self):
        """What the owner frees is nobody's once the importer has closed it, though the owner does nothing more."""
        def scene(gpu, cap):
            owner = gpu.start("init", "alloc:512000", "export:0", "wait", "free:0", "wait", cap=cap)
            handle = owner.until("export")["handle"]
            importer = gpu.start("init", f"open:{handle}", "wait", "close:0", "fill:1024", cap=cap)
            importer.until("ready")
            owner.go_on()
            owner.until("ready")
            importer.go_on()
            return [importer.until("fill")]
        self.compare(scene)

    @rig.only_in_campaigns_on("470")
    def test_ipc_that_is_freed_beside_one_that_is_imported(self):
        """Of two exports the importer has the smaller one."""
        def scene(gpu, cap):
            owner = gpu.start("init", "alloc:512000", "alloc:204800", "export:0", "export:1", "wait", "free:0", "fill:1024",
                              "wait", cap=cap)
            owner.until("export")
            importer = gpu.start("init", f"open:{owner.until('export')['handle']}", "wait", cap=cap)
            importer.until("ready")
            owner.go_on()
            return [owner.until("fill")]
        self.compare(scene)

    @rig.only_in_campaigns_on("470")
    def test_ipc_whose_owner_dies_beside_an_import(self):
        """The importer has memory of another owner, which lives."""
        def scene(gpu, cap):
            owners = [gpu.start("init", f"alloc:{kib}", "export:0", "wait", cap=cap) for kib in (409600, 204800)]
            handle = [owner.until("export")["handle"] for owner in owners][1]
            importer = gpu.start("init", f"open:{handle}", "wait", "fill:1024", cap=cap)
            importer.until("ready")
            owners[0].end()
            importer.go_on()
            return [importer.until("fill")]
        self.compare(scene)

    def test_memory_that_another_process_holds_by_a_descriptor(self):
        """The exporter has freed the memory and closed its own descriptor."""
        def scene(gpu, cap):
            owner = gpu.start("init", "abandon:512000", "wait", "let_go", "fill:1024", "wait", "fill:1024", "wait", cap=cap)
            shared = owner.until("abandon")
            holder = gpu.start(f"hold:{shared['pid']}:{shared['fd']}", "wait", cap=cap)
            holder.until("ready")
            owner.until("ready")
            owner.go_on()
            answers = [owner.until("fill")]
            holder.end()
            owner.until("ready")
            owner.go_on()
            return [*answers, owner.until("fill")]
        self.compare(scene)

    def pool_whose_owner_destroys_it(self, *of_importer):
        """libcuda 535 leaves the memory with the owner. 550 leaves it with the importer, which has freed it too."""
        def scene(gpu, cap):
            owner = gpu.start("init", "pool_export:512000", "wait", "pool_end", "fill:1024", "wait", cap=cap)
            pool = owner.until("pool_export")
            pool_import = f"pool_import:{pool['pid']}:{pool['fd']}:{pool['handle']}"
            commands = [pool_import if command == "pool_import" else command for command in of_importer]
            importer = gpu.start("init", *commands, "wait", cap=cap)
            for _ in range(commands.count(pool_import)):
                self.assertEqual(importer.until("pool_import")["rc"], 0)
            importer.until("ready")
            owner.go_on()
            return [owner.until("fill")]
        self.compare(scene)

    @unittest.skipIf(BUILD.release == "470", NO_POOLS)
    def test_pool_whose_owner_destroys_it(self):
        self.pool_whose_owner_destroys_it("pool_import", "pool_end")

    @unittest.skipIf(BUILD.release == "470", NO_POOLS)
    def test_pool_that_is_imported_and_freed_again(self):
        """While the first import's pool lives, libcuda gives the same address again, and keeps its memory."""
        self.pool_whose_owner_destroys_it("pool_import", "pool_import", "pool_end", "pool_import", "pool_end")

    @unittest.skipIf(BUILD.release == "470", NO_POOLS)
    def test_pools_that_are_imported_at_one_address(self):
        """libcuda gives an address again once the first import is freed, and keeps the memory of both."""
        def scene(gpu, cap):
            owners = [gpu.start("init", "pool_export:204800", "wait", "pool_end", "wait", "fill:1024", "wait", cap=cap) for _ in range(2)]
            pools = [owner.until("pool_export") for owner in owners]
            imports = [[f"pool_import:{pool['pid']}:{pool['fd']}:{pool['handle']}", "pool_end"] for pool in pools]
            importer = gpu.start("init", *imports[0], *imports[1], "wait", cap=cap)
            first, second = importer.until("pool_import"), importer.until("pool_import")
            self.assertEqual(first["address"], second["address"])
            importer.until("ready")
            for owner in owners:
                owner.until("ready")
                owner.go_on()
                owner.until("ready")
            owners[1].go_on()
            return [owners[1].until("fill")]
        self.compare(scene)


    @unittest.skipIf(BUILD.release == "470", NO_POOLS)
    def test_chunks_of_a_pool(self):
        """The ledger knows which chunks of a pool are imported, and which the pool's descriptor holds no more."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            def judge(child, command="settled_info"):
                info = child.until(command)
                child.until("ready")
                self.assertEqual(info["total"] - info["free"], gpu.accounting()["used"])

            cap = f"{CAP_MIB}MiB"
            owner = gpu.start("init", "pool_export:102400", "pool_piece:65536", "info", "wait", "settled_info", "wait",
                              "pool_again:102400", "settled_info", "wait", "pool_again:51200", "settled_info", "wait", cap=cap)
            pool, piece = owner.until("pool_export"), owner.until("pool_piece")
            judge(owner, "info")
            importer = gpu.start("init", f"pool_import:{pool['pid']}:{pool['fd']}:{piece['handle']}", "wait", "pool_end",
                                 "settled_info", "wait", "settled_info", "wait", cap=cap)
            self.assertEqual(importer.until("pool_import")["rc"], 0)
            importer.until("ready")
            for child in owner, owner, owner, importer:
                child.go_on()
                judge(child)
            before = gpu.accounting()["used"]
            owner.end()
            importer.go_on()
            judge(importer)
            self.assertLess(gpu.accounting()["used"], before)


class MappedArrays(unittest.TestCase):
    """What an array keeps, or keeps until a stream gets there, is charged."""

    def judge(self, command):
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            answer = gpu.client("init", command, cap=f"{CAP_MIB}MiB")[-1]
            self.assertEqual(answer["used"], answer["rm"], answer)

    @unittest.skipIf(BUILD.release == "470", NO_POOLS)
    def test_memory_without_a_handle_beside_an_imported_pool(self):
        """RM's object goes with the handle. The requests to RM show how much the process has: its import may be an orphan."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            owners = [gpu.start("init", "pool_export:102400", "wait", cap=f"{CAP_MIB}MiB") for _ in range(2)]
            pools = [owner.until("pool_export") for owner in owners]
            words = [f"pool_import:{pool['pid']}:{pool['fd']}:{pool['handle']}" for pool in pools]
            importer = gpu.start("init", words[0], "wait", "keep_in_array:3072", "context", "info", "wait", cap=f"{CAP_MIB}MiB")
            other = gpu.start("init", words[1], "wait", cap=f"{CAP_MIB}MiB")
            for child in importer, other:
                child.until("ready")
            owners[1].end()
            importer.go_on()
            info = importer.until("info")
            importer.until("ready")
            self.assertEqual(info["total"] - info["free"], gpu.accounting()["used"])

    @unittest.skipIf(BUILD.release == "470", "deferred arrays came with CUDA 11.6")
    def test_memory_that_is_unmapped_behind_work(self):
        self.judge("unmap_behind_work:3072")

    @unittest.skipIf(BUILD.release == "470", "deferred arrays came with CUDA 11.6")
    def test_memory_that_is_unmapped_in_a_stream_that_is_destroyed(self):
        """Only a reading shows when the stream has unmapped it."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            child = gpu.start("init", "unmap_behind_work:3072:destroy", "settled_info", "wait", cap=f"{CAP_MIB}MiB")
            behind, info = child.until("unmap_behind_work"), child.until("settled_info")
            self.assertEqual(behind["used"], behind["rm"])
            self.assertEqual(info["total"] - info["free"], gpu.accounting()["used"])

    @unittest.skipIf(BUILD.release == "470", "deferred arrays came with CUDA 11.6")
    def test_memory_that_is_unmapped_behind_work_beside_an_import(self):
        """The import's owner has freed it: libcuda's count of the importer may include it. So no reading shows what is unmapped."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            cap = f"{CAP_MIB}MiB"
            owner = gpu.start("init", "alloc:102400", "export:0", "wait", "free:0", "wait", cap=cap)
            handle = owner.until("export")["handle"]
            importer = gpu.start("init", f"open:{handle}", "wait", "unmap_behind_work:3072", "settled_info", "wait", cap=cap)
            importer.until("ready")
            for child, until in (owner, "free"), (importer, "settled_info"):
                child.go_on()
                answer = child.until(until)
            self.assertEqual(answer["total"] - answer["free"], gpu.accounting()["used"])

    def test_a_part_that_is_mapped_again(self):
        self.judge("map_a_part_again:2048")


class Shown(unittest.TestCase):
    """nvidia-smi shows the cap as the GPU's memory."""

    def test_smi(self):
        with rig.Gpu(BUILD) as gpu:
            child = gpu.start("init", "alloc:102400", "wait", cap=f"{CAP_MIB}MiB")
            child.until("ready")
            query = gpu.run([BUILD.smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader"], f"{CAP_MIB}MiB")
            self.assertEqual(query.stdout.strip(), f"2048 MiB, {CONTEXT_MIB + 100} MiB", query.stderr)
            table = gpu.run([BUILD.smi], f"{CAP_MIB}MiB")
            self.assertRegex(table.stdout, rf"{CONTEXT_MIB + 100}MiB / +2048MiB", table.stderr)

    def test_cuda_shows_the_cap(self):
        with rig.Gpu(BUILD) as gpu:
            info = gpu.client("init", "alloc:102400", "info", cap=f"{CAP_MIB}MiB")[-1]
            self.assertEqual((info["total"] / MIB, info["free"] / MIB), (CAP_MIB, CAP_MIB - CONTEXT_MIB - 100))


    def test_what_is_told_to_be_free_is_granted(self):
        """A server of models runs its model once, asks how much is free, and takes most of it, 90 % say, for its cache."""
        profiling = {
            "nothing": [],
            "linear memory": ["alloc:512000", "alloc:100", "free:0"],
            "memory with gaps": [*["alloc:1100"] * 9, "free:1", "free:3", "free:5", "free:7"],
            "a pool": ["pool_cycle:512000"],
            "a captured graph": ["captured"],
            "a module that is loaded lazily": ["code:100", "launch"],
            "local memory": ["local:2048", "launch"],
        }
        for name, commands in profiling.items():
            with self.subTest(name), rig.Gpu(BUILD, CARD_MIB) as gpu:
                answer = gpu.client("init", *commands, "share:99", cap=f"{CAP_MIB}MiB")[-1]
                self.assertEqual(answer["rc"], 0, answer)
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)


class LocalMemory(unittest.TestCase):
    """And lazily loaded code: what a program is told is what RM counts."""

    def told(self, *commands, **more):
        """What memory info told as used after the commands, in MiB, when RM agreed."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            child = gpu.start("init", *commands, "info", "wait", cap=f"{CAP_MIB}MiB", **more)
            info = child.until("info")
            child.until("ready")
            used, accounting = info["total"] - info["free"], gpu.accounting()
            self.assertLessEqual(accounting["peak"], CAP_MIB * MIB, "RM's count")
            self.assertEqual(used, accounting["used"])
            return used / MIB

    def test_a_launch(self):
        self.assertEqual(self.told("local:2048"), CONTEXT_MIB + 2)
        self.assertEqual(self.told("local:2048", "launch"), CONTEXT_MIB + 2 + 192)
        self.assertEqual(self.told("local:2048", "launch", CUDA_MODULE_LOADING="EAGER"), CONTEXT_MIB + 2 + 192)
        # The driver gives the old local memory back first, and has none then.
        self.assertEqual(self.told("local:16384", "launch"), CONTEXT_MIB + 2 - 300)

    def test_a_function_for_which_it_is_reserved(self):
        self.assertEqual(self.told("local:2048", FRACGPU_RESERVE_LOCAL="on"), CONTEXT_MIB + 2 + 192)
        self.assertEqual(self.told("local:2048", "launch", FRACGPU_RESERVE_LOCAL="on"), CONTEXT_MIB + 2 + 192)

    @unittest.skipIf(BUILD.release < "550", "it came with CUDA 12.4")
    def test_functions_that_were_enumerated(self):
        """The array may have more room than the module has functions; the driver does not write what is left of it."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            answers = gpu.client("init", "enumerate:2048:9", "enumerate:65000:9", "info", cap=f"{CAP_MIB}MiB",
                                 FRACGPU_RESERVE_LOCAL="on")
            functions = answers[1]["count"]
            self.assertGreater(functions, 0)
            self.assertEqual(answers[1], {"command": "enumerate:2048:9", "rc": 0, "count": functions, "untouched": 9 - functions})
            self.assertEqual(answers[2], {"command": "enumerate:65000:9", "rc": 2, "count": 0, "untouched": 9 - functions})
            self.assertEqual(answers[3]["total"] - answers[3]["free"], gpu.accounting()["peak"])

    def test_a_stack_limit_stays_above_what_a_function_needs(self):
        self.assertEqual(self.told("local:2048", "stack:1024", FRACGPU_RESERVE_LOCAL="on"), CONTEXT_MIB + 2 + 192)
        self.assertEqual(self.told("local:2048", "stack:1024"), CONTEXT_MIB + 2)
        self.assertEqual(self.told("stack:4096", "stack:1024"), CONTEXT_MIB)

    @unittest.skipIf(BUILD.release == "470", "lazy loading came with CUDA 11.7")
    def test_code_that_came_lazily(self):
        self.assertEqual(self.told("code:60"), CONTEXT_MIB + 4)

    def test_a_wrong_setting_is_said_once(self):
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            result = gpu.run([*rig.CLIENT, "init", "local:2048", "local:4096"], f"{CAP_MIB}MiB", FRACGPU_RESERVE_LOCAL="maybe")
            self.assertRegex(result.stderr, "FRACGPU_RESERVE_LOCAL='maybe' is neither \"on\" nor \"off\"; it counts as not set\n$")
            self.assertEqual(result.stderr.count("\n"), 1)


class Holes(unittest.TestCase):
    """Small allocations at a full cap, which fit into the holes of chunks that the driver has."""

    def test_a_hole_that_is_not_there(self):
        """Memory that the library does not know of lies in the hole. The driver is refused a new chunk."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            answers = gpu.client("init", "alloc:1500", "fill:2048", "alloc:400", "free:-1", "alloc_unseen:548", "alloc:400",
                                 "free:1", "alloc:400", cap=f"{CAP_MIB}MiB")
            self.assertEqual([answer["rc"] for answer in answers[3:]], [0, 0, 0, 2, 0, 0])
            self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)

    def test_a_driver_that_places_them_otherwise(self):
        """The same where the library does not see the driver's requests: it cannot refuse the chunk, and frees it at once."""
        with rig.Gpu(BUILD, CARD_MIB) as gpu:
            child = gpu.start("unseen", "init", "alloc:1500", "fill:2048", "alloc:400", "free:-1", "alloc_unseen:548", "alloc:400",
                              "wait", "alloc:400", "alloc:1", "wait", "free:1", "alloc:400", "alloc:400", "free:2", "alloc:400",
                              "fill:2048", "alloc:400", "wait", cap=f"{CAP_MIB}MiB")
            child.until("fill")
            self.assertEqual([child.answer()["rc"] for _ in range(4)], [0, 0, 0, 2], "a hole is used, and then it is not there")
            child.until("ready")
            accounting = gpu.accounting()
            self.assertGreater(accounting["peak"], CAP_MIB * MIB, "the driver took no new chunk")
            self.assertLessEqual(accounting["peak"], (CAP_MIB + 2) * MIB, "and no more")
            self.assertLessEqual(accounting["used"], CAP_MIB * MIB, "and the library freed it at once")
            gpu.reset()
            child.go_on()
            self.assertEqual([child.until("alloc")["rc"] for _ in range(2)], [2, 2], "no hole is relied on")
            child.until("ready")
            child.go_on()
            child.until("free:1")
            self.assertEqual(child.answer()["rc"], 0, "there is room for a chunk")
            self.assertEqual(child.answer()["rc"], 2, "there is a hole, but no room for a chunk")
            self.assertEqual([child.answer()["rc"] for _ in range(2)], [0, 0], "there is room, though it will not be needed")
            self.assertEqual(child.answer()["granted"], 2 * MIB, "the driver used the hole")
            self.assertEqual(child.answer()["rc"], 2)
            child.until("ready")
            self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
            child.go_on()
            _, messages = child.process.communicate(timeout=60)
            self.assertEqual(messages.count("this driver does not place small allocations as libcuda"), 1, messages)


class WithoutNvml(unittest.TestCase):
    """Contexts are charged by an estimate. All else is what libcuda asks its kernel driver for."""

    def test_fills(self):
        for name in ("modules", "arrays of 256 KiB", "streams at a full cap", "local memory at a full cap"):
            with self.subTest(name), rig.Gpu(BUILD, CARD_MIB) as gpu:
                gpu.client("init", *FILLS[name], cap=f"{CAP_MIB}MiB", FRACGPU_NVML="off")
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
                self.assertGreater(gpu.accounting()["peak"], (CAP_MIB - 320) * MIB, "hardly filled")


class Unseen(unittest.TestCase):
    """Where the library does not see libcuda's requests, what it foresees of each call and its readings keep the cap."""

    @unittest.skipIf(BUILD.release == "470", "it loads all code at once, so the library foresees no local memory")
    def test_fills(self):
        for name in (*BY_RELEASE, "graph nodes that are uploaded at instantiation"):
            with self.subTest(name), rig.Gpu(BUILD, CARD_MIB) as gpu:
                gpu.client("unseen", "init", *FILLS[name], cap=f"{CAP_MIB}MiB")
                self.assertLessEqual(gpu.accounting()["peak"], CAP_MIB * MIB)
                self.assertGreater(gpu.accounting()["peak"], (CAP_MIB - 128) * MIB, "hardly filled")


rig.add_fills(Fill, FILLS, lambda gpu, commands, cap: gpu.client("init", *commands, cap=cap), BY_RELEASE + LIBRARIES_BY_RELEASE)
if BUILD.release == "470":
    for test in [name for name in vars(Fill) if "_library_" in name or "_uploaded_" in name]:  # they came with CUDA 12.0
        delattr(Fill, test)

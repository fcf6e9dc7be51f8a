"""Calls of all families in random order, which client.py makes by its commands `random` and `replay`."""
import collections
import contextlib
import fcntl
import functools
import json
import os
import random
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from cuda_calls import (ALREADY_MAPPED, ATTACH_GLOBAL, AccessDescription, ArrayDescription, BY_DESCRIPTOR, CUDA, DEFERRED,
                        Failed, Handle, KIB, KernelNode, MIB, ON_HOST, OUT_OF_MEMORY, PINNED, PoolProperties, READ_WRITE,
                        SPARSE, UNMAP, allocate, array_of_tiles, ask, call, compiled, compressed, create_green_context,
                        create_physical, device, end_pool, export_physical, export_pool, function_of, graph_with_memory,
                        import_pool, launch, load_module, location)
from script import accounting, descriptor_of


NOT_MADE = -1  # the result of a call that the driver would not survive


def rm_count():
    """Bytes in use on the first GPU."""
    return accounting(os.environ["RMSIM"], os.environ["RMSIM_STATE"])[0]["used"]


class Board:
    """Notes on exported memory: one file each, in a folder that all processes of a test share.

    An importer holds a shared lock on the note, and the exporter takes an exclusive lock before it frees the memory. So an
    import must succeed while the exporter lives. Imported memory may be freed by its exporter.
    """

    pinned = 0  # by all boards of this process

    def __init__(self, folder):
        self.folder = folder
        self.name = os.environ.get("RANDOM_NAME", str(os.getpid()))  # of this process

    def pin(self, **note):
        """Returns a function that takes the note down, around what frees the memory."""
        Board.pinned += 1
        path = f"{self.folder}/{self.name}-{Board.pinned}"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), **note}, file)
        os.rename(f"{path}.new", path)

        @contextlib.contextmanager
        def down():
            with open(path, encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
                os.unlink(path)
        return down

    @contextlib.contextmanager
    def note(self, choose):
        """Another process's, or None. Nobody frees what it names meanwhile."""
        names = [name for name in os.listdir(self.folder) if not name.startswith(f"{self.name}-") and not name.endswith(".new")]
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open(f"{self.folder}/{choose(sorted(names))}", encoding="utf-8"))
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except (IndexError, FileNotFoundError, BlockingIOError):
                yield None
                return
            yield json.load(file) if os.fstat(file.fileno()).st_nlink > 0 else None


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}/exe")  # of a zombie there is none


class RandomCalls:
    """Makes and destroys; what lives is a list of functions that end it. With RANDOM_BOARD, a folder, it exports and imports too.

    RANDOM_KINDS replaces the families of calls, RANDOM_MORE adds some.
    """

    KINDS = ("linear", "linear", "linear", "large", "pitched", "ordered", "ordered", "physical", "array", "stream", "module",
             "graph", "local", "limit", "wait", "pool", "memory_graph", "trim", "library", "context", "mapped",
             "lazy", "lazy", "large", "sparse", "deferred")  # and where a test adds them "code", "green", "managed"
    SHARING = ("exported", "exported_physical", "exported_pool", "imported", "imported", "imported")
    # The function with which a family came.
    NEEDS = {"library": "cuLibraryLoadData", "green": "cuGreenCtxCreate", "deferred": "cuArrayGetMemoryRequirements"}
    LASTING = ("local", "limit", "code")  # whose memory stays when they end
    LONG = range(4)
    MOST_ALIVE = 400
    managed_chunks = collections.Counter()  # by their numbers, with the allocations of this process in them
    MOST_POOLS = 2  # that are exported: libcuda 535 never gives their memory back

    def __init__(self, seed):
        self.seed = seed
        self.number = 0  # of the call
        self.board = Board(os.environ["RANDOM_BOARD"]) if "RANDOM_BOARD" in os.environ else None
        self.kinds = os.environ.get("RANDOM_KINDS", " ".join(self.KINDS + (self.SHARING if self.board else ()))).split()
        self.kinds += os.environ.get("RANDOM_MORE", "").split()
        self.exact = not {"ordered", "graph", "memory_graph", *self.LASTING}.intersection(self.kinds)
        self.alive = []
        self.replays = False  # is replayed, or a replay
        self.refusals = []  # the number of the call, and RM's count
        self.replayed = None  # these of the run that is replayed
        self.judged, self.alike, self.wrong = 0, 0, []
        self.own = c_void_p()
        call("cuCtxGetCurrent", byref(self.own))
        self.imports = self.pools = 0
        self.pool_imports = set()  # addresses
        self.lazy_modules = []
        self.images = [compiled(size) for size in (4, 3 * MIB, 5 * MIB)]
        rc, module = load_module(self.images[0])
        self.function = function_of(module, "nothing") if rc == 0 else None
        self.local_images = [compiled(4, local) for local in (1100, 1300, 1600)]

    def step(self):
        self.number += 1
        self.random = random.Random(f"{self.seed} {self.number}")  # whatever an earlier call drew
        if self.alive and (len(self.alive) >= self.MOST_ALIVE or self.random.random() < 0.42):
            self.alive.pop(self.random.randrange(len(self.alive)))()
            return
        kind = self.random.choice(self.kinds)
        if (kind == "graph" and self.function is None) or not hasattr(CUDA, self.NEEDS.get(kind, "cuInit")):
            return
        if self.replayed is not None and self.number in self.replayed:
            self.judge(kind)
            return
        rc, end = getattr(self, kind)()
        if rc == 0:
            if end is not None:
                self.alive.append(end)
        elif rc in (OUT_OF_MEMORY, NOT_MADE) and self.replayed is None:
            self.refusals.append((self.number, self.count() if self.replays and rc == OUT_OF_MEMORY else None))
        else:
            raise Failed(f"{kind}: {rc}")

    def judge(self, kind):
        """Makes a call that was refused, and undoes it."""
        if kind in self.LASTING or self.replayed[self.number] is None:
            return
        before, self.chunk = self.count(), 2 * MIB
        rc, end = getattr(self, kind)()
        if rc != 0:
            raise Failed(f"{kind}: {rc}")
        after, in_use = self.count(), self.replayed[self.number]
        if end is not None:
            end()
        self.judged += 1
        self.alike += before == in_use
        taken = after - before
        if not self.exact or before != in_use:  # other chunks are there, with other holes
            taken = max(taken, self.chunk)
        if max(in_use + taken, after) <= self.most:
            self.wrong.append(f"call {self.number}, {kind}: takes {taken / MIB} MiB, {in_use / MIB} were in use, here {before / MIB}")

    def count(self):
        """RM's, and the managed memory of this process. That is host memory here, so RM does not count it, but a cap does."""
        return rm_count() + self.managed_bytes()

    def managed_bytes(self):
        return len(+self.managed_chunks) * 2 * MIB

    def linear(self):
        size = self.random.choice((1, 512, 4096, 70000, 300 * KIB, MIB, 1500 * KIB, 2 * MIB - 1))
        rc, address = allocate(size)
        return rc, lambda: call("cuMemFree_v2", address)

    def large(self):
        rc, address = allocate(self.random.randrange(2 * MIB, 40 * MIB))
        return rc, lambda: call("cuMemFree_v2", address)

    def pitched(self):
        address, pitch = c_ulonglong(), c_size_t()
        rows = self.random.randrange(1, 3000)
        rc = ask("cuMemAllocPitch_v2", byref(address), byref(pitch), c_size_t(1000), c_size_t(rows), 4)
        return rc, lambda: call("cuMemFree_v2", address)

    def ordered(self):
        address, size = c_ulonglong(), self.random.randrange(1, 50 * MIB)
        self.chunk = -(-size // (32 * MIB)) * 32 * MIB
        rc = ask("cuMemAllocAsync", byref(address), c_size_t(size), None)
        return rc, lambda: call("cuMemFreeAsync", address, None)

    def physical(self):
        rc, handle = create_physical(self.random.randrange(1, 10) * 2 * MIB)
        return rc, lambda: call("cuMemRelease", handle)

    def array(self):
        array, side = c_void_p(), self.random.choice((64, 256, 700, 1024))
        rc = ask("cuArrayCreate_v2", byref(array), byref(ArrayDescription(side, side, 0x20, 1)))
        return rc, lambda: call("cuArrayDestroy", array)

    def managed(self):
        """Managed memory, which the program prefers on the device or on the host."""
        size = self.random.choice((512, 70000, 300 * KIB, MIB, 3 * MIB, self.random.randrange(2 * MIB, 40 * MIB)))
        address = c_ulonglong()
        rc = ask("cuMemAllocManaged", byref(address), c_size_t(size), ATTACH_GLOBAL)
        if rc != 0:
            return rc, None
        chunks = range(address.value // (2 * MIB), -(-(address.value + size) // (2 * MIB)))
        self.managed_chunks.update(chunks)
        for _ in range(self.random.randrange(3)):
            call("cuMemAdvise", address, c_size_t(size), self.random.randrange(1, 7), self.random.choice((device(), ON_HOST)))
            call("cuMemPrefetchAsync", address, c_size_t(size), self.random.choice((device(), ON_HOST)), None)

        def end():
            call("cuMemFree_v2", address)
            self.managed_chunks.subtract(chunks)
        return 0, end

    def mapped(self):
        """Of cuMemCreate, mapped: the handle or the mapping goes first."""
        size, address = self.random.randrange(1, 10) * 2 * MIB, c_ulonglong()
        rc, handle = create_physical(size)
        if rc != 0:
            return rc, None
        call("cuMemAddressReserve", byref(address), c_size_t(size), c_size_t(0), c_ulonglong(0), c_ulonglong(0))
        call("cuMemMap", address, c_size_t(size), c_size_t(0), handle, c_ulonglong(0))
        call("cuMemSetAccess", address, c_size_t(size), byref(AccessDescription(location(), READ_WRITE)), c_size_t(1))
        early = self.random.random() < 0.5
        if early:
            call("cuMemRelease", handle)

        def end():
            call("cuMemUnmap", address, c_size_t(size))
            call("cuMemAddressFree", address, c_size_t(size))
            if not early:
                call("cuMemRelease", handle)
        return 0, end

    def sparse(self):
        return self.array_that_is_mapped(SPARSE)

    def deferred(self):
        return self.array_that_is_mapped(DEFERRED)

    def array_that_is_mapped(self, flag):
        """A square array of floats, all of it mapped to memory, whose handle goes first or last."""
        side = self.random.choice((1024, 2048, 3072))
        rc, array, mapping = array_of_tiles(side, flag)
        if rc != 0:
            return rc, None
        rc, memory = create_physical(4 * side * side, tiles=True)
        if rc != 0:
            call("cuArrayDestroy", array)
            return rc, None
        mapping.memory = memory
        call("cuMemMapArrayAsync", byref(mapping), 1, None)
        call("cuStreamSynchronize", None)  # libcuda may crash if the array ends before that, also without the library
        early, unmaps = self.random.random() < 0.5, self.random.random() < 0.5
        if early:
            call("cuMemRelease", memory)

        def end():
            if unmaps:
                mapping.operation, mapping.memory = UNMAP, 0
                call("cuMemMapArrayAsync", byref(mapping), 1, None)
                call("cuStreamSynchronize", None)
            call("cuArrayDestroy", array)
            if not early:
                call("cuMemRelease", memory)
        return 0, end

    def wait(self):
        """Pools give back what is free once their stream has been waited for."""
        call("cuStreamSynchronize", None)
        return 0, None

    def stream(self):
        stream = c_void_p()
        rc = ask("cuStreamCreate", byref(stream), 1)
        return rc, lambda: call("cuStreamDestroy_v2", stream)

    def module(self):
        rc, module = load_module(self.random.choice(self.images))
        return rc, lambda: call("cuModuleUnload", module)

    def local(self):
        """A launch of a kernel whose threads have more local memory than the context, at first."""
        rc, module = load_module(self.random.choice(self.local_images))
        if rc != 0:
            return rc, None
        function = c_void_p()
        rc = ask("cuModuleGetFunction", byref(function), module, b"local") or launch(function)
        if rc != 0:
            call("cuModuleUnload", module)
        return rc, lambda: call("cuModuleUnload", module)

    @functools.cached_property
    def long_image(self):
        """Of code without optimisation, which is compiled fast."""
        body = "st.volatile.global.u32 [%to], %value;" * 3000
        functions = (f""".visible .entry long{i}() {{
          .reg .b64 %to; .reg .b32 %value; mov.u64 %to, data; mov.u32 %value, %clock; {body} ret; }}""" for i in self.LONG)
        return compiled(4, more="".join(functions), level=0)

    def lazy(self):
        """A module of functions with 240 KiB of code each, which is loaded only with them."""
        rc, module = load_module(self.long_image)
        if rc != 0:
            return rc, None
        self.lazy_modules.append(module)

        def end():
            self.lazy_modules.remove(module)
            call("cuModuleUnload", module)
        return 0, end

    def code(self):
        """A function of such a module, got and perhaps launched, so that its code is loaded."""
        if not self.lazy_modules:
            return 0, None
        module, name, function = self.random.choice(self.lazy_modules), f"long{self.random.choice(self.LONG)}", c_void_p()
        rc = ask("cuModuleGetFunction", byref(function), module, name.encode())
        if rc == 0 and hasattr(CUDA, "cuFuncLoad") and self.random.random() < 0.3:
            rc = ask("cuFuncLoad", function)
        if rc == 0 and self.random.random() < 0.5:
            rc = launch(function)
        return rc, None

    def fits(self, size):
        rc, address = allocate(size)
        if rc == 0:
            call("cuMemFree_v2", address)
        return rc == 0

    def green(self):
        """A green context with a stream and an allocation. What nobody frees goes with the primary context.

        libcuda 550 crashes if there is room for the primary context but not for the green one, also without the library on a
        full device. So only a process that has all memory to itself may do this.
        """
        flags, active = c_uint(), c_int()
        call("cuDevicePrimaryCtxGetState", device(), byref(flags), byref(active))
        needed = 8 * MIB if active else 392 * MIB
        if not self.fits(needed) and (active or self.fits(needed - 16 * MIB)):
            return NOT_MADE, None
        self.chunk = 400 * MIB  # the primary context comes with the first one
        rc, green, context = create_green_context()
        if rc != 0:
            return rc, None
        stream, address, size = c_void_p(), c_ulonglong(), self.random.choice((512, MIB, 5 * MIB))
        call("cuCtxSetCurrent", context)
        rc = ask("cuStreamCreate", byref(stream), 1) or ask("cuMemAlloc_v2", byref(address), c_size_t(size))
        call("cuCtxSetCurrent", self.own)
        frees = self.replays or self.random.random() < 0.7

        def end():
            call("cuCtxSetCurrent", context)
            if stream and frees:
                call("cuStreamDestroy_v2", stream)
            if address.value and frees:
                call("cuMemFree_v2", address)
            call("cuCtxSetCurrent", self.own)
            call("cuGreenCtxDestroy", green)
        if rc != 0:
            end()
        return rc, end

    def limit(self):
        number, most = self.random.choice(((0, 1800), (0, 1800), (1, 256 * MIB), (2, 256 * MIB), (3, 8), (4, 4096)))
        return ask("cuCtxSetLimit", number, c_size_t(self.random.randrange(most * 5 // 9, most))), None

    def graph(self):
        """Of kernels: a chain, or all beside each other."""
        one = (c_uint * 3)(1, 1, 1)
        parameters = KernelNode(function=self.function, grid=one, block=one)
        graph, last, executable = c_void_p(), c_void_p(), c_void_p()
        call("cuGraphCreate", byref(graph), 0)
        chained = self.random.random() < 0.5
        for i in range(self.random.randrange(1, 60)):
            node, after = c_void_p(), chained and i > 0
            call("cuGraphAddKernelNode", byref(node), graph, byref(last) if after else None, c_size_t(int(after)), byref(parameters))
            last = node
        rc = ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
        call("cuGraphDestroy", graph)
        return rc, lambda: call("cuGraphExecDestroy", executable)

    def pool(self):
        """With one allocation."""
        pool, address, size = c_void_p(), c_ulonglong(), self.random.randrange(1, 40 * MIB)
        self.chunk = -(-size // (32 * MIB)) * 32 * MIB
        call("cuMemPoolCreate", byref(pool), byref(PoolProperties(alloc_type=PINNED, location=location())))
        rc = ask("cuMemAllocFromPoolAsync", byref(address), c_size_t(size), pool, None)
        if rc != 0:
            call("cuMemPoolDestroy", pool)
        return rc, lambda: end_pool(pool, address)

    def memory_graph(self):
        """With memory of its own, launched."""
        size = self.random.randrange(1, 40 * MIB)
        self.chunk = -(-size // (32 * MIB)) * 32 * MIB
        rc, executable = graph_with_memory(size, freed=True)
        if rc == 0:
            rc = ask("cuGraphLaunch", executable, None)
            if rc != 0:
                call("cuGraphExecDestroy", executable)
        return rc, lambda: call("cuGraphExecDestroy", executable)

    def trim(self):
        """What graphs and the default pool keep unused."""
        pool = c_void_p()
        call("cuDeviceGraphMemTrim", device())
        call("cuDeviceGetDefaultMemPool", byref(pool), device())
        call("cuMemPoolTrimTo", pool, c_size_t(0))
        return 0, None

    def library(self):
        library, module = c_void_p(), c_void_p()
        call("cuLibraryLoadData", byref(library), compressed(self.random.choice(self.images)), None, None, 0, None, None, 0)
        rc = ask("cuLibraryGetModule", byref(module), library)
        if rc != 0:
            call("cuLibraryUnload", library)
        return rc, lambda: call("cuLibraryUnload", library)

    def context(self):
        context = c_void_p()
        self.chunk = 400 * MIB
        rc = ask("cuCtxCreate_v2", byref(context), 0, device())
        call("cuCtxSetCurrent", self.own)
        return rc, lambda: call("cuCtxDestroy_v2", context)

    def exported(self):
        size, handle = self.random.choice((300 * KIB, MIB, 2 * MIB, 9 * MIB, 30 * MIB)), Handle()
        rc, address = allocate(size)
        if rc != 0:
            return rc, None
        call("cuIpcGetMemHandle", byref(handle), address)
        down = self.board.pin(way="linear", handle=handle.hex())

        def end():
            with down():
                call("cuMemFree_v2", address)
        return 0, end

    def exported_physical(self):
        size = self.random.randrange(1, 12) * 2 * MIB
        rc, handle, fd = export_physical(size)
        if rc != 0:
            return rc, None
        down = self.board.pin(way="physical", fd=fd)

        def end():
            with down():
                if self.replays:  # what a descriptor holds is given back at the owner's next call
                    os.close(fd)
                call("cuMemRelease", handle)
                if not self.replays:
                    os.close(fd)
        return 0, end

    def exported_pool(self):
        if self.pools == self.MOST_POOLS:
            return 0, None
        self.pools += 1
        size = self.random.randrange(1, 40 * MIB)
        rc, pool, address, fd, handle = export_pool(size)
        if rc != 0:
            return rc, None
        down = self.board.pin(way="pool", fd=fd, handle=handle)

        def end():
            with down():
                end_pool(pool, address)
                os.close(fd)
        return 0, end

    def imported(self):
        with self.board.note(lambda names: names[self.random.randrange(len(names)) if names else 0]) as note:
            if note is None:
                return 0, None
            try:
                rc, end = getattr(self, "import_" + note["way"])(note)
            except OSError:
                rc, end = -1, None
            if rc == ALREADY_MAPPED or (rc not in (0, OUT_OF_MEMORY) and not is_alive(note["pid"])):
                return 0, None
        if rc != 0 or end is None:
            return rc, end
        self.imports += 1
        return rc, end

    def import_linear(self, note):
        address, handle = c_ulonglong(), Handle.of_hex(note["handle"])
        rc = ask("cuIpcOpenMemHandle_v2", byref(address), handle, 1)
        return rc, lambda: call("cuIpcCloseMemHandle", address)

    def import_physical(self, note):
        handle, fd = c_ulonglong(), descriptor_of(note["pid"], note["fd"])
        rc = ask("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), BY_DESCRIPTOR)
        os.close(fd)
        return rc, lambda: call("cuMemRelease", handle)

    def import_pool(self, note):
        rc, pool, address = import_pool(note["pid"], note["fd"], note["handle"])
        if rc != 0 or address.value in self.pool_imports:  # libcuda gives the same pool and address again, and counts once
            return rc, None
        self.pool_imports.add(address.value)

        def end():
            self.pool_imports.discard(address.value)
            end_pool(pool, address)
        return rc, end

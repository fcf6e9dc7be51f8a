"""client.py COMMAND...: uses CUDA's driver as the commands say, one after another, and answers each with one line of JSON.

A command is NAME or NAME:ARGUMENT:...; sizes are in KiB. Each fill goes on until the driver refuses and answers with the
bytes that it got. `wait` answers and reads a line, so that nobody needs to sleep.
"""
import ctypes
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from cuda_calls import (AccessDescription, AllocationNode, ArrayDescription, BY_DESCRIPTOR, CUDA, DEFERRED, Device, Failed,
                        Handle, KIB, KernelNode, MIB, OUT_OF_MEMORY, PINNED, PoolProperties, READ_WRITE, RESERVED, SPARSE,
                        UNMAP, allocate, array_of_tiles, ask, call, compiled, compressed, create_green_context,
                        create_physical, device, end_pool, export_physical, export_pool, function_of, graph_with_memory,
                        import_pool, launch, load_module, location, source)
from cuda_types import ExternalMemory
from random_calls import RandomCalls, rm_count
from script import Script, descriptor_of

MOST = 200000  # calls of one fill: the end of a driver that never refuses
PRINTS = """.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);
.visible .entry prints() {
  .reg .b64 %to; mov.u64 %to, data;
  { .param .b64 format, values; .param .b32 result; st.param.b64 [format], %to; st.param.b64 [values], %to;
    call.uni (result), vprintf, (format, values); }
  ret;
}
"""


class DriverFile:
    """libcuda by its file and where it lies: no look-up of the C library, which might find another function."""

    def __init__(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            line = next(line for line in maps if "/libcuda.so" in line)
        self.base, path = int(line.split("-")[0], 16), line.split()[-1]
        with open(path, "rb") as file:
            self.image = file.read()
        sections, size, count = *struct.unpack_from("<Q", self.image, 40), *struct.unpack_from("<HH", self.image, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.image, sections + i * size) for i in range(count)]
        self.tables = [header for header in headers if header[1] == 4]  # SHT_RELA
        self.symbols = next(header for header in headers if header[1] == 11)  # SHT_DYNSYM
        self.names = headers[self.symbols[6]][4]

    def is_symbol(self, at, name):
        return self.image.startswith(name.encode() + b"\0", self.names + struct.unpack_from("<I", self.image, at)[0])

    def function(self, name):
        at = next(at for at in range(self.symbols[4], self.symbols[4] + self.symbols[5], 24) if self.is_symbol(at, name))
        return ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t)(self.base + struct.unpack_from("<Q", self.image, at + 8)[0])

    def import_slot(self, name):
        """Where the address of a function of another library lies."""
        for table in self.tables:
            for at in range(table[4], table[4] + table[5], 24):
                offset, info = struct.unpack_from("<QQ", self.image, at)
                if info & 0xffffffff == 7 and self.is_symbol(self.symbols[4] + 24 * (info >> 32), name):  # R_X86_64_JUMP_SLOT
                    return c_ulonglong.from_address(self.base + offset)
        raise Failed(f"libcuda does not import {name}")


def fill(take):
    """Calls take(), which returns the result of a call and the bytes it is for, until it is refused."""
    granted = count = 0
    for _ in range(MOST):
        rc, size = take()
        if rc != 0:
            return {"granted": granted, "count": count, "rc": rc}
        granted += size
        count += 1
    raise Failed("never refused")


class Commands(Script):
    """Each method is a command."""

    def __init__(self):
        super().__init__()
        self.kept = []
        self.first_contexts = {}
        self.function = None
        self.nothing = {}  # a function of each device
        self.executables = []
        self.mixes = {}

    def init(self):
        """With PRIMARY_CONTEXT, the context is the device's own, as that of CUDA's runtime."""
        call("cuInit", 0)
        return self.primary_context() if os.environ.get("PRIMARY_CONTEXT") else self.context()

    def unseen(self):
        """Hides libcuda's requests to the kernel driver from the library. Must come before `init`."""
        call("cuInit", 0)
        call("cuDeviceTotalMem_v2", byref(c_size_t()), device())
        DriverFile().import_slot("ioctl").value = ctypes.cast(ctypes.CDLL(None).ioctl, c_void_p).value
        return {}

    def context(self):
        context = c_void_p()
        rc = ask("cuCtxCreate_v2", byref(context), 0, device())
        self.first_contexts.setdefault(Device.number, context)
        return {"rc": rc}

    def primary_context(self):
        context = c_void_p()
        rc = ask("cuDevicePrimaryCtxRetain", byref(context), device())
        if rc == 0:
            call("cuCtxSetCurrent", context)
        self.first_contexts.setdefault(Device.number, context)
        return {"rc": rc}

    def gpu(self, number):
        """From now on commands use this device, in its first context, which is made if there is none."""
        self.location(number)
        if Device.number not in self.first_contexts:
            return self.context()
        return {"rc": ask("cuCtxSetCurrent", self.first_contexts[Device.number])}

    def location(self, number):
        """From now on commands use this device, but what needs no context of it stays in the current one."""
        Device.number = int(number)
        return {"rc": 0}

    def alloc(self, kib):
        rc, address = allocate(int(kib) * KIB)
        self.kept.append(address)
        return {"rc": rc, "address": address.value}

    def alloc_unseen(self, kib):
        """Calls libcuda's own function, so that the library does not see the allocation."""
        address = c_ulonglong()
        return {"rc": DriverFile().function("cuMemAlloc_v2")(byref(address), c_size_t(int(kib) * KIB)), "address": address.value}

    def free(self, index):
        return {"rc": ask("cuMemFree_v2", self.kept[int(index)])}

    def free_in_order(self, index):
        return {"rc": ask("cuMemFreeAsync", self.kept[int(index)], None) or ask("cuStreamSynchronize", None)}

    def info(self):
        free, total = c_size_t(), c_size_t()
        rc = ask("cuMemGetInfo_v2", byref(free), byref(total))
        return {"rc": rc, "free": free.value, "total": total.value}

    def settled_info(self):
        """Memory info after a refused allocation, before which the library reads the usage."""
        time.sleep(0.11)  # the library reads it at most each 100 ms
        return {"refusal": allocate(1 << 50)[0], **self.info()}

    def synchronize(self):
        return {"rc": ask("cuCtxSynchronize")}

    def share(self, percent):
        """One allocation, of so much of what is told to be free: as a program that sizes its cache by memory info."""
        size = self.info()["free"] * int(percent) // 100
        return {"rc": allocate(size)[0], "size": size}

    # ---- What the driver must do

    def copies(self):
        """Copies and fills of many sizes and alignments, on two streams; the content is compared."""
        rc, base = allocate(4 * MIB)
        if rc != 0:
            return {"rc": rc}
        wrong = []
        for size in (1, 3, 4, 64, 100, 513, 4096, 65537, MIB, MIB + 5):
            for offset in (0, 1, 4):
                content = bytes((i * 7 + size + offset) % 251 for i in range(size))
                back = ctypes.create_string_buffer(size)
                to, from_ = base.value + offset, base.value + 2 * MIB + 3 * offset
                call("cuMemcpyHtoD_v2", c_ulonglong(from_), content, c_size_t(size))
                call("cuMemcpyDtoD_v2", c_ulonglong(to), c_ulonglong(from_), c_size_t(size))
                call("cuMemcpyDtoH_v2", back, c_ulonglong(to), c_size_t(size))
                if back.raw != content:
                    wrong.append(f"copy of {size} at {offset}")
                call("cuMemsetD8_v2", c_ulonglong(to), ctypes.c_ubyte(size % 256), c_size_t(size))
                call("cuMemcpyDtoH_v2", back, c_ulonglong(to), c_size_t(size))
                if back.raw != bytes([size % 256]) * size:
                    wrong.append(f"fill of {size} at {offset}")
        words = ctypes.create_string_buffer(40000)
        for name, value, pattern in (("cuMemsetD16_v2", ctypes.c_ushort(0x1234), b"\x34\x12"),
                                     ("cuMemsetD32_v2", c_uint(0x12345678), b"\x78\x56\x34\x12")):
            call(name, base, value, c_size_t(40000 // len(pattern)))
            call("cuMemcpyDtoH_v2", words, base, c_size_t(40000))
            if words.raw != pattern * (40000 // len(pattern)):
                wrong.append(name)
        return {"wrong": wrong}

    def ordered_streams(self):
        """One stream fills, another waits for its event and copies."""
        rc, memory = allocate(4 * MIB)
        streams, event = [c_void_p(), c_void_p()], c_void_p()
        for stream in streams:
            call("cuStreamCreate", byref(stream), 1)
        call("cuEventCreate", byref(event), 0)
        wrong = 0
        for value in range(1, 20):
            call("cuMemsetD32Async", memory, c_uint(value), c_size_t(MIB // 4), streams[0])
            call("cuEventRecord", event, streams[0])
            call("cuStreamWaitEvent", streams[1], event, 0)
            call("cuMemcpyDtoDAsync_v2", c_ulonglong(memory.value + 2 * MIB), memory, c_size_t(MIB), streams[1])
            call("cuStreamSynchronize", streams[1])
            seen = c_uint()
            call("cuMemcpyDtoH_v2", byref(seen), c_ulonglong(memory.value + 3 * MIB - 4), c_size_t(4))
            wrong += seen.value != value
        return {"rc": rc, "wrong": wrong}

    def captured(self):
        """A graph that was captured, launched three times."""
        memory, stream, graph, executable = allocate(MIB)[1], c_void_p(), c_void_p(), c_void_p()
        call("cuStreamCreate", byref(stream), 1)
        call("cuStreamBeginCapture_v2", stream, 0)
        call("cuMemsetD32Async", memory, c_uint(77), c_size_t(1000), stream)
        call("cuMemcpyDtoDAsync_v2", c_ulonglong(memory.value + 8192), memory, c_size_t(4000), stream)
        call("cuStreamEndCapture", stream, byref(graph))
        call("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
        seen = []
        for _ in range(3):
            call("cuMemsetD8_v2", memory, ctypes.c_ubyte(0), c_size_t(MIB))
            call("cuGraphLaunch", executable, stream)
            call("cuStreamSynchronize", stream)
            word = c_uint()
            call("cuMemcpyDtoH_v2", byref(word), c_ulonglong(memory.value + 8192 + 3996), c_size_t(4))
            seen.append(word.value)
        return {"seen": seen}

    def ptx(self):
        """A module that libcuda compiles."""
        rc, module = load_module(source(MIB, 16))
        return {"rc": rc, "launch": launch(function_of(module, "nothing")) if rc == 0 else rc, "end": ask("cuCtxSynchronize")}

    def export(self, index):
        """Of linear memory, as CUDA's IPC has it."""
        handle = Handle()
        rc = ask("cuIpcGetMemHandle", byref(handle), self.kept[int(index)])
        return {"rc": rc, "handle": handle.hex()}

    def open(self, text):
        address = c_ulonglong()
        handle = Handle.of_hex(text)
        rc = ask("cuIpcOpenMemHandle_v2", byref(address), handle, 1)
        self.kept.append(address)
        return {"rc": rc}

    def close(self, index):
        return {"rc": ask("cuIpcCloseMemHandle", self.kept[int(index)])}

    def pool_export(self, kib):
        rc, *self.pool, fd, handle = export_pool(int(kib) * KIB)
        return {"rc": rc, "pid": os.getpid(), "fd": fd, "handle": handle}

    def pool_piece(self, kib):
        """One more allocation of the pool that was exported: the handle of its pointer."""
        address, data = c_ulonglong(), Handle()
        rc = ask("cuMemAllocFromPoolAsync", byref(address), c_size_t(int(kib) * KIB), self.pool[0], None)
        if rc == 0:
            call("cuStreamSynchronize", None)
            call("cuMemPoolExportPointer", byref(data), address)
        return {"rc": rc, "address": address.value, "handle": data.hex()}

    def pool_again(self, kib):
        """The pool gives the memory of `pool_export` back, and takes new memory."""
        call("cuMemFree_v2", self.pool[1])
        call("cuMemPoolTrimTo", self.pool[0], c_size_t(0))
        piece = self.pool_piece(kib)
        self.pool[1] = c_ulonglong(piece["address"])
        return piece

    def pool_import(self, pid, fd, text):
        rc, *self.pool = import_pool(int(pid), int(fd), text)
        return {"rc": rc, "address": self.pool[1].value}

    def pool_end(self):
        """Frees the memory and destroys the pool, of either."""
        end_pool(*self.pool)
        return {"rc": 0}

    def write(self, index, value):
        return {"rc": ask("cuMemsetD32_v2", self.kept[int(index)], c_uint(int(value)), c_size_t(256))}

    def read(self, index):
        word = c_uint()
        rc = ask("cuMemcpyDtoH_v2", byref(word), self.kept[int(index)], c_size_t(4))
        return {"rc": rc, "value": word.value}

    def abandon(self, kib):
        """Memory that only a descriptor holds: it is exported, and freed here."""
        rc, handle, fd = export_physical(int(kib) * KIB)
        if rc == 0:
            call("cuMemRelease", handle)
            self.descriptors.append(fd)
        return {"rc": rc, "pid": os.getpid(), "fd": fd}

    def open_external(self, pid, fd, kib):
        """Memory of another process, of whichever API, by a descriptor there. The driver closes its copy."""
        self.external, given = c_void_p(), ExternalMemory(type=1, fd=descriptor_of(int(pid), int(fd)), size=int(kib) * KIB)
        return {"rc": ask("cuImportExternalMemory", byref(self.external), byref(given))}

    def close_external(self):
        return {"rc": ask("cuDestroyExternalMemory", self.external)}

    def send_physical(self, kib, path):
        """Memory of cuMemCreate, mapped and sent as a descriptor."""
        size = int(kib) * KIB
        rc, handle, fd = export_physical(size)
        if rc != 0:
            raise Failed(f"cuMemCreate: {rc}")
        self.map_physical(handle, c_size_t(size))
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(60)
            server.bind(path)
            server.listen()
            print(json.dumps({"command": "listens"}), flush=True)
            with server.accept()[0] as peer:
                socket.send_fds(peer, [b"x"], [fd])
        return {}

    def receive_physical(self, kib, path):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(60)
            peer.connect(path)
            fd = socket.recv_fds(peer, 1, 1)[1][0]
        handle = c_ulonglong()
        rc = ask("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), BY_DESCRIPTOR)
        if rc == 0:
            self.map_physical(handle, c_size_t(int(kib) * KIB))
        return {"rc": rc}

    def map_physical(self, handle, size):
        address = c_ulonglong()
        call("cuMemAddressReserve", byref(address), size, c_size_t(0), c_ulonglong(0), c_ulonglong(0))
        call("cuMemMap", address, size, c_size_t(0), handle, c_ulonglong(0))
        access = AccessDescription(location(), READ_WRITE)
        call("cuMemSetAccess", address, size, byref(access), c_size_t(1))
        self.kept.append(address)

    def pool_cycle(self, kib):
        """Allocates from the default pool, frees, and trims."""
        pool, address = c_void_p(), c_ulonglong()
        call("cuMemAllocAsync", byref(address), c_size_t(int(kib) * KIB), None)
        call("cuMemsetD8Async", address, ctypes.c_ubyte(1), c_size_t(KIB), None)
        call("cuMemFreeAsync", address, None)
        call("cuStreamSynchronize", None)
        call("cuDeviceGetDefaultMemPool", byref(pool), device())
        return {"rc": ask("cuMemPoolTrimTo", pool, c_size_t(0))}

    def pool_idle(self, kib):
        """Allocates from the default pool and frees: the driver gives all back when the stream is waited for."""
        address = c_ulonglong()
        rc = ask("cuMemAllocAsync", byref(address), c_size_t(int(kib) * KIB), None)
        if rc == 0:
            call("cuMemFreeAsync", address, None)
            call("cuStreamSynchronize", None)
        return {"rc": rc}

    def pool_reset(self, kib):
        """Allocates from the default pool in the primary context, and resets that: what the pool has before and after."""
        context, pool, address, reserved = c_void_p(), c_void_p(), c_ulonglong(), c_ulonglong()

        def read():
            call("cuMemPoolGetAttribute", pool, RESERVED, byref(reserved))
            return reserved.value

        call("cuDevicePrimaryCtxRetain", byref(context), device())
        call("cuCtxPushCurrent_v2", context)
        call("cuMemAllocAsync", byref(address), c_size_t(int(kib) * KIB), None)
        call("cuDeviceGetDefaultMemPool", byref(pool), device())
        before = read()
        rc = ask("cuDevicePrimaryCtxReset_v2", device())
        after = read()
        call("cuCtxPopCurrent_v2", byref(context))
        return {"rc": rc, "before": before, "after": after}

    def graph_of_a_dead_context(self, kib, more):
        """Runs a graph with memory in a stream of another context, ends that, and launches one with more memory."""
        own, context, stream = c_void_p(), c_void_p(), c_void_p()
        call("cuCtxGetCurrent", byref(own))
        call("cuCtxCreate_v2", byref(context), 0, device())
        call("cuStreamCreate", byref(stream), 1)
        _, executable = graph_with_memory(int(kib) * KIB, freed=True)
        call("cuGraphLaunch", executable, stream)
        call("cuStreamSynchronize", stream)
        call("cuGraphExecDestroy", executable)
        call("cuCtxDestroy_v2", context)
        call("cuCtxSetCurrent", own)
        call("cuStreamCreate", byref(stream), 1)
        for _ in range(200):  # they take the memory of what has gone
            call("cuEventCreate", byref(c_void_p()), 0)
        rc, executable = graph_with_memory(int(more) * KIB, freed=True)
        return {"rc": rc or ask("cuGraphLaunch", executable, stream)}

    def heap(self, seed, calls):
        """Random allocations, below and a little above 2 MiB, and frees. Each as its size, 0 for a free, its address, and
        the KiB that are in use after it."""
        chance, alive, calls_made, most = random.Random(int(seed)), [], [], 300
        for _ in range(int(calls)):
            if chance.random() < len(alive) / most:
                address = alive.pop(chance.randrange(len(alive)))
                call("cuMemFree_v2", address)
                size = 0
            else:
                # Few sizes too, so that many holes are equally good.
                size = chance.choice((chance.randrange(1, 5000), chance.randrange(1, 2 * MIB + 200 * KIB), 512, 70000, 300 * KIB,
                                      MIB, 2 * MIB - 512, 2 * MIB - 511, 2 * MIB))
                rc, address = allocate(size)
                if rc != 0:
                    raise Failed(f"cuMemAlloc: {rc}")
                alive.append(address)
            calls_made.append([size, address.value, self.used() // KIB])
        return {"rc": 0, "calls": calls_made}

    # ---- Fills

    def fill(self, *sizes):
        """Linear memory of these sizes in turn."""
        turn = [0]

        def take():
            size = int(sizes[turn[0] % len(sizes)]) * KIB
            turn[0] += 1
            rc, address = allocate(size)
            self.kept.append(address)
            return rc, size
        return fill(take)

    def fragmented(self):
        """Pieces of which every second one is freed, then larger ones, then the first size again."""
        pieces = []
        for _ in range(800):
            rc, address = allocate(700 * KIB)
            if rc != 0:
                break
            pieces.append(address)
        for address in pieces[::2]:
            call("cuMemFree_v2", address)
        kept = len(pieces) // 2 * 700 * KIB
        larger, again = self.fill(1500), self.fill(700)
        return {**again, "granted": kept + larger["granted"] + again["granted"]}

    def gap(self, waits=1):
        """Pieces of a pool whose lowest memory was given back, and of which a part is free again while the device is full."""
        pool = c_void_p()
        call("cuDeviceGetDefaultMemPool", byref(pool), device())

        def take(mib):
            address = c_ulonglong()
            return ask("cuMemAllocAsync", byref(address), c_size_t(mib * MIB), None), address
        (rc, lowest), (_, freed), _ = take(32), take(20), take(8)
        call("cuMemFreeAsync", lowest, None)
        call("cuStreamSynchronize", None)
        call("cuMemPoolTrimTo", pool, c_size_t(0))
        large, small = self.fill(64 * 1024), self.fill(2 * 1024)
        call("cuMemFreeAsync", freed, None)
        if int(waits):
            call("cuStreamSynchronize", None)
        pieces = fill(lambda: (take(2)[0], 2 * MIB))
        return {**pieces, "rc": rc, "granted": sum(each["granted"] for each in (large, small, pieces))}

    def pitch(self):
        pitch = c_size_t()

        def take():
            address = c_ulonglong()
            rc = ask("cuMemAllocPitch_v2", byref(address), byref(pitch), c_size_t(1000), c_size_t(1500), 4)
            return rc, pitch.value * 1500
        return fill(take)

    def asynchronous(self, kib):
        def take():
            address = c_ulonglong()
            return ask("cuMemAllocAsync", byref(address), c_size_t(int(kib) * KIB), None), int(kib) * KIB
        return fill(take)

    def pools(self, kib):
        """Four pools in turn."""
        properties = PoolProperties(alloc_type=PINNED, location=location())
        handles = [c_void_p() for _ in range(4)]
        for handle in handles:
            call("cuMemPoolCreate", byref(handle), byref(properties))
        turn = [0]

        def take():
            turn[0] += 1
            address = c_ulonglong()
            size = int(kib) * KIB
            return ask("cuMemAllocFromPoolAsync", byref(address), c_size_t(size), handles[turn[0] % 4], None), size
        return fill(take)

    def physical(self, kib):
        """cuMemCreate, which needs no address."""
        size = int(kib) * KIB
        return fill(lambda: (create_physical(size)[0], size))

    def arrays(self, side):
        """Square arrays of floats."""
        description = ArrayDescription(int(side), int(side), 0x20, 1)

        def take():
            array = c_void_p()
            return ask("cuArrayCreate_v2", byref(array), byref(description)), int(side) ** 2 * 4
        return fill(take)

    def graphs(self, kib):
        """Graphs with one memory node each, launched."""
        def take():
            rc, executable = graph_with_memory(int(kib) * KIB)
            if rc == 0:
                rc = ask("cuGraphLaunch", executable, None)
            if rc == 0:
                rc = ask("cuStreamSynchronize", None)
            return rc, int(kib) * KIB
        return fill(take)

    def uploaded_graph(self, kib):
        """One that is not launched, but uploaded when it is instantiated."""
        return {"rc": graph_with_memory(int(kib) * KIB, uploaded=True)[0]}

    def kernel_graph(self, nodes, branches):
        """A graph of kernels in so many chains beside each other."""
        if Device.number not in self.nothing:
            rc, module = load_module(compiled(4))
            if rc != 0:
                raise Failed(f"cuModuleLoadData: {rc}")
            self.nothing[Device.number] = function_of(module, "nothing")
        one, graph, made = (c_uint * 3)(1, 1, 1), c_void_p(), []
        parameters = KernelNode(function=self.nothing[Device.number], grid=one, block=one)
        call("cuGraphCreate", byref(graph), 0)
        for i in range(nodes):
            node, after = c_void_p(), byref(made[i - branches]) if i >= branches else None
            call("cuGraphAddKernelNode", byref(node), graph, after, c_size_t(int(i >= branches)), byref(parameters))
            made.append(node)
        return graph

    def kernel_graphs(self, nodes, branches=1):
        """Graphs of kernels, instantiated."""
        try:
            graph = self.kernel_graph(int(nodes), int(branches))
        except Failed:
            return {"granted": 0, "count": 0, "rc": OUT_OF_MEMORY}

        def take():
            executable = c_void_p()
            rc = ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
            if rc == 0:
                self.executables.append(executable)
            return rc, 1
        return fill(take)

    def destroy_graphs(self, step=1):
        """Of these, each one, or every second, third and so on."""
        gone = self.executables[::int(step)]
        del self.executables[::int(step)]
        for executable in gone:
            call("cuGraphExecDestroy", executable)
        return {"rc": 0}

    def graph_growth(self, nodes, branches):
        """What the driver takes in all, in KiB, when the first such graph is instantiated, once it is destroyed, and again."""
        graph, executable, used = self.kernel_graph(int(nodes), int(branches)), c_void_p(), [self.used()]
        call("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
        used.append(self.used())
        call("cuGraphExecDestroy", executable)
        used.append(self.used())
        call("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
        used.append(self.used())
        return {"rc": 0, "grown": [(each - used[0]) // KIB for each in used[1:]]}

    def stream_growth(self, count, flags=1, priority=0):
        """The streams at which the driver takes memory, with the MiB; the same when they are made again; and what is left."""
        first = self.used()

        def grown():
            before, grown, made = self.used(), [], []
            for number in range(1, int(count) + 1):
                made.append(c_void_p())
                call("cuStreamCreateWithPriority", byref(made[-1]), int(flags), int(priority))
                if (now := self.used()) != before:
                    grown.append([number, (now - before) / MIB])
                before = now
            for stream in made:
                call("cuStreamDestroy_v2", stream)
            return grown
        return {"rc": 0, "grown": grown(), "again": grown(), "left": (self.used() - first) / MIB}

    def used(self):
        info = self.info()
        return info["total"] - info["free"]

    def modules(self, kib):
        image = compiled(int(kib) * KIB)

        def take():
            return load_module(image)[0], int(kib) * KIB
        return fill(take)

    def library(self, kib):
        """Code of a library, which `get_module` loads."""
        return self.load_library(compressed(compiled(int(kib) * KIB)))

    def printing_library(self):
        """The same with a kernel that prints: the driver takes the context's local memory again, larger, when it loads the code."""
        return self.load_library(compiled(4, more=PRINTS))

    def load_library(self, image):
        self.library = c_void_p()
        return {"rc": ask("cuLibraryLoadData", byref(self.library), image, None, None, 0, None, None, 0)}

    def get_module(self):
        module = c_void_p()
        return {"rc": ask("cuLibraryGetModule", byref(module), self.library)}

    def contexts(self):
        def take():
            return self.context()["rc"], 1
        return fill(take)

    def green(self, kib, last=1):
        """Allocates in a green context and ends it: the primary context goes with it, or is kept by the program (`last` 0)."""
        own, primary, address = c_void_p(), c_void_p(), c_ulonglong()
        call("cuCtxGetCurrent", byref(own))
        rc, green, context = create_green_context()
        if rc != 0:
            raise Failed(f"cuGreenCtxCreate: {rc}")
        if not int(last):
            call("cuDevicePrimaryCtxRetain", byref(primary), device())
        call("cuCtxSetCurrent", context)
        rc = ask("cuMemAlloc_v2", byref(address), c_size_t(int(kib) * KIB))
        call("cuCtxSetCurrent", own)
        call("cuGreenCtxDestroy", green)
        return {"rc": rc}

    def sparse(self, side):
        """A square sparse array of floats in a context of its own, all of it mapped to memory, goes with that context."""
        own, context, side = c_void_p(), c_void_p(), int(side)
        call("cuCtxGetCurrent", byref(own))
        call("cuCtxCreate_v2", byref(context), 0, device())
        rc, _, mapping = array_of_tiles(side, SPARSE)
        if rc != 0:
            raise Failed(f"cuArray3DCreate: {rc}")
        rc, mapping.memory = create_physical(4 * side * side, tiles=True)
        if rc == 0:
            call("cuMemMapArrayAsync", byref(mapping), 1, None)
            call("cuMemRelease", c_ulonglong(mapping.memory))
        call("cuCtxDestroy_v2", context)
        call("cuCtxSetCurrent", own)
        return {"rc": rc}

    def mapped_array(self, side, flag, stream):
        """A square array of floats that alone keeps its memory; and the mapping of that memory."""
        rc, array, mapping = array_of_tiles(int(side), flag)
        if rc != 0:
            raise Failed(f"cuArray3DCreate: {rc}")
        self.map_array(mapping, 4 * int(side) ** 2, stream)
        return array, mapping

    def map_array(self, mapping, size, stream):
        rc, mapping.memory = create_physical(size, tiles=True)
        if rc != 0:
            raise Failed(f"cuMemCreate: {rc}")
        call("cuMemMapArrayAsync", byref(mapping), 1, stream)
        call("cuStreamSynchronize", stream)
        call("cuMemRelease", c_ulonglong(mapping.memory))

    def keep_in_array(self, side):
        """Memory that an array alone keeps. What RM and the library count."""
        self.mapped_array(side, DEFERRED, None)
        return {"rc": 0, "used": self.used(), "rm": rm_count()}

    def unmap_behind_work(self, side, then=""):
        """Unmaps the memory of a deferred array in a stream that is busy. What RM and the library count before it is done.

        `then`: "destroy" the stream before it is done.
        """
        stream, done = c_void_p(), threading.Event()
        call("cuStreamCreate", byref(stream), 1)
        array, mapping = self.mapped_array(side, DEFERRED, stream)
        work = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None if done.wait(60) else None)
        call("cuLaunchHostFunc", stream, work, None)
        mapping.operation, mapping.memory = UNMAP, 0
        call("cuMemMapArrayAsync", byref(mapping), 1, stream)
        if then == "destroy":
            call("cuStreamDestroy_v2", stream)
        answer = {"rc": 0, "used": self.used(), "rm": rm_count()}
        done.set()
        call("cuCtxSynchronize")
        call("cuArrayDestroy", array)
        return answer

    def map_a_part_again(self, side):
        """Maps the first rows of a sparse array to other memory. What RM and the library count: the array keeps both."""
        array, mapping = self.mapped_array(side, SPARSE, None)
        mapping.extent[1] = int(side) // 8
        self.map_array(mapping, 4 * int(side) ** 2 // 8, None)
        answer = {"rc": 0, "used": self.used(), "rm": rm_count()}
        call("cuArrayDestroy", array)
        return answer

    def streams(self, count):
        made = 0
        for _ in range(int(count)):
            stream = c_void_p()
            if ask("cuStreamCreate", byref(stream), 1) != 0:
                break
            made += 1
        return {"count": made}

    def stack(self, bytes_):
        return self.limit(0, bytes_)

    def limit(self, number, value):
        return {"rc": ask("cuCtxSetLimit", int(number), c_size_t(int(value)))}

    def same_stack(self):
        """Sets the stack limit to what it is: a context that has lost its local memory takes it again."""
        limit = c_size_t()
        call("cuCtxGetLimit", byref(limit), 0)
        return {"rc": ask("cuCtxSetLimit", 0, limit), "limit": limit.value}

    def local(self, bytes_):
        """Loads a kernel with so much local memory a thread, for `launch`."""
        rc, module = load_module(compiled(4, int(bytes_)))
        self.function = c_void_p()
        if rc == 0:
            rc = ask("cuModuleGetFunction", byref(self.function), module, b"local")
        return {"rc": rc}

    def code(self, count):
        """Gets so many functions of some 50 KiB each from a module, whose code is loaded only with them."""
        names = [f"long{i}" for i in range(int(count))]
        body = "st.volatile.global.u32 [%to], %value;" * 640
        functions = "".join(f""".visible .entry {name}() {{
          .reg .b64 %to; .reg .b32 %value; mov.u64 %to, data; mov.u32 %value, %clock; {body} ret; }}""" for name in names)
        rc, module = load_module(compiled(4, more=functions, level=0))
        if rc == 0:
            self.info()
            for name in names:
                function_of(module, name)
        return {"rc": rc}

    def enumerate(self, bytes_, room):
        """Gets all functions of a module, one of which has so much local memory a thread, into an array with that much room."""
        module = load_module(compiled(4, int(bytes_)))[1]
        nothing = 0xdead0000
        functions = (c_void_p * int(room))(*[nothing] * int(room))
        rc = ask("cuModuleEnumerateFunctions", functions, int(room), module)
        return {"rc": rc, "count": sum(function not in (None, nothing) for function in functions),
                "untouched": functions[:].count(nothing)}

    def launch(self):
        rc = launch(self.function)
        return {"rc": rc, "end": ask("cuCtxSynchronize")}

    def random(self, seed, calls, diary=None):
        """Calls of all families in random order, with a few hundred things alive at once, at most.

        The same seed goes on where it stopped. `diary`: the file that gets, for each call that was refused, its number and RM's
        count after it.
        """
        mix = self.mix(seed)
        mix.replays = diary is not None
        for _ in range(int(calls)):
            mix.step()
        if diary:
            with open(diary, "w", encoding="utf-8") as file:
                json.dump(mix.refusals, file)
        return {"refused": len(mix.refusals), "imports": mix.imports, "alive": len(mix.alive), "managed": mix.managed_bytes()}

    def mix(self, seed):
        if seed not in self.mixes:
            self.mixes[seed] = RandomCalls(seed)
        return self.mixes[seed]

    def replay(self, seed, calls, diary, mib):
        """The same calls on a larger device. Each that was refused is made and undone: what it takes did not fit under the cap,
        `mib`, or it was refused wrongly."""
        mix = self.mix(seed)
        if mix.replayed is None:
            mix.most, mix.replays = int(mib) * MIB, True
            with open(diary, encoding="utf-8") as file:
                mix.replayed = dict(json.load(file))
        for _ in range(int(calls)):
            mix.step()
        return {"judged": mix.judged, "alike": mix.alike, "wrong": mix.wrong}

    def graph_launch(self, kib=0):
        """Of the kernel of `local`, between an allocation and its end if there is a size."""
        self.launched = c_void_p()
        rc = ask("cuGraphInstantiateWithFlags", byref(self.launched), self.graph(int(kib) * KIB), c_ulonglong(0))
        return {"rc": rc or ask("cuGraphLaunch", self.launched, None), "end": ask("cuCtxSynchronize")}

    def graph_update(self):
        """Puts the kernel of the last `local` into the graph of `graph_launch`, and launches it."""
        outcome = (c_ulonglong * 8)()
        if hasattr(CUDA, "cuGraphExecUpdate_v2"):
            rc = ask("cuGraphExecUpdate_v2", self.launched, self.graph(), outcome)
        else:
            rc = ask("cuGraphExecUpdate", self.launched, self.graph(), outcome, byref(outcome, 8))
        return {"rc": rc or ask("cuGraphLaunch", self.launched, None), "end": ask("cuCtxSynchronize")}

    def graph(self, bytes_=0):
        one, graph, node = (c_uint * 3)(1, 1, 1), c_void_p(), c_void_p()
        parameters = KernelNode(function=self.function, grid=one, block=one)
        call("cuGraphCreate", byref(graph), 0)
        if bytes_ == 0:
            call("cuGraphAddKernelNode", byref(node), graph, None, c_size_t(0), byref(parameters))
            return graph
        memory, first, last = AllocationNode(pool=PoolProperties(alloc_type=PINNED, location=location()),
                                             bytes=bytes_), c_void_p(), c_void_p()
        call("cuGraphAddMemAllocNode", byref(first), graph, None, c_size_t(0), byref(memory))
        call("cuGraphAddKernelNode", byref(node), graph, byref(first), c_size_t(1), byref(parameters))
        call("cuGraphAddMemFreeNode", byref(last), graph, byref(node), c_size_t(1), c_ulonglong(memory.address))
        return graph


def main():
    Commands().run(sys.argv[1:])
    os._exit(0)  # as a program that is killed: nothing is freed by hand


if __name__ == "__main__":
    main()

"""client.py COMMAND...: uses CUDA's driver as the commands say, one after another, and answers each with one line of JSON.

A command is NAME or NAME:ARGUMENT:...; sizes are in KiB. Each fill goes on until the driver refuses and answers with the
bytes that it got. `wait` answers and reads a line, so that nobody needs to sleep.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import random
import socket
import struct
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from cuda_types import AllocationProperties, ExternalMemory, Location
from script import Script, accounting, descriptor_of

CUDA = ctypes.CDLL("libcuda.so.1")
KIB, MIB = 1 << 10, 1 << 20
OUT_OF_MEMORY, ALREADY_MAPPED = 2, 208
MOST = 200000  # calls of one fill: the end of a driver that never refuses


class Failed(Exception):
    """A call that had to succeed did not."""


def ask(name, *arguments):
    return getattr(CUDA, name)(*arguments)


def call(name, *arguments):
    rc = ask(name, *arguments)
    if rc != 0:
        raise Failed(f"{name}: {rc}")


class Structure(ctypes.Structure):
    """That starts as zeros and is made by keywords, as all in ctypes."""


class PoolProperties(Structure):
    _fields_ = [("alloc_type", c_int), ("handle_types", c_int), ("location", Location), ("security", c_void_p),
                ("reserved", ctypes.c_ubyte * 64)]


class AccessDescription(Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class ArrayDescription(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class SparseArrayDescription(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]


class TileMapping(Structure):
    _fields_ = [("resource", c_int), ("array", c_void_p), ("subresource", c_int), ("reserved1", c_int), ("level", c_uint),
                ("layer", c_uint), ("offset", c_uint * 3), ("extent", c_uint * 3), ("operation", c_int), ("handle_type", c_int),
                ("memory", c_ulonglong), ("offset_in_memory", c_ulonglong), ("devices", c_uint), ("flags", c_uint),
                ("reserved2", c_uint * 2)]


class AllocationNode(Structure):
    _fields_ = [("pool", PoolProperties), ("access", c_void_p), ("access_count", c_size_t), ("bytes", c_size_t),
                ("address", c_ulonglong)]


class KernelNode(Structure):
    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("parameters", c_void_p), ("extra", c_void_p)]


class Handle(Structure):
    """Of memory of another process: CUipcMemHandle and CUmemPoolPtrExportData."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]

    def hex(self):
        return bytes(self.bytes).hex()

    @classmethod
    def of_hex(cls, text):
        return cls.from_buffer_copy(bytes.fromhex(text))


PINNED, ON_DEVICE, READ_WRITE, BY_DESCRIPTOR, PTX, RESERVED, MULTIPROCESSORS = 1, 1, 3, 1, 1, 5, 1
FLOATS, SPARSE, MAP = 0x20, 0x40, 1
MODULE = """.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .b8 data[{bytes}];
.visible .entry nothing() {{ ret; }}
.visible .entry local() {{
  .local .align 4 .b8 stack[{local}];
  .reg .b64 %stack, %at, %to; .reg .b32 %value, %index;
  mov.u64 %stack, stack; mov.u32 %value, %clock; and.b32 %index, %value, {mask}; cvt.u64.u32 %at, %index;
  add.u64 %at, %at, %stack; st.local.u32 [%at], %value; ld.local.u32 %value, [%stack];
  mov.u64 %to, data; st.global.u32 [%to], %value; ret;
}}
"""
PRINTS = """.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);
.visible .entry prints() {
  .reg .b64 %to; mov.u64 %to, data;
  { .param .b64 format, values; .param .b32 result; st.param.b64 [format], %to; st.param.b64 [values], %to;
    call.uni (result), vprintf, (format, values); }
  ret;
}
"""


NUMBER = 0  # of the device that commands use


def device():
    value = c_int()
    call("cuDeviceGet", byref(value), NUMBER)
    return value


def allocate(size):
    address = c_ulonglong()
    rc = ask("cuMemAlloc_v2", byref(address), c_size_t(size))
    return rc, address


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


def source(bytes_, local, more=""):
    return (MODULE.format(bytes=bytes_, local=local, mask=(local - 1) & ~3) + more).encode() + b"\0"


def compiled(bytes_, local=4, more=""):
    """As an image of the GPU's own code, so that loading it compiles nothing."""
    state, image, size, ptx = c_void_p(), c_void_p(), c_size_t(), source(bytes_, local, more)
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    call("cuLinkAddData_v2", state, PTX, ptx, c_size_t(len(ptx)), b"test", 0, None, None)
    call("cuLinkComplete", state, byref(image), byref(size))
    copy = ctypes.string_at(image, size.value)
    call("cuLinkDestroy", state)
    return copy


def compressed(image):
    """The same in a fatbin, as literals of LZ4: of its variables without a value nobody learns without unpacking it."""
    length, rest = b"", len(image) - 15
    while rest >= 255:
        length, rest = length + b"\xff", rest - 255
    packed = b"\xf0" + length + bytes([rest]) + image
    size = len(packed)
    packed += bytes(-size % 8)
    architecture = image[48]  # the lowest byte of the flags of ELF
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(packed), size, 0, 1, 7, architecture, 0, 0, 0x2011, 0, len(image))
    return struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(entry) + len(packed)) + entry + packed


def load_module(image):
    module = c_void_p()
    return ask("cuModuleLoadData", byref(module), image), module


def function_of(module, name):
    function = c_void_p()
    call("cuModuleGetFunction", byref(function), module, name.encode())
    return function


def launch(function):
    return ask("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)


def graph_with_memory(bytes_, freed=False):
    """The result, and the executable graph."""
    graph, executable, node, end = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    call("cuGraphCreate", byref(graph), 0)
    parameters = AllocationNode(pool=PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, NUMBER)), bytes=bytes_)
    call("cuGraphAddMemAllocNode", byref(node), graph, None, c_size_t(0), byref(parameters))
    if freed:
        call("cuGraphAddMemFreeNode", byref(end), graph, byref(node), c_size_t(1), c_ulonglong(parameters.address))
    return ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0)), executable


def create_physical(size, handle_types=0):
    """The result, and the handle."""
    handle = c_ulonglong()
    properties = AllocationProperties(type=PINNED, handle_types=handle_types, location=Location(ON_DEVICE, NUMBER))
    return ask("cuMemCreate", byref(handle), c_size_t(size), byref(properties), c_ulonglong(0)), handle


def export_physical(size):
    """The result, the handle, and the descriptor by which others import it."""
    fd = c_int()
    rc, handle = create_physical(size, BY_DESCRIPTOR)
    if rc == 0:
        call("cuMemExportToShareableHandle", byref(fd), handle, BY_DESCRIPTOR, c_ulonglong(0))
    return rc, handle, fd.value


def export_pool(size):
    """A pool with one allocation. The result, and the pool, the address, the pool's descriptor and the pointer's handle."""
    pool, address, fd, data = c_void_p(), c_ulonglong(), c_int(), Handle()
    properties = PoolProperties(alloc_type=PINNED, handle_types=BY_DESCRIPTOR, location=Location(ON_DEVICE, NUMBER))
    call("cuMemPoolCreate", byref(pool), byref(properties))
    rc = ask("cuMemAllocFromPoolAsync", byref(address), c_size_t(size), pool, None)
    if rc != 0:
        call("cuMemPoolDestroy", pool)
        return rc, pool, address, -1, ""
    call("cuStreamSynchronize", None)
    call("cuMemPoolExportToShareableHandle", byref(fd), pool, BY_DESCRIPTOR, c_ulonglong(0))
    call("cuMemPoolExportPointer", byref(data), address)
    return rc, pool, address, fd.value, data.hex()


def import_pool(pid, fd, text):
    """The result, and the pool and the address here."""
    pool, address, copy = c_void_p(), c_ulonglong(), descriptor_of(pid, fd)
    data = Handle.of_hex(text)
    rc = ask("cuMemPoolImportFromShareableHandle", byref(pool), c_void_p(copy), BY_DESCRIPTOR, c_ulonglong(0))
    os.close(copy)
    if rc == 0:
        rc = ask("cuMemPoolImportPointer", byref(address), pool, byref(data))
        if rc != 0:
            call("cuMemPoolDestroy", pool)
    return rc, pool, address


def end_pool(pool, address):
    call("cuMemFree_v2", address)
    call("cuMemPoolDestroy", pool)


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
        self.first_contexts.setdefault(NUMBER, context)
        return {"rc": rc}

    def primary_context(self):
        context = c_void_p()
        rc = ask("cuDevicePrimaryCtxRetain", byref(context), device())
        if rc == 0:
            call("cuCtxSetCurrent", context)
        self.first_contexts.setdefault(NUMBER, context)
        return {"rc": rc}

    def gpu(self, number):
        """From now on commands use this device, in its first context, which is made if there is none."""
        self.location(number)
        if NUMBER not in self.first_contexts:
            return self.context()
        return {"rc": ask("cuCtxSetCurrent", self.first_contexts[NUMBER])}

    def location(self, number):
        """From now on commands use this device, but what needs no context of it stays in the current one."""
        global NUMBER
        NUMBER = int(number)
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
        access = AccessDescription(Location(ON_DEVICE, NUMBER), READ_WRITE)
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
        properties = PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, NUMBER))
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

    def kernel_graph(self, nodes, branches):
        """A graph of kernels in so many chains beside each other."""
        if NUMBER not in self.nothing:
            rc, module = load_module(compiled(4))
            if rc != 0:
                raise Failed(f"cuModuleLoadData: {rc}")
            self.nothing[NUMBER] = function_of(module, "nothing")
        one, graph, made = (c_uint * 3)(1, 1, 1), c_void_p(), []
        parameters = KernelNode(function=self.nothing[NUMBER], grid=one, block=one)
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
        resource, description, green, context, address = (ctypes.c_ubyte * 512)(), c_void_p(), c_void_p(), c_void_p(), c_ulonglong()
        own, primary = c_void_p(), c_void_p()
        call("cuCtxGetCurrent", byref(own))
        call("cuDeviceGetDevResource", device(), resource, MULTIPROCESSORS)
        call("cuDevResourceGenerateDesc", byref(description), resource, 1)
        call("cuGreenCtxCreate", byref(green), description, device(), 1)
        if not int(last):
            call("cuDevicePrimaryCtxRetain", byref(primary), device())
        call("cuCtxFromGreenCtx", byref(context), green)
        call("cuCtxSetCurrent", context)
        rc = ask("cuMemAlloc_v2", byref(address), c_size_t(int(kib) * KIB))
        call("cuCtxSetCurrent", own)
        call("cuGreenCtxDestroy", green)
        return {"rc": rc}

    def sparse(self, side):
        """A square sparse array of floats in a context of its own, all of it mapped to memory, goes with that context."""
        own, context, array, memory = c_void_p(), c_void_p(), c_void_p(), c_ulonglong()
        side = int(side)
        call("cuCtxGetCurrent", byref(own))
        call("cuCtxCreate_v2", byref(context), 0, device())
        call("cuArray3DCreate_v2", byref(array), byref(SparseArrayDescription(side, side, 0, FLOATS, 1, SPARSE)))
        properties = AllocationProperties(type=PINNED, location=Location(ON_DEVICE, NUMBER))
        properties.flags[2] = 1  # a pool of tiles
        rc = ask("cuMemCreate", byref(memory), c_size_t(4 * side * side), byref(properties), c_ulonglong(0))
        if rc == 0:
            whole = (c_uint * 3)(side, side, 1)
            mapping = TileMapping(array=array, extent=whole, operation=MAP, memory=memory, devices=1 << NUMBER)
            call("cuMemMapArrayAsync", byref(mapping), 1, None)
            call("cuMemRelease", memory)
        call("cuCtxDestroy_v2", context)
        call("cuCtxSetCurrent", own)
        return {"rc": rc}

    def streams(self, count):
        made = 0
        for _ in range(int(count)):
            stream = c_void_p()
            if ask("cuStreamCreate", byref(stream), 1) != 0:
                break
            made += 1
        return {"count": made}

    def stack(self, bytes_):
        return {"rc": ask("cuCtxSetLimit", 0, c_size_t(int(bytes_)))}

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
        body = "".join(f"add.u32 %value, %value, {i}; xor.b32 %value, %value, {7 * i}; st.global.u32 [%to], %value;" for i in range(1000))
        text = source(4, 4)[:-1].decode() + "".join(f""".visible .entry {name}() {{
          .reg .b64 %to; .reg .b32 %value; mov.u64 %to, data; mov.u32 %value, %clock; {body} ret; }}""" for name in names)
        rc, module = load_module(text.encode() + b"\0")
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
        return {"refused": len(mix.refusals), "imports": mix.imports, "imported_of_pools": mix.imported_of_pools,
                "alive": len(mix.alive)}

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
        memory, first, last = AllocationNode(pool=PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, NUMBER)),
                                             bytes=bytes_), c_void_p(), c_void_p()
        call("cuGraphAddMemAllocNode", byref(first), graph, None, c_size_t(0), byref(memory))
        call("cuGraphAddKernelNode", byref(node), graph, byref(first), c_size_t(1), byref(parameters))
        call("cuGraphAddMemFreeNode", byref(last), graph, byref(node), c_size_t(1), c_ulonglong(memory.address))
        return graph


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
    """Makes and destroys; what lives is a list of functions that end it. With RANDOM_BOARD, a folder, also exports and imports."""

    KINDS = ("linear", "linear", "linear", "large", "pitched", "ordered", "ordered", "physical", "array", "stream", "module",
             "graph", "local", "limit", "wait", "pool", "memory_graph", "trim", "library", "context")
    SHARING = ("exported", "exported_physical", "exported_pool", "imported", "imported", "imported")
    LIBRARIES = hasattr(CUDA, "cuLibraryLoadData")
    LASTING = ("local", "limit")  # whose memory stays when they end
    MOST_ALIVE = 400
    imported_of_pools = 0  # bytes, by this process: libcuda keeps them
    MOST_POOLS = 2  # that are exported: libcuda 535 never gives their memory back

    def __init__(self, seed):
        self.seed = seed
        self.number = 0  # of the call
        self.board = Board(os.environ["RANDOM_BOARD"]) if "RANDOM_BOARD" in os.environ else None
        self.kinds = os.environ.get("RANDOM_KINDS", " ".join(self.KINDS + (self.SHARING if self.board else ()))).split()
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
        if (kind == "graph" and self.function is None) or (kind == "library" and not self.LIBRARIES):
            return
        if self.replayed is not None and self.number in self.replayed:
            self.judge(kind)
            return
        rc, end = getattr(self, kind)()
        if rc == 0:
            if end is not None:
                self.alive.append(end)
        elif rc == OUT_OF_MEMORY and self.replayed is None:
            self.refusals.append((self.number, rm_count() if self.replays else None))
        else:
            raise Failed(f"{kind}: {rc}")

    def judge(self, kind):
        """Makes a call that was refused, and undoes it."""
        if kind in self.LASTING:
            return
        before, self.chunk = rm_count(), 2 * MIB
        rc, end = getattr(self, kind)()
        if rc != 0:
            raise Failed(f"{kind}: {rc}")
        after, in_use = rm_count(), self.replayed[self.number]
        if end is not None:
            end()
        self.judged += 1
        self.alike += before == in_use
        taken = after - before
        if not self.exact or before != in_use:  # other chunks are there, with other holes
            taken = max(taken, self.chunk)
        if max(in_use + taken, after) <= self.most:
            self.wrong.append(f"call {self.number}, {kind}: takes {taken / MIB} MiB, {in_use / MIB} were in use, here {before / MIB}")

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

    def limit(self):
        return ask("cuCtxSetLimit", 0, c_size_t(self.random.randrange(1000, 1800))), None

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
        call("cuMemPoolCreate", byref(pool), byref(PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, NUMBER))))
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
        down = self.board.pin(way="linear", bytes=max(size, 2 * MIB), handle=handle.hex())

        def end():
            with down():
                call("cuMemFree_v2", address)
        return 0, end

    def exported_physical(self):
        size = self.random.randrange(1, 12) * 2 * MIB
        rc, handle, fd = export_physical(size)
        if rc != 0:
            return rc, None
        down = self.board.pin(way="physical", fd=fd, bytes=size)

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
        down = self.board.pin(way="pool", fd=fd, bytes=-(-size // (32 * MIB)) * 32 * MIB, handle=handle)

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
        if note["way"] == "pool":
            RandomCalls.imported_of_pools += note["bytes"]
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


def main():
    Commands().run(sys.argv[1:])
    os._exit(0)  # as a program that is killed: nothing is freed by hand


if __name__ == "__main__":
    main()

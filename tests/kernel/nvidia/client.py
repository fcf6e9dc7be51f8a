"""client.py COMMAND...: uses CUDA's driver as the commands say, one after another, and answers each with one line of JSON.

A command is NAME or NAME:ARGUMENT:...; sizes are in KiB. Each fill goes on until the driver refuses and answers with the
bytes that it got. `wait` answers and reads a line, so that nobody needs to sleep.
"""
import ctypes
import json
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

CUDA = ctypes.CDLL("libcuda.so.1")
KIB, MIB = 1 << 10, 1 << 20
OUT_OF_MEMORY = 2
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


class Location(Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class PoolProperties(Structure):
    _fields_ = [("alloc_type", c_int), ("handle_types", c_int), ("location", Location), ("security", c_void_p),
                ("reserved", ctypes.c_ubyte * 64)]


class AllocationProperties(Structure):
    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location), ("metadata", c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class AccessDescription(Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class ArrayDescription(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class AllocationNode(Structure):
    _fields_ = [("pool", PoolProperties), ("access", c_void_p), ("access_count", c_size_t), ("bytes", c_size_t),
                ("address", c_ulonglong)]


class KernelNode(Structure):
    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("parameters", c_void_p), ("extra", c_void_p)]


class IpcHandle(Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


PINNED, ON_DEVICE, READ_WRITE, BY_DESCRIPTOR = 1, 1, 3, 1
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


def device():
    value = c_int()
    call("cuDeviceGet", byref(value), 0)
    return value


def allocate(size):
    address = c_ulonglong()
    rc = ask("cuMemAlloc_v2", byref(address), c_size_t(size))
    return rc, address


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


def load_module(bytes_, local=4):
    module = c_void_p()
    image = MODULE.format(bytes=bytes_, local=local, mask=(local - 1) & ~3).encode() + b"\0"
    return ask("cuModuleLoadData", byref(module), image), module


def function_of(module, name):
    function = c_void_p()
    call("cuModuleGetFunction", byref(function), module, name.encode())
    return function


def launch(function):
    return ask("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)


class Commands:
    """Each method is a command."""

    def __init__(self):
        self.kept = []

    def init(self):
        call("cuInit", 0)
        return self.context()

    def context(self):
        context = c_void_p()
        rc = ask("cuCtxCreate_v2", byref(context), 0, device())
        return {"rc": rc}

    def alloc(self, kib):
        rc, address = allocate(int(kib) * KIB)
        self.kept.append(address)
        return {"rc": rc, "address": address.value}

    def free(self, index):
        return {"rc": ask("cuMemFree_v2", self.kept[int(index)])}

    def info(self):
        free, total = c_size_t(), c_size_t()
        rc = ask("cuMemGetInfo_v2", byref(free), byref(total))
        return {"rc": rc, "free": free.value, "total": total.value}

    def wait(self):
        print(json.dumps({"pid": os.getpid()}), flush=True)
        sys.stdin.readline()
        return {}

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
        properties = PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, 0))
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
        properties = AllocationProperties(type=PINNED, location=Location(ON_DEVICE, 0))

        def take():
            handle = c_ulonglong()
            return ask("cuMemCreate", byref(handle), c_size_t(int(kib) * KIB), byref(properties), c_ulonglong(0)), int(kib) * KIB
        return fill(take)

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
            graph, executable, node = c_void_p(), c_void_p(), c_void_p()
            call("cuGraphCreate", byref(graph), 0)
            parameters = AllocationNode(pool=PoolProperties(alloc_type=PINNED, location=Location(ON_DEVICE, 0)),
                                        bytes=int(kib) * KIB)
            call("cuGraphAddMemAllocNode", byref(node), graph, None, c_size_t(0), byref(parameters))
            rc = ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0))
            if rc == 0:
                rc = ask("cuGraphLaunch", executable, None)
            if rc == 0:
                rc = ask("cuStreamSynchronize", None)
            return rc, int(kib) * KIB
        return fill(take)

    def kernel_graphs(self, nodes):
        """Chains of kernels, instantiated."""
        rc, module = load_module(4)
        if rc != 0:
            return {"granted": 0, "count": 0, "rc": rc}
        function = function_of(module, "nothing")
        one = (c_uint * 3)(1, 1, 1)
        parameters = KernelNode(function=function, grid=one, block=one)
        graph, last = c_void_p(), c_void_p()
        call("cuGraphCreate", byref(graph), 0)
        for i in range(int(nodes)):
            node = c_void_p()
            call("cuGraphAddKernelNode", byref(node), graph, byref(last) if i else None, c_size_t(1 if i else 0), byref(parameters))
            last = node

        def take():
            executable = c_void_p()
            return ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0)), 1
        return fill(take)

    def modules(self, kib):
        def take():
            return load_module(int(kib) * KIB)[0], int(kib) * KIB
        return fill(take)

    def contexts(self):
        def take():
            return self.context()["rc"], 1
        return fill(take)

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

    def local(self, bytes_):
        """Loads a kernel with so much local memory a thread and launches it."""
        rc, module = load_module(4, int(bytes_))
        return {"load": rc, "rc": launch(function_of(module, "local")) if rc == 0 else rc}


def main():
    commands = Commands()
    for word in sys.argv[1:]:
        name, *arguments = word.split(":")
        print(json.dumps({"command": word, **getattr(commands, name)(*arguments)}), flush=True)
    os._exit(0)  # as a program that is killed: nothing is freed by hand


if __name__ == "__main__":
    main()

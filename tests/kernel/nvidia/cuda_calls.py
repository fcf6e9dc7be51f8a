"""What client.py and random_calls.py share: CUDA's driver by ctypes, its structures, and calls that take several steps."""
import ctypes
import os
import struct
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from cuda_types import AllocationProperties, Location
from script import descriptor_of

CUDA = ctypes.CDLL("libcuda.so.1")
KIB, MIB = 1 << 10, 1 << 20
OUT_OF_MEMORY, ALREADY_MAPPED = 2, 208


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


class GraphParameters(Structure):
    _fields_ = [("flags", c_ulonglong), ("stream", c_void_p), ("wrong_node", c_void_p), ("result", c_int)]


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
FLOATS, SPARSE, DEFERRED, MAP, UNMAP = 0x20, 0x40, 0x80, 1, 2
ATTACH_GLOBAL, ON_HOST, OPTIMISATION_LEVEL, UPLOAD = 1, -1, 7, 2
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


class Device:
    number = 0  # of the device that commands use


def device():
    value = c_int()
    call("cuDeviceGet", byref(value), Device.number)
    return value


def location():
    """Of memory on that device."""
    return Location(ON_DEVICE, Device.number)


def allocate(size):
    address = c_ulonglong()
    rc = ask("cuMemAlloc_v2", byref(address), c_size_t(size))
    return rc, address


def source(bytes_, local, more=""):
    return (MODULE.format(bytes=bytes_, local=local, mask=(local - 1) & ~3) + more).encode() + b"\0"


def compiled(bytes_, local=4, more="", level=4):
    """As an image of the GPU's own code, so that loading it compiles nothing. `level`: of optimisation."""
    state, image, size, ptx = c_void_p(), c_void_p(), c_size_t(), source(bytes_, local, more)
    call("cuLinkCreate_v2", 1, byref(c_int(OPTIMISATION_LEVEL)), byref(c_void_p(level)), byref(state))
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


def graph_with_memory(bytes_, freed=False, uploaded=False):
    """The result, and the executable graph."""
    graph, executable, node, end = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    call("cuGraphCreate", byref(graph), 0)
    parameters = AllocationNode(pool=PoolProperties(alloc_type=PINNED, location=location()), bytes=bytes_)
    rc = ask("cuGraphAddMemAllocNode", byref(node), graph, None, c_size_t(0), byref(parameters))
    if rc != 0:
        return rc, executable
    if freed:
        call("cuGraphAddMemFreeNode", byref(end), graph, byref(node), c_size_t(1), c_ulonglong(parameters.address))
    if uploaded:
        return ask("cuGraphInstantiateWithParams", byref(executable), graph, byref(GraphParameters(flags=UPLOAD))), executable
    return ask("cuGraphInstantiateWithFlags", byref(executable), graph, c_ulonglong(0)), executable


def create_physical(size, handle_types=0, tiles=False):
    """The result, and the handle. `tiles`: for arrays that are mapped to it."""
    handle = c_ulonglong()
    properties = AllocationProperties(type=PINNED, handle_types=handle_types, location=location())
    properties.flags[2] = tiles
    return ask("cuMemCreate", byref(handle), c_size_t(size), byref(properties), c_ulonglong(0)), handle


def array_of_tiles(side, flag):
    """A square array of floats, whose memory is mapped to it. The result, the array, and the mapping of all of it without memory."""
    array = c_void_p()
    rc = ask("cuArray3DCreate_v2", byref(array), byref(SparseArrayDescription(side, side, 0, FLOATS, 1, flag)))
    return rc, array, TileMapping(array=array, extent=(c_uint * 3)(side, side, 1), operation=MAP, devices=1 << Device.number)


def create_green_context():
    """Of all multiprocessors. The result, and both handles."""
    resource, description, green, context = (ctypes.c_ubyte * 512)(), c_void_p(), c_void_p(), c_void_p()
    call("cuDeviceGetDevResource", device(), resource, MULTIPROCESSORS)
    call("cuDevResourceGenerateDesc", byref(description), resource, 1)
    rc = ask("cuGreenCtxCreate", byref(green), description, device(), 1)
    if rc == 0:
        call("cuCtxFromGreenCtx", byref(context), green)
    return rc, green, context


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
    properties = PoolProperties(alloc_type=PINNED, handle_types=BY_DESCRIPTOR, location=location())
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

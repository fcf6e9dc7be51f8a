"""opencl_client.py WAY COMMAND...: uses OpenCL as the commands say, one after another; each answers with one line of JSON.

WAY is `loader` (libOpenCL is opened), `icd` (NVIDIA's library itself is, and functions are called by its dispatch table), or
`other` (the loader's first platform that is not NVIDIA's).
A command is NAME or NAME:ARGUMENT:...; sizes are in KiB. Each fill uses what it creates, unless it says otherwise, and goes on
until there is no more; it answers with the bytes that it got, and how the last call failed.
"""
import ctypes
import random
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulong, c_void_p

from script import Script

KIB, MIB = 1 << 10, 1 << 20
MOST = 200000
GPU, ALL, PLATFORM_NAME, GLOBAL_MEMORY, MAX_ALLOCATION = 4, 0xFFFFFFFF, 0x902, 0x101F, 0x1010
IMAGE_2D, IMAGE_3D, RGBA, FLOAT, UNORM_INT8 = 0x10F1, 0x10F2, 0x10B5, 0x10DE, 0x10D2
USE_HOST, ALLOC_HOST, COPY_HOST = 8, 16, 32
READ_WRITE, REGION = 1, 0x1220
# Where the functions are in the dispatch table, by the order of cl_icd.h.
POSITIONS = {"clGetPlatformInfo": 1, "clGetDeviceIDs": 2, "clGetDeviceInfo": 3, "clCreateContext": 4, "clCreateContextFromType": 5,
             "clReleaseContext": 7, "clCreateCommandQueue": 9, "clReleaseCommandQueue": 11, "clCreateBuffer": 14,
             "clRetainMemObject": 17, "clReleaseMemObject": 18, "clFinish": 47, "clEnqueueMapBuffer": 56,
             "clCreateSubBuffer": 82, "clEnqueueFillBuffer": 102, "clEnqueueFillImage": 103, "clCreateImage": 96,
             "clSVMAlloc": 126, "clSVMFree": 127, "clEnqueueSVMFree": 128, "clCreateBufferWithProperties": 146}
POINTERS = {"clCreateProgramWithSource", "clCreateKernel", "clCreateContext", "clCreateContextFromType", "clCreateCommandQueue", "clCreateBuffer", "clEnqueueMapBuffer",
            "clCreateSubBuffer", "clCreateImage", "clSVMAlloc", "clCreateBufferWithProperties", "clGetExtensionFunctionAddress",
            "clGetExtensionFunctionAddressForPlatform"}


class Failed(Exception):
    """A call that had to succeed did not."""


class ImageFormat(ctypes.Structure):
    _fields_ = [("order", c_uint), ("type", c_uint)]


class ImageDescription(ctypes.Structure):
    _fields_ = [("type", c_uint), ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("array_size", c_size_t),
                ("row_pitch", c_size_t), ("slice_pitch", c_size_t), ("levels", c_uint), ("samples", c_uint), ("object", c_void_p)]


class Region(ctypes.Structure):
    _fields_ = [("origin", c_size_t), ("size", c_size_t)]


class Loader:
    """Functions of libOpenCL."""

    is_nvidia = True

    def __init__(self):
        self.library = ctypes.CDLL("libOpenCL.so.1")
        platforms, count, name = (c_void_p * 16)(), c_uint(), ctypes.create_string_buffer(256)
        self.get("clGetPlatformIDs")(16, platforms, byref(count))
        for platform in platforms[:count.value]:
            self.get("clGetPlatformInfo")(c_void_p(platform), PLATFORM_NAME, c_size_t(256), name, None)
            if (b"NVIDIA" in name.value) == self.is_nvidia:
                self.platform = c_void_p(platform)
                return
        raise Failed("no such platform")

    def get(self, name):
        function = getattr(self.library, name)
        function.restype = c_void_p if name in POINTERS else c_int
        return function

    def extension(self, name):
        return self.get("clGetExtensionFunctionAddressForPlatform")(self.platform, name.encode())


class Other(Loader):
    """Those of another implementation."""

    is_nvidia = False


class Icd:
    """Functions of NVIDIA's library, as a loader calls them."""

    def __init__(self):
        library = ctypes.CDLL("libnvidia-opencl.so.1")
        self.get_address = library.clGetExtensionFunctionAddress
        self.get_address.restype = c_void_p
        self.platform = c_void_p()
        platforms = ctypes.CFUNCTYPE(c_int, c_uint, c_void_p, c_void_p)(self.get_address(b"clIcdGetPlatformIDsKHR"))
        if platforms(1, ctypes.addressof(self.platform), None) != 0:
            raise Failed("no platform")
        self.table = ctypes.cast(self.platform, ctypes.POINTER(ctypes.POINTER(c_void_p)))[0]

    def get(self, name):
        return ctypes.CFUNCTYPE(c_void_p if name in POINTERS else c_int)(self.table[POSITIONS[name]])

    def extension(self, name):
        return self.get_address(name.encode())


class Commands(Script):
    """Each method is a command."""

    def __init__(self, way):
        super().__init__()
        self.way = {"loader": Loader, "icd": Icd, "other": Other}[way]()
        self.gpus, self.queue, self.current = (c_void_p * 4)(), None, None
        self.ask("clGetDeviceIDs", self.way.platform, c_ulong(ALL), len(self.gpus), self.gpus, None)
        self.device = c_void_p(self.gpus[0])
        self.kept, self.function, self.of_all = [], None, None

    def ask(self, name, *arguments):
        return self.way.get(name)(*arguments)

    def call(self, name, *arguments):
        if (rc := self.ask(name, *arguments)) != 0:
            raise Failed(f"{name}: {rc}")

    def make(self, name, *arguments):
        """The result of a function that makes an object, and the object."""
        error = c_int(1)
        made = self.ask(name, *arguments, byref(error))
        return error.value, c_void_p(made)

    def context(self):
        rc, self.current = self.make("clCreateContext", None, 1, byref(self.device), None, None)
        if rc == 0:
            rc, self.queue = self.make("clCreateCommandQueue", self.current, self.device, c_ulong(0))
        return {"rc": rc}

    def gpu(self, number):
        """From now on commands use this device, in a context of all devices."""
        self.device, rc = c_void_p(self.gpus[int(number)]), 0
        count = sum(each is not None for each in self.gpus)
        if self.of_all is None:
            rc, self.of_all = self.make("clCreateContext", None, count, self.gpus, None, None)
        self.current = self.of_all
        if rc == 0:
            rc, self.queue = self.make("clCreateCommandQueue", self.current, self.device, c_ulong(0))
        return {"rc": rc}

    def context_from_type(self):
        properties = (c_ulong * 3)(0x1084, self.way.platform.value, 0)
        rc, self.current = self.make("clCreateContextFromType", properties, c_ulong(GPU), None, None)
        return {"rc": rc}

    def contexts(self):
        return self.fill(lambda: (self.make("clCreateContext", None, 1, byref(self.device), None, None)[0], 1))

    def release_context(self):
        self.call("clReleaseCommandQueue", self.queue)
        self.call("clReleaseContext", self.current)
        return {"rc": 0}

    def info(self):
        total, most = c_ulong(), c_ulong()
        self.call("clGetDeviceInfo", self.device, GLOBAL_MEMORY, c_size_t(8), byref(total), None)
        self.call("clGetDeviceInfo", self.device, MAX_ALLOCATION, c_size_t(8), byref(most), None)
        return {"total": total.value, "most": most.value}

    @staticmethod
    def fill(take):
        """Calls take(), which returns the result of a call and the bytes it is for, until it fails."""
        granted = 0
        for count in range(MOST):
            rc, size = take()
            if rc != 0:
                return {"granted": granted, "count": count, "rc": rc}
            granted += size
        raise Failed("never refused")

    def use(self, memory, size):
        pattern = c_int(7)
        rc = self.ask("clEnqueueFillBuffer", self.queue, memory, byref(pattern), c_size_t(4), c_size_t(0),
                      c_size_t(min(size & ~3, 4096)), 0, None, None)
        return rc or self.ask("clFinish", self.queue)

    def create(self, size, flags=0):
        host = ctypes.create_string_buffer(size) if flags & (USE_HOST | COPY_HOST) else None
        rc, memory = self.make("clCreateBuffer", self.current, c_ulong(flags), c_size_t(size), host)
        if rc == 0:
            self.kept.append((memory, host, size))
        return rc, memory

    def buffers(self, *sizes, flags=0):
        at = 0

        def take():
            nonlocal at
            size = int(sizes[at % len(sizes)]) * KIB
            at += 1
            rc, memory = self.create(size, flags)
            return rc or self.use(memory, size), size
        return self.fill(take)

    def random(self, least, most, seed):
        """Buffers of sizes between, by chance."""
        chance = random.Random(int(seed))

        def take():
            size = chance.randrange(int(least), int(most)) * KIB
            rc, memory = self.create(size)
            return rc or self.use(memory, size), size
        return self.fill(take)

    def unused(self, mib, *sizes):
        """Buffers of these sizes that are created and not used, more than `mib` in all."""
        created = count = 0
        while created <= int(mib) * KIB * KIB:
            size = int(sizes[count % len(sizes)]) * KIB
            if (rc := self.create(size)[0]) != 0:
                return {"rc": rc, "created": created}
            created, count = created + size, count + 1
        return {"rc": 0, "created": created}

    def take(self, kib):
        rc, memory = self.create(int(kib) * KIB)
        return {"rc": rc or self.use(memory, int(kib) * KIB)}

    def some(self, kib, number):
        """So many buffers, which are not used."""
        return {"rc": sum(self.create(int(kib) * KIB)[0] for _ in range(int(number)))}

    def table(self):
        """The functions of the dispatch table, as how far each is from the first."""
        table = ctypes.cast(self.way.platform, ctypes.POINTER(ctypes.POINTER(c_void_p)))[0]
        return {"offsets": [table[i] - table[0] for i in POSITIONS.values() if table[i]]}

    def shuffle(self, seed=1):
        """Uses what was created, in another order, until it is refused."""
        shuffled, used = list(self.kept), 0
        random.Random(int(seed)).shuffle(shuffled)
        for memory, _, size in shuffled:
            if (rc := self.use(memory, size)) != 0:
                return {"rc": rc, "granted": used}
            used += size
        return {"rc": 0, "granted": used}

    def host(self, flags, kib):
        return self.buffers(kib, flags={"use": USE_HOST, "alloc": ALLOC_HOST, "copy": COPY_HOST}[flags])

    def nv(self, kib):
        """Buffers of NVIDIA's extension."""
        create = ctypes.CFUNCTYPE(c_void_p)(self.way.extension("clCreateBufferNV"))
        size = int(kib) * KIB

        def take():
            error = c_int(1)
            memory = c_void_p(create(self.current, c_ulong(0), c_ulong(0), c_size_t(size), None, byref(error)))
            return error.value or self.use(memory, size), size
        return self.fill(take)

    def properties(self, kib):
        size = int(kib) * KIB

        def take():
            rc, memory = self.make("clCreateBufferWithProperties", self.current, None, c_ulong(0), c_size_t(size), None)
            return rc or self.use(memory, size), size
        return self.fill(take)

    def mapped(self, kib):
        """Buffers of which mapping is the first use."""
        size = int(kib) * KIB

        def take():
            rc, memory = self.create(size)
            if rc == 0:
                rc, _ = self.make("clEnqueueMapBuffer", self.queue, memory, 1, c_ulong(READ_WRITE), c_size_t(0), c_size_t(64), 0, None,
                                  None)
            return rc, size
        return self.fill(take)

    def sub(self, kib):
        """A buffer that is in many others parts of it."""
        size = int(kib) * KIB
        rc, whole = self.create(size)
        for _ in range(1000):
            part = Region(0, size // 2)
            rc = rc or self.make("clCreateSubBuffer", whole, c_ulong(0), REGION, byref(part))[0]
        return {"rc": rc or self.use(whole, size)}

    def svm(self, kib):
        size = int(kib) * KIB

        def take():
            memory = self.ask("clSVMAlloc", self.current, c_ulong(0), c_size_t(size), 0)
            self.kept.append((memory, None, size))
            return int(memory is None), size
        return self.fill(take)

    def svm_cycle(self, kib, enqueued):
        """Allocates and frees, ten times what there is."""
        for _ in range(100):
            memory = c_void_p(self.ask("clSVMAlloc", self.current, c_ulong(0), c_size_t(int(kib) * KIB), 0))
            if not memory:
                return {"rc": 1}
            if int(enqueued):
                self.call("clEnqueueSVMFree", self.queue, 1, byref(memory), None, None, 0, None, None)
                self.call("clFinish", self.queue)
            else:
                self.ask("clSVMFree", self.current, memory)
        return {"rc": 0}

    def images(self, width, height, depth="0", element="16"):
        form = ImageFormat(RGBA, FLOAT if element == "16" else UNORM_INT8)
        description = ImageDescription(type=IMAGE_3D if int(depth) else IMAGE_2D, width=int(width), height=int(height),
                                       depth=int(depth))
        color, origin, region = (c_uint * 4)(), (c_size_t * 3)(), (c_size_t * 3)(1, 1, 1)

        def take():
            rc, image = self.make("clCreateImage", self.current, c_ulong(0), byref(form), byref(description), None)
            rc = rc or self.ask("clEnqueueFillImage", self.queue, image, color, origin, region, 0, None, None)
            return rc or self.ask("clFinish", self.queue), int(width) * int(height) * max(int(depth), 1) * int(element)
        return self.fill(take)

    def queues(self, number):
        for _ in range(int(number)):
            rc, _ = self.make("clCreateCommandQueue", self.current, self.device, c_ulong(0))
            if rc != 0:
                break
        return {"rc": rc}

    def kernel(self, private):
        """Has it compiled, with so many bytes of private memory an item."""
        source = f"""kernel void k(global int* p) {{
          int a[{int(private) // 4}], sum = 0;
          for (int i = 0; i < {int(private) // 4}; i++) a[i] = p[i];
          for (int i = 0; i < p[0]; i++) sum += a[p[i]];
          p[0] = sum; }}""".encode()
        rc, program = self.make("clCreateProgramWithSource", self.current, 1, byref(c_char_p(source)), None)
        rc = rc or self.ask("clBuildProgram", program, 1, byref(self.device), b"", None, None)
        if rc == 0:
            rc, self.function = self.make("clCreateKernel", program, b"k")
        return {"rc": rc}

    def launch(self):
        if not self.function:
            return {"rc": 1}
        rc, memory = self.make("clCreateBuffer", self.current, c_ulong(0), c_size_t(65536), None)
        rc = rc or self.ask("clSetKernelArg", self.function, 0, c_size_t(8), byref(memory))
        rc = rc or self.ask("clEnqueueNDRangeKernel", self.queue, self.function, 1, None, byref(c_size_t(1)), None, 0, None, None)
        return {"rc": rc or self.ask("clFinish", self.queue)}

    def cycle(self, kib, times):
        """Creates, uses and releases buffers, one at a time."""
        size = int(kib) * KIB
        for _ in range(int(times)):
            rc, memory = self.make("clCreateBuffer", self.current, c_ulong(0), c_size_t(size), None)
            rc = rc or self.use(memory, size)
            if rc != 0:
                return {"rc": rc}
            self.call("clReleaseMemObject", memory)
        return {"rc": 0}

    def churn(self, seed, times):
        """Creates and releases by chance, and uses most of what it creates, now or later."""
        chance, refused, unused = random.Random(int(seed)), 0, []
        for _ in range(int(times)):
            kind = chance.random()
            if kind < 0.3 and self.kept:
                kept = self.kept.pop(chance.randrange(len(self.kept)))
                unused = [each for each in unused if each is not kept]
                self.call("clReleaseMemObject", kept[0])
            elif kind < 0.4 and unused:
                memory, _, size = unused.pop(chance.randrange(len(unused)))
                rc = self.use(memory, size)
                if rc not in (0, -4):
                    return {"rc": rc}
                refused += rc == -4
            else:
                size = chance.choice([4, 100, 700, 1000, 1025, 1500, 2048, 3000, 8000, 40000]) * KIB
                rc, memory = self.create(size)
                if rc == 0 and chance.random() < 0.7:
                    rc = self.use(memory, size)
                elif rc == 0:
                    unused.append(self.kept[-1])
                if rc not in (0, -4):
                    return {"rc": rc}
                refused += rc == -4
        return {"rc": 0, "refused": refused}

    def release(self, every="1"):
        """Every so manieth of what is kept."""
        for memory, _, _ in self.kept[::int(every)]:
            self.call("clReleaseMemObject", memory)
        del self.kept[::int(every)]
        self.call("clFinish", self.queue)
        return {"rc": 0}


def main():
    Commands(sys.argv[1]).run(sys.argv[2:])


if __name__ == "__main__":
    main()

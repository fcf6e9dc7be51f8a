"""vulkan_client.py COMMAND...: uses Vulkan as the commands say, one after another; each answers with one line of JSON.

A command is NAME or NAME:ARGUMENT:...; sizes are in KiB. A fill keeps what it gets, goes on until it is refused, and answers
with the bytes that it got, how many pieces they are, and how the last call failed. `release` frees what is kept. `wait`
answers and reads a line, so that nobody needs to sleep. The program ends as one that is killed: nothing is freed by hand.
"""
import ctypes
import os
import sys
import uuid
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from cuda_types import AllocationProperties, ExternalMemory, Location
from script import Script, descriptor_of

VULKAN = ctypes.CDLL("libvulkan.so.1")
KIB, MIB = 1 << 10, 1 << 20
MOST = 200000  # calls of one fill: the end of a driver that never refuses
API_VERSION = 1 << 22 | 3 << 12  # 1.3
DEVICE_LOCAL, HOST_VISIBLE = 1, 2
OPAQUE_FD, TRANSFER_DESTINATION, SAMPLED, IMAGE_2D, RGBA8 = 1, 2, 4, 1, 37
PINNED, BY_DESCRIPTOR, ON_DEVICE = 1, 1, 1  # of CUDA
WITHOUT_DEVICE = ("device", "gpu_number", "cuda", "wait", "release")
NAMES = {"import": "import_"}  # of commands that are no names in Python
EXTENSIONS = (b"VK_KHR_external_memory_fd", b"VK_EXT_memory_budget")


class Failed(Exception):
    """A call that had to succeed did not."""


def ask(name, *arguments):
    return getattr(VULKAN, name)(*arguments)


def call(name, *arguments):
    if (rc := ask(name, *arguments)) != 0:
        raise Failed(f"{name}: {rc}")


class Structure(ctypes.Structure):
    """That starts as zeros, but for its number, and is made by keywords."""

    NUMBER = None

    def __init__(self, **fields):
        super().__init__(**fields)
        if self.NUMBER is not None:
            self.type = self.NUMBER


def structure(number, *fields):
    """A Vulkan structure: what all of them begin with, and its own fields."""
    fields = [("type", c_uint), ("next_one", c_void_p), *fields]
    return type("Structure", (Structure,), {"NUMBER": number, "_fields_": fields})


ApplicationInfo = structure(0, ("name", c_char_p), ("version", c_uint), ("engine", c_char_p), ("engine_version", c_uint),
                            ("api_version", c_uint))
InstanceInfo = structure(1, ("flags", c_uint), ("application", c_void_p), ("layers", c_uint), ("layer_names", c_void_p),
                         ("extensions", c_uint), ("extension_names", c_void_p))
QueueInfo = structure(2, ("flags", c_uint), ("family", c_uint), ("count", c_uint), ("priorities", c_void_p))
DeviceInfo = structure(3, ("flags", c_uint), ("queues", c_uint), ("queue_infos", c_void_p), ("layers", c_uint),
                       ("layer_names", c_void_p), ("extensions", c_uint), ("extension_names", c_void_p),
                       ("features", c_void_p))
AllocateInfo = structure(5, ("size", c_ulonglong), ("memory_type", c_uint))
BufferInfo = structure(12, ("flags", c_uint), ("size", c_ulonglong), ("usage", c_uint), ("sharing", c_uint),
                       ("families", c_uint), ("family_list", c_void_p))
ImageInfo = structure(14, ("flags", c_uint), ("kind", c_uint), ("format", c_uint), ("extent", c_uint * 3), ("levels", c_uint),
                      ("layers", c_uint), ("samples", c_uint), ("tiling", c_uint), ("usage", c_uint), ("sharing", c_uint),
                      ("families", c_uint), ("family_list", c_void_p), ("layout", c_uint))
Properties2 = structure(1000059001, ("words", c_ulonglong * 103))  # VkPhysicalDeviceProperties is read by offset
IdProperties = structure(1000071004, ("device", ctypes.c_ubyte * 16), ("driver", ctypes.c_ubyte * 16),
                         ("luid", ctypes.c_ubyte * 8), ("node_mask", c_uint), ("luid_valid", c_uint))
ExportInfo = structure(1000072002, ("handle_types", c_uint))
ImportInfo = structure(1000074000, ("handle_type", c_uint), ("fd", c_int))
FdInfo = structure(1000074002, ("memory", c_ulonglong), ("handle_type", c_uint))
BudgetProperties = structure(1000237000, ("budget", c_ulonglong * 16), ("usage", c_ulonglong * 16))
NAME_OFFSET = 20  # of deviceName in VkPhysicalDeviceProperties


class MemoryType(Structure):
    _fields_ = [("flags", c_uint), ("heap", c_uint)]


class Heap(Structure):
    _fields_ = [("size", c_ulonglong), ("flags", c_uint)]


class MemoryProperties(Structure):
    _fields_ = [("type_count", c_uint), ("types", MemoryType * 32), ("heap_count", c_uint), ("heaps", Heap * 16)]


MemoryProperties2 = structure(1000059006, ("memory", MemoryProperties))


class Requirements(Structure):
    _fields_ = [("size", c_ulonglong), ("alignment", c_ulonglong), ("type_bits", c_uint)]


class CudaBuffer(Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""
    _fields_ = [("offset", c_ulonglong), ("size", c_ulonglong), ("flags", c_uint), ("reserved", c_uint * 16)]


def fill(take, most=None):
    """Calls take(), which returns the result of a call and the bytes it is for, until it is refused or has `most` bytes."""
    granted = count = rc = 0
    while most is None or granted < most:
        rc, size = take()
        if rc != 0:
            break
        granted += size
        count += 1
        if count == MOST:
            raise Failed("never refused")
    return {"granted": granted, "count": count, "rc": rc}


class Cuda:
    """libcuda in the same process, with a context."""

    def __init__(self):
        self.library, context, device = ctypes.CDLL("libcuda.so.1"), c_void_p(), c_int()
        self.rc = self.ask("cuInit", 0) or self.ask("cuDeviceGet", byref(device), 0)
        self.rc = self.rc or self.ask("cuCtxCreate_v2", byref(context), 0, device)

    def ask(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def call(self, name, *arguments):
        if (rc := self.ask(name, *arguments)) != 0:
            raise Failed(f"{name}: {rc}")


class Commands(Script):
    """Each method is a command."""

    def __init__(self):
        super().__init__()
        self.instance, self.gpu, self.number, self.current, self.more = None, c_void_p(), 0, None, []
        self.kept = []  # (memory, function that destroys what is in it, that) each
        self.programs_cuda = None

    def answer(self, name, *arguments):
        method = getattr(self, NAMES.get(name, name), None)
        try:
            if method is None:
                raise Failed("no such command")
            if self.current is None and name not in WITHOUT_DEVICE:
                raise Failed("no device")
            return method(*arguments)
        except (Failed, OSError) as error:
            sys.exit(f"vulkan_client.py: {':'.join((name, *arguments))}: {error}")

    # ---- Devices

    def make_instance(self):
        application = ApplicationInfo(name=b"test", api_version=API_VERSION)
        self.instance, gpus, count = c_void_p(), (c_void_p * 4)(), c_uint(4)
        call("vkCreateInstance", byref(InstanceInfo(application=ctypes.addressof(application))), None, byref(self.instance))
        call("vkEnumeratePhysicalDevices", self.instance, byref(count), gpus)
        self.gpu = c_void_p(gpus[self.number])

    def make_device(self):
        """The result, and a device with one queue of the first family."""
        priority, made = c_float(1), c_void_p()
        queue, names = QueueInfo(count=1, priorities=ctypes.addressof(priority)), (c_char_p * len(EXTENSIONS))(*EXTENSIONS)
        info = DeviceInfo(queues=1, queue_infos=ctypes.addressof(queue), extensions=len(EXTENSIONS),
                          extension_names=ctypes.addressof(names))
        return ask("vkCreateDevice", self.gpu, byref(info), None, byref(made)), made

    def device(self):
        if self.instance is None:
            self.make_instance()
        rc, made = self.make_device()
        self.current = made if rc == 0 else None
        ids = IdProperties()
        properties = Properties2(next_one=ctypes.addressof(ids))
        ask("vkGetPhysicalDeviceProperties2", self.gpu, byref(properties))
        name = ctypes.string_at(ctypes.addressof(properties.words) + NAME_OFFSET).decode()
        return {"rc": rc, "name": name, "uuid": str(uuid.UUID(bytes=bytes(ids.device))), "heaps": self.heaps()}

    def gpu_number(self, number):
        """Which one the first device is on."""
        self.number = int(number)
        return {"rc": 0}

    def devices(self, count):
        """More of them, beside the one in use."""
        for made in range(int(count)):
            rc, device = self.make_device()
            if rc != 0:
                return {"count": made, "rc": rc}
            self.more.append(device)
        return {"count": int(count), "rc": 0}

    def end_device(self):
        """The one in use, with what it has."""
        self.release()
        ask("vkDestroyDevice", self.current, None)
        self.current = None
        return {"rc": 0}

    # ---- What it says of memory

    def memory_properties(self):
        properties = MemoryProperties()
        ask("vkGetPhysicalDeviceMemoryProperties", self.gpu, byref(properties))
        return properties

    def heaps(self):
        """In MiB."""
        properties = self.memory_properties()
        return [heap.size / MIB for heap in properties.heaps[:properties.heap_count]]

    def budget(self):
        """In MiB, a number for each heap."""
        budget = BudgetProperties()
        ask("vkGetPhysicalDeviceMemoryProperties2", self.gpu, byref(MemoryProperties2(next_one=ctypes.addressof(budget))))
        heaps = self.heaps()
        return {"heaps": heaps, "budget": [bytes_ / MIB for bytes_ in budget.budget[:len(heaps)]],
                "usage": [bytes_ / MIB for bytes_ in budget.usage[:len(heaps)]]}

    def type_with(self, wanted, unwanted=0, bits=~0):
        """The first such type of memory."""
        properties = self.memory_properties()
        for number, kind in enumerate(properties.types[:properties.type_count]):
            if bits >> number & 1 and kind.flags & wanted == wanted and not kind.flags & unwanted:
                return number
        raise Failed("no such type of memory")

    # ---- Memory

    def take(self, size, memory_type, next_one=None):
        """The result, and memory of that type."""
        memory = c_ulonglong()
        info = AllocateInfo(size=size, memory_type=memory_type, next_one=next_one and ctypes.addressof(next_one))
        return ask("vkAllocateMemory", self.current, byref(info), None, byref(memory)), memory

    def fill_type(self, kib, memory_type, most=None):
        size = int(kib) * KIB

        def take():
            rc, memory = self.take(size, memory_type)
            if rc == 0:
                self.kept.append((memory, None, None))
            return rc, size
        return fill(take, most)

    def memory(self, kib):
        """Of the device alone."""
        return self.fill_type(kib, self.type_with(DEVICE_LOCAL, HOST_VISIBLE))

    def visible(self, kib):
        """Of the device, in the host's reach."""
        return self.fill_type(kib, self.type_with(DEVICE_LOCAL | HOST_VISIBLE))

    def host(self, kib, most_mib="256"):
        return self.fill_type(kib, self.type_with(HOST_VISIBLE, DEVICE_LOCAL), int(most_mib) * MIB)

    def allocate(self, kib):
        rc, memory = self.take(int(kib) * KIB, self.type_with(DEVICE_LOCAL, HOST_VISIBLE))
        if rc == 0:
            self.kept.append((memory, None, None))
        return {"rc": rc}

    def bound(self, kind, info):
        """The result, and the bytes that a buffer or an image took of the device; it is kept."""
        thing, needs = c_ulonglong(), Requirements()
        call(f"vkCreate{kind}", self.current, byref(info), None, byref(thing))
        ask(f"vkGet{kind}MemoryRequirements", self.current, thing, byref(needs))
        rc, memory = self.take(needs.size, self.type_with(DEVICE_LOCAL, HOST_VISIBLE, needs.type_bits))
        if rc != 0:
            ask(f"vkDestroy{kind}", self.current, thing, None)
            return rc, 0
        call(f"vkBind{kind}Memory", self.current, thing, memory, c_ulonglong(0))
        self.kept.append((memory, f"vkDestroy{kind}", thing))
        return 0, needs.size

    def buffers(self, kib):
        return fill(lambda: self.bound("Buffer", BufferInfo(size=int(kib) * KIB, usage=TRANSFER_DESTINATION)))

    def images(self, width, height):
        info = ImageInfo(kind=IMAGE_2D, format=RGBA8, extent=(int(width), int(height), 1), levels=1, layers=1, samples=1,
                         usage=TRANSFER_DESTINATION | SAMPLED)
        return fill(lambda: self.bound("Image", info))

    def free(self, number):
        """One of what is kept."""
        memory, destroy, thing = self.kept.pop(int(number))
        if destroy is not None:
            ask(destroy, self.current, thing, None)
        ask("vkFreeMemory", self.current, memory, None)
        return {"rc": 0}

    def release(self):
        while self.kept:
            self.free(-1)
        return {"rc": 0}

    # ---- Memory that crosses processes

    def function_of_device(self, name):
        get = VULKAN.vkGetDeviceProcAddr
        get.restype = c_void_p
        return ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)(get(self.current, name))

    def take_exported(self, size):
        """The result, memory of the device, and the descriptor by which others import it."""
        rc, memory = self.take(size, self.type_with(DEVICE_LOCAL, HOST_VISIBLE), ExportInfo(handle_types=OPAQUE_FD))
        if rc != 0:
            return rc, memory, -1
        fd, info = c_int(), FdInfo(memory=memory, handle_type=OPAQUE_FD)
        get = self.function_of_device(b"vkGetMemoryFdKHR")
        if (rc := get(self.current, ctypes.addressof(info), ctypes.addressof(fd))) != 0:
            raise Failed(f"vkGetMemoryFdKHR: {rc}")
        return 0, memory, fd.value

    def abandon(self, kib):
        """Memory that only a descriptor holds: it is exported, and freed here."""
        rc, memory, fd = self.take_exported(int(kib) * KIB)
        if rc == 0:
            ask("vkFreeMemory", self.current, memory, None)
            self.descriptors.append(fd)
        return {"rc": rc, "pid": os.getpid(), "fd": fd}

    def open(self, pid, fd, kib):
        """Memory of another process, by a descriptor there."""
        return self.import_fd(descriptor_of(int(pid), int(fd)), int(kib) * KIB)

    def import_fd(self, fd, size):
        """The driver closes the descriptor."""
        given = ImportInfo(handle_type=OPAQUE_FD, fd=fd)
        rc, memory = self.take(size, self.type_with(DEVICE_LOCAL, HOST_VISIBLE), given)
        if rc == 0:
            self.kept.append((memory, None, None))
        return {"rc": rc}

    # ---- CUDA in the same process

    def its_cuda(self):
        if self.programs_cuda is None:
            self.programs_cuda = Cuda()
        return self.programs_cuda

    def cuda(self, kib):
        """A context, and cuMemAlloc until it is refused."""
        cuda, size = self.its_cuda(), int(kib) * KIB
        if cuda.rc != 0:
            return {"granted": 0, "count": 0, "rc": cuda.rc}
        return fill(lambda: (cuda.ask("cuMemAlloc_v2", byref(c_ulonglong()), c_size_t(size)), size))

    def export(self, kib):
        """Memory of the device that CUDA imports and maps."""
        cuda, size, handle, address = self.its_cuda(), int(kib) * KIB, c_void_p(), c_ulonglong()
        rc, memory, fd = self.take_exported(size)
        if rc != 0:
            return {"rc": rc}
        self.kept.append((memory, None, None))
        cuda.call("cuImportExternalMemory", byref(handle), byref(ExternalMemory(type=OPAQUE_FD, fd=fd, size=size)))
        cuda.call("cuExternalMemoryGetMappedBuffer", byref(address), handle, byref(CudaBuffer(size=size)))
        return {"rc": 0}

    def import_(self, kib):
        """Memory of CUDA that Vulkan imports."""
        cuda, size, handle, fd = self.its_cuda(), int(kib) * KIB, c_ulonglong(), c_int()
        properties = AllocationProperties(type=PINNED, handle_types=BY_DESCRIPTOR, location=Location(type=ON_DEVICE))
        if (rc := cuda.ask("cuMemCreate", byref(handle), c_size_t(size), byref(properties), c_ulonglong(0))) != 0:
            return {"rc": rc}
        cuda.call("cuMemExportToShareableHandle", byref(fd), handle, BY_DESCRIPTOR, c_ulonglong(0))
        return self.import_fd(fd.value, size)


def main():
    Commands().run(sys.argv[1:])
    os._exit(0)


if __name__ == "__main__":
    main()

"""drm_client.py COMMAND...: takes device memory from the render node by libdrm; each command answers with one line of JSON.

A name stands for a descriptor, another for a handle. `open:FILE`, `close_file:FILE`;
`create:FILE:BUFFER:KIB`, `host:FILE:BUFFER:KIB`, `close:FILE:BUFFER`; `share:FILE:BUFFER:OTHER:NAME` imports in another file;
`export:FILE:BUFFER` keeps a descriptor until `let_go`; `import:FILE:NAME` takes the last of them, `import:FILE:NAME:PID:FD` one of another process; `place:FILE:BUFFER` moves host memory to the device. `fill:FILE:KIB` goes on until it is refused, and keeps nothing.
`device:FILE` and `end_device` make a device of libdrm_amdgpu from an open file and end it; `leak:KIB` allocates by it. `fork`
ends in a child.
"""
import ctypes
import fcntl
import os
import sys
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../nvidia"))
from script import Script, descriptor_of  # pylint: disable=wrong-import-position

DRM = ctypes.CDLL("libdrm.so.2", use_errno=True)
AMDGPU = ctypes.CDLL("libdrm_amdgpu.so.1")
NODE = "/dev/dri/renderD128"
GTT, VRAM, SET_PLACEMENT = 2, 4, 1


def request(number, kind):
    return 3 << 30 | ctypes.sizeof(kind) << 16 | ord("d") << 8 | number


class Create(ctypes.Structure):
    _fields_ = [("size", c_ulonglong), ("alignment", c_ulonglong), ("domains", c_ulonglong), ("flags", c_ulonglong)]


class Close(ctypes.Structure):
    _fields_ = [("handle", c_uint), ("pad", c_uint)]


class Prime(ctypes.Structure):
    _fields_ = [("handle", c_uint), ("flags", c_uint), ("fd", c_int)]


class Operation(ctypes.Structure):
    _fields_ = [("handle", c_uint), ("operation", c_uint), ("value", c_ulonglong)]


class Wanted(ctypes.Structure):
    """amdgpu_bo_alloc_request."""
    _fields_ = [("size", c_ulonglong), ("alignment", c_ulonglong), ("heap", c_uint), ("flags", c_ulonglong)]


class Commands(Script):
    def __init__(self):
        super().__init__()
        self.files, self.handles, self.amdgpu_device = {}, {}, None

    def answer(self, name, *arguments):
        return super().answer({"import": "import_"}.get(name, name), *arguments)

    def ask(self, file, number, arguments):
        """0, or the error."""
        failed = DRM.drmIoctl(self.files[file], c_ulonglong(request(number, arguments)), byref(arguments))
        return ctypes.get_errno() if failed else 0

    def open(self, file):
        self.files[file] = os.open(NODE, os.O_RDWR | os.O_CLOEXEC)
        return {}

    def close_file(self, file):
        os.close(self.files.pop(file))
        return {}

    def take(self, file, kib, domain=VRAM):
        arguments = Create(size=int(kib) << 10, alignment=4096, domains=domain)
        rc = self.ask(file, 0x40, arguments)
        return rc, arguments.size & 0xffffffff

    def create(self, file, name, kib, domain=VRAM):
        rc, self.handles[name] = self.take(file, kib, domain)
        return {"rc": rc}

    def host(self, file, name, kib):
        return self.create(file, name, kib, GTT)

    def give_back(self, file, handle):
        return self.ask(file, 0x09, Close(handle=handle))

    def close(self, file, name):
        return {"rc": self.give_back(file, self.handles.pop(name))}

    def share(self, file, name, other, imported):
        shared = Prime(handle=self.handles[name], flags=fcntl.FD_CLOEXEC)
        rc = self.ask(file, 0x2d, shared)
        given = Prime(fd=shared.fd)
        rc = rc or self.ask(other, 0x2e, given)
        os.close(shared.fd)
        self.handles[imported] = given.handle
        return {"rc": rc}

    def export(self, file, name):
        shared = Prime(handle=self.handles[name], flags=fcntl.FD_CLOEXEC)
        rc = self.ask(file, 0x2d, shared)
        self.descriptors.append(shared.fd)
        return {"rc": rc, "pid": os.getpid(), "fd": shared.fd}

    def import_(self, file, name, pid=None, fd=None):
        given = Prime(fd=descriptor_of(int(pid), int(fd)) if pid else os.dup(self.descriptors[-1]))
        rc = self.ask(file, 0x2e, given)
        os.close(given.fd)
        self.handles[name] = given.handle
        return {"rc": rc}

    def place(self, file, name):
        arguments = Operation(handle=self.handles[name], operation=SET_PLACEMENT, value=VRAM)
        return {"rc": self.ask(file, 0x50, arguments), "domains": arguments.value}

    def fill(self, file, kib):
        taken, rc = [], 0
        while rc == 0:
            rc, handle = self.take(file, kib)
            if rc == 0:
                taken.append(handle)
        for handle in taken:
            self.give_back(file, handle)
        return {"count": len(taken), "rc": rc}

    def device(self, file):
        self.amdgpu_device, version = c_void_p(), c_uint()
        return {"rc": AMDGPU.amdgpu_device_initialize(self.files[file], byref(version), byref(version), byref(self.amdgpu_device))}

    def leak(self, kib):
        wanted = Wanted(size=int(kib) << 10, alignment=4096, heap=VRAM)
        return {"rc": AMDGPU.amdgpu_bo_alloc(self.amdgpu_device, byref(wanted), byref(c_void_p()))}

    def end_device(self):
        return {"rc": AMDGPU.amdgpu_device_deinitialize(self.amdgpu_device)}

    def fork(self):
        """Goes on in a child, whose end the parent waits for."""
        if child := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return {}


def main():
    Commands().run(sys.argv[1:])
    os._exit(0)


if __name__ == "__main__":
    main()

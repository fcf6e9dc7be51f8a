"""opengl_client.py COMMAND...: uses OpenGL, by EGL without a display, as the commands say; each answers with one line of JSON.

`info` tells what GL_NVX_gpu_memory_info says in MiB. `buffers:MIB:NUMBER` makes and writes so many buffers, and `textures` so
many textures; the driver moves to host memory what does not fit. `wait` answers and reads a line.
"""
import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_long, c_uint, c_void_p

from script import Script

EGL = ctypes.CDLL("libEGL.so.1")
MIB = 1 << 20
DEVICE_PLATFORM, OPENGL, NO_ATTRIBUTES = 0x313F, 0x30A2, 0x3038
RENDERABLE, OPENGL_BIT = 0x3040, 8
ARRAY_BUFFER, STATIC_DRAW, TEXTURE_2D, RGBA8, RGBA, UNSIGNED_BYTE = 0x8892, 0x88E4, 0xDE1, 0x8058, 0x1908, 0x1401
TOTAL, AVAILABLE, RENDERER = 0x9048, 0x9049, 0x1F01
SIDE = 1024  # of a texture of 4 MiB


def function(name, result, *arguments):
    return CFUNCTYPE(result, *arguments)(EGL.eglGetProcAddress(name.encode()))


class Commands(Script):
    """With a context that is current."""

    def __init__(self):
        super().__init__()
        EGL.eglGetProcAddress.restype = EGL.eglCreateContext.restype = c_void_p
        devices, count, display, config, configs = (c_void_p * 8)(), c_int(), None, c_void_p(), c_int()
        function("eglQueryDevicesEXT", c_uint, c_int, c_void_p, c_void_p)(8, devices, byref(count))
        display = c_void_p(function("eglGetPlatformDisplayEXT", c_void_p, c_uint, c_void_p, c_void_p)(DEVICE_PLATFORM, devices[0], None))
        wanted = (c_int * 3)(RENDERABLE, OPENGL_BIT, NO_ATTRIBUTES)
        made = EGL.eglInitialize(display, None, None) and EGL.eglBindAPI(OPENGL) and \
            EGL.eglChooseConfig(display, wanted, byref(config), 1, byref(configs))
        context = c_void_p(EGL.eglCreateContext(display, config, None, None)) if made else None
        if not context or not EGL.eglMakeCurrent(display, None, None, context):
            sys.exit(f"no context of OpenGL: EGL's error is {EGL.eglGetError():#x}")
        self.error = function("glGetError", c_uint)
        self.finish = function("glFinish", None)

    def integer(self, name):
        values = (c_int * 4)()
        function("glGetIntegerv", None, c_uint, c_void_p)(name, values)
        return values[0]

    def info(self):
        return {"total": self.integer(TOTAL) / 1024, "available": self.integer(AVAILABLE) / 1024,
                "renderer": function("glGetString", c_char_p, c_uint)(RENDERER).decode()}

    def some(self, number, make):
        for i in range(number):
            make()
            self.finish()
            if (error := self.error()) != 0:
                return {"count": i, "rc": error}
        return {"count": number, "rc": 0}

    def buffers(self, mib, number):
        generate, bind = function("glGenBuffers", None, c_int, POINTER(c_uint)), function("glBindBuffer", None, c_uint, c_uint)
        store = function("glBufferData", None, c_uint, c_long, c_void_p, c_uint)
        write = function("glBufferSubData", None, c_uint, c_long, c_long, c_void_p)

        def make():
            name = c_uint()
            generate(1, byref(name))
            bind(ARRAY_BUFFER, name)
            store(ARRAY_BUFFER, int(mib) * MIB, None, STATIC_DRAW)
            write(ARRAY_BUFFER, 0, 4, b"some")
        return self.some(int(number), make)

    def textures(self, number):
        generate, bind = function("glGenTextures", None, c_int, POINTER(c_uint)), function("glBindTexture", None, c_uint, c_uint)
        store = function("glTexStorage2D", None, c_uint, c_int, c_uint, c_int, c_int)
        write = function("glTexSubImage2D", None, c_uint, c_int, c_int, c_int, c_int, c_int, c_uint, c_uint, c_void_p)
        pixels = ctypes.create_string_buffer(4 * SIDE)

        def make():
            name = c_uint()
            generate(1, byref(name))
            bind(TEXTURE_2D, name)
            store(TEXTURE_2D, 1, RGBA8, SIDE, SIDE)
            write(TEXTURE_2D, 0, 0, 0, SIDE, 1, RGBA, UNSIGNED_BYTE, pixels)
        return self.some(int(number), make)


def main():
    Commands().run(sys.argv[1:])


if __name__ == "__main__":
    main()

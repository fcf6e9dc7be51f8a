"""vulkan_client.py with one command more: `hip:KIB` allocates by HIP until it is refused, `hip:KIB:MIB` until it has so much."""
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../nvidia"))
import vulkan_client  # pylint: disable=wrong-import-position


class Commands(vulkan_client.Commands):
    def hip(self, kib, most_mib=None):
        hip, size = ctypes.CDLL("libamdhip64.so.6"), int(kib) << 10
        return vulkan_client.fill(lambda: (hip.hipMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)), size),
                                  most_mib and int(most_mib) << 20)


if __name__ == "__main__":
    vulkan_client.Commands = Commands
    vulkan_client.WITHOUT_DEVICE += ("hip",)
    vulkan_client.main()

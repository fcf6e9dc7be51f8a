#!/usr/bin/env python3
"""The driver as Python tools reach it: ctypes.CDLL("libcuda.so.1") and names on the handle.

usage: ctypes_client.py [SIZE...]   allocates each size (bytes) on device 0 and prints one line for each step.
"""
import ctypes
import sys


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    print(f"init rc={cuda.cuInit(0)}")
    device = ctypes.c_int()
    print(f"device 0 rc={cuda.cuDeviceGet(ctypes.byref(device), 0)}")
    context = ctypes.c_void_p()
    rc = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    print(f"retain rc={rc or cuda.cuCtxSetCurrent(context)}")
    for size in map(int, sys.argv[1:]):
        pointer = ctypes.c_uint64()
        rc = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        print(f"alloc {size} rc={rc} ptr={pointer.value:#x}")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    rc = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    print(f"meminfo rc={rc} free={free.value} total={total.value}", flush=True)


if __name__ == "__main__":
    main()

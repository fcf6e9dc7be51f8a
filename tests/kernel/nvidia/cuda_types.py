"""CUDA's structures for memory that crosses processes. They start as zeros and are made by keywords, as all in ctypes."""
import ctypes
from ctypes import c_int, c_uint, c_ulonglong, c_void_p


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location), ("metadata", c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class ExternalMemory(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""
    _fields_ = [("type", c_int), ("fd", c_ulonglong), ("name", c_void_p), ("size", c_ulonglong), ("flags", c_uint),
                ("reserved", c_uint * 16)]

#!/usr/bin/env python3
"""AMD's tool libraries as Python tools reach them: ctypes.CDLL(…) and names on the handle.

usage: smi_client.py amdsmi LIBRARY LAYOUT | rocmsmi LIBRARY   [--user UID] [--pid PID]

Prints what the library says of every device and process, and as lines that begin with "edge" what it answers to calls
that are wrong, lack room or only ask for a count. LAYOUT is that of the version's structs, old, middle or new.
"""
import argparse
import ctypes
from ctypes import byref, c_uint32, c_uint64, c_void_p
import os
import struct

VRAM, VISIBLE, GTT, NO_TYPE = range(4)
ENTRY = {"old": (224, 32, 40, 128), "middle": (704, 256, 264, 352), "new": (704, 256, 264, 352)}  # of a list: bytes, PID, memory, VRAM
VRAM_SIZE = {"old": 8, "middle": 8, "new": 264}
BY_PID_BYTES, BY_PID_COUNT, BY_PID_FIRST, BY_PID_ENTRY = 6664, 516, 520, 192
ROOM = 16


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def number(call, *args):
    """The number that a function gives through its last parameter, or its error."""
    value = c_uint64()
    rc = call(*args, byref(value))
    return value.value if rc == 0 else f"error-{rc}"


def edge(name, rc, count=None):
    print(f"edge {name} rc={rc}" + ("" if count is None else f" count={count.value}"))


def memory(kind, total, used, device):
    print(f"memory {kind} total={number(total, device, kind)} used={number(used, device, kind)}")


def compute_processes(get, by_pid, gpus, pid):
    """The lists of KFD, which both libraries have."""
    data, count = ctypes.create_string_buffer(32 * ROOM), c_uint32(ROOM)
    if get(data, byref(count)) == 0:
        for i in range(count.value):
            print(f"compute pid={u32(data, 32 * i)} vram={u64(data, 32 * i + 8)}")
    edge("compute nothing", get(None, None))
    count = c_uint32(0)
    edge("compute probe", get(None, byref(count)), count)
    count = c_uint32(1)
    edge("compute one", get(data, byref(count)), count)
    one = ctypes.create_string_buffer(32)
    rc = by_pid(pid, one)
    print(f"by_pid {pid} rc={rc} pid={u32(one, 0)} vram={u64(one, 8)}")
    edge("by_pid of nobody", by_pid(1, one))
    count = c_uint32()
    rc = gpus(pid, None, byref(count))
    print(f"gpus {pid} rc={rc} count={count.value}")


def rocmsmi(library, pid):
    edge("uninitialised", library.rsmi_compute_process_info_get(None, byref(c_uint32())))
    print(f"init rc={library.rsmi_init(c_uint64(0))}")
    yield
    count = c_uint32()
    library.rsmi_num_monitor_devices(byref(count))
    total, used = library.rsmi_dev_memory_total_get, library.rsmi_dev_memory_usage_get
    for device in range(count.value):
        print(f"device {device}")
        for kind in (VRAM, VISIBLE, GTT):
            memory(kind, total, used, device)
        one = ctypes.create_string_buffer(32)
        rc = library.rsmi_compute_process_info_by_device_get(pid, device, one)
        print(f"by_device {pid} rc={rc} vram={u64(one, 8)}")
    edge("total nowhere", total(0, VRAM, None))
    edge("used nowhere", used(0, VRAM, None))
    edge("total of no type", total(0, NO_TYPE, byref(c_uint64())))
    edge("total of no device", total(99, VRAM, byref(c_uint64())))
    compute_processes(library.rsmi_compute_process_info_get, library.rsmi_compute_process_info_by_pid_get,
                      library.rsmi_compute_process_gpus_get, pid)


def handles_of(library):
    count = c_uint32()
    library.amdsmi_get_socket_handles(byref(count), None)
    sockets = (c_void_p * count.value)()
    library.amdsmi_get_socket_handles(byref(count), sockets)
    for socket in sockets:
        library.amdsmi_get_processor_handles(c_void_p(socket), byref(count), None)
        handles = (c_void_p * count.value)()
        library.amdsmi_get_processor_handles(c_void_p(socket), byref(count), handles)
        yield from (c_void_p(handle) for handle in handles)


def processes_of(library, layout, handle, lists_pids):
    size, pid_at, memory_at, vram_at = (4, 0, 0, 0) if lists_pids else ENTRY[layout]
    data, count = ctypes.create_string_buffer(size * ROOM), c_uint32(ROOM)
    rc = library.amdsmi_get_gpu_process_list(handle, byref(count), data)
    print(f"processes rc={rc} count={count.value}")
    for i in range(count.value):
        at, entry = size * i, data
        pid = u32(data, at + pid_at)
        if lists_pids:
            entry, at = ctypes.create_string_buffer(ENTRY[layout][0]), 0
            rc = library.amdsmi_get_gpu_process_info(handle, pid, entry)
            _, _, memory_at, vram_at = ENTRY[layout]
        other = u64(entry, at + memory_at) - u64(entry, at + vram_at)
        print(f"process pid={pid} rc={rc} vram={u64(entry, at + vram_at)} other={other}")


def processes_by_pid(library, handles):
    array = (c_void_p * len(handles))(*[handle.value for handle in handles])
    data, count = ctypes.create_string_buffer(BY_PID_BYTES * ROOM), c_uint32(ROOM)
    listing = library.amdsmi_get_gpu_process_list_by_pid
    rc = listing(array, len(handles), data, byref(count))
    print(f"grouped rc={rc} count={count.value}")
    for i in range(count.value):
        at = BY_PID_BYTES * i
        for j in range(u32(data, at + BY_PID_COUNT)):
            entry = at + BY_PID_FIRST + BY_PID_ENTRY * j
            print(f"group pid={u32(data, at)} device={u32(data, entry)} vram={u64(data, entry + 96)}")
    count = c_uint32(0)
    edge("grouped probe", listing(array, len(handles), None, byref(count)), count)
    count = c_uint32(1)
    edge("grouped one", listing(array, len(handles), data, byref(count)), count)
    edge("grouped nothing", listing(array, len(handles), data, None))
    edge("grouped nowhere", listing(None, 1, data, byref(count)))


def amdsmi(library, layout, pid):
    edge("uninitialised", library.amdsmi_get_gpu_compute_process_info(None, byref(c_uint32())))
    print(f"init rc={library.amdsmi_init(c_uint64(2))}")
    yield
    handles = list(handles_of(library))
    total, used = library.amdsmi_get_gpu_memory_total, library.amdsmi_get_gpu_memory_usage
    lists_pids = hasattr(library, "amdsmi_get_gpu_process_info")
    for device, handle in enumerate(handles):
        print(f"device {device}")
        for kind in (VRAM, VISIBLE, GTT):
            memory(kind, total, used, handle)
        usage, info = ctypes.create_string_buffer(64), ctypes.create_string_buffer(1024)
        rc = library.amdsmi_get_gpu_vram_usage(handle, usage)
        print(f"vram_usage rc={rc} total={u32(usage, 0)} used={u32(usage, 4)}")
        rc = library.amdsmi_get_gpu_vram_info(handle, info)
        print(f"vram_info rc={rc} size={u64(info, VRAM_SIZE[layout])}")
        processes_of(library, layout, handle, lists_pids)
    if hasattr(library, "amdsmi_get_gpu_process_list_by_pid"):
        processes_by_pid(library, handles)
    listing, data, first = library.amdsmi_get_gpu_process_list, ctypes.create_string_buffer(704), handles[0]
    count = c_uint32(0)
    edge("list probe", listing(first, byref(count), None), count)
    count = c_uint32(1)
    edge("list one", listing(first, byref(count), data), count)
    count = c_uint32(2)
    edge("list nowhere", listing(first, byref(count), None))
    edge("list nothing", listing(first, None, data))
    edge("list of no device", listing(c_void_p(1), byref(count), data))
    edge("total nowhere", total(first, VRAM, None))
    edge("used nowhere", used(first, VRAM, None))
    edge("total of no type", total(first, NO_TYPE, byref(c_uint64())))
    edge("total of no device", total(c_void_p(1), VRAM, byref(c_uint64())))
    edge("vram_usage nowhere", library.amdsmi_get_gpu_vram_usage(first, None))
    edge("vram_info nowhere", library.amdsmi_get_gpu_vram_info(first, None))
    compute_processes(library.amdsmi_get_gpu_compute_process_info, library.amdsmi_get_gpu_compute_process_info_by_pid,
                      library.amdsmi_get_gpu_compute_process_gpus, pid)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["amdsmi", "rocmsmi"])
    parser.add_argument("library")
    parser.add_argument("layout", nargs="?")
    parser.add_argument("--user", type=int)
    parser.add_argument("--pid", type=int, default=1)
    parser.add_argument("--beside", help="another library, loaded first and never initialised")
    args = parser.parse_args()
    if args.beside:
        ctypes.CDLL(args.beside)
    library = ctypes.CDLL(args.library)
    steps = rocmsmi(library, args.pid) if args.kind == "rocmsmi" else amdsmi(library, args.layout, args.pid)
    next(steps)
    if args.user:
        os.setgid(args.user)
        os.setuid(args.user)
    for _ in steps:
        pass


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""NVML as Python's monitors reach it: ctypes.CDLL("libnvidia-ml.so.1") and names on the handle.

usage: nvml_client.py COMMAND...   runs the commands in order; each prints one line, a list one more for each entry

  device N | instance N | uuid UUID    chooses the device that the following ask: GPU 0 at first; a MIG instance of it
  v1 | v2 | bad | null                 memory info; with a wrong version, and without anywhere to put it
  list NAME [ROOM]                     nvmlDeviceGet{NAME}; entries that fit, 8 if not said
  details MODE [ROOM]                  nvmlDeviceGetRunningProcessDetailList
  nolist NAME COUNT                    the same with a count and no array
  attributes NAME                      nvmlDevice{NAME}
  mig                                  what kind of device it is
  accounts [ROOM]                      nvmlDeviceGetAccountingPids, as a list
  account PID                          nvmlDeviceGetAccountingStats in both versions
  protected                            what is reported of confidential computing
"""
import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char, c_uint, c_ulonglong, c_void_p

GUARD = 0xA5


class InfoV1(Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong)]


class Info(Structure):
    _fields_ = InfoV1._fields_ + [("gi", c_uint), ("ci", c_uint)]


class Detail(Structure):
    _fields_ = Info._fields_ + [("protected", c_ulonglong)]


class DetailList(Structure):
    _fields_ = [("version", c_uint), ("mode", c_uint), ("count", c_uint), ("entries", POINTER(Detail))]


class Account(Structure):
    _fields_ = [("pid", c_uint)]


class Stats(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint), ("most", c_ulonglong), ("time", c_ulonglong),
                ("start", c_ulonglong), ("running", c_uint), ("reserved", c_uint * 5)]


class StatsV2(Structure):
    _fields_ = [("pid", c_uint), ("running", c_uint), ("gpu", c_uint), ("memory", c_uint), ("most", c_ulonglong),
                ("samples", c_uint), ("gpu_sum", c_ulonglong), ("memory_sum", c_ulonglong), ("time", c_ulonglong),
                ("start", c_ulonglong)]


class Client:
    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        assert self.nvml.nvmlInit_v2() == 0
        self.gpu = self.handle = self.made("nvmlDeviceGetHandleByIndex_v2", 0)

    def made(self, name, *arguments):
        handle = c_void_p()
        result = getattr(self.nvml, name)(*arguments, byref(handle))
        assert result == 0, f"{name} answers {result}"
        return handle

    def number(self, name, device=None):
        value = c_uint(0)
        result = getattr(self.nvml, name)(device or self.handle, byref(value))
        return value.value if result == 0 else f"error-{result}"

    def uuid_of(self, handle):
        text = (c_char * 96)()
        assert self.nvml.nvmlDeviceGetUUID(handle, text, 96) == 0
        return text.value.decode()

    def device(self, number):
        self.gpu = self.handle = self.made("nvmlDeviceGetHandleByIndex_v2", int(number))
        print(f"device {self.uuid_of(self.handle)}")

    def instance(self, number):
        self.handle = self.made("nvmlDeviceGetMigDeviceHandleByIndex", self.gpu, int(number))
        print(f"instance {self.uuid_of(self.handle)}")

    def uuid(self, text):
        self.handle = self.made("nvmlDeviceGetHandleByUUID", text.encode())
        print(f"uuid {self.uuid_of(self.handle)}")

    def v1(self):
        memory = (c_ulonglong * 3)()
        result = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, memory)
        print(f"v1 rc={result} total={memory[0]} free={memory[1]} used={memory[2]}")

    def v2(self, name="v2", version=0x2000028):
        memory = (c_ulonglong * 5)(version)
        result = self.nvml.nvmlDeviceGetMemoryInfo_v2(self.handle, memory)
        print(f"{name} rc={result} total={memory[1]} reserved={memory[2]} free={memory[3]} used={memory[4]}")

    def bad(self):
        self.v2("bad", 0x1000028)

    def null(self):
        first = self.nvml.nvmlDeviceGetMemoryInfo(self.handle, None)
        second = self.nvml.nvmlDeviceGetMemoryInfo_v2(self.handle, None)
        processes = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, None, None)
        details = self.nvml.nvmlDeviceGetRunningProcessDetailList(self.handle, None)
        attributes = self.nvml.nvmlDeviceGetAttributes_v2(self.handle, None)
        print(f"null v1={first} v2={second} list={processes} details={details} attributes={attributes}")

    def show(self, name, result, count, entries, room):
        # Nothing may be written behind the room that was given.
        behind = bytes(entries)[room * ctypes.sizeof(entries._type_):]
        intact = all(byte == GUARD for byte in behind)
        print(f"{name} rc={result} count={count} intact={int(intact)}")
        for entry in entries[:min(count, room) if result == 0 else 0]:
            values = " ".join(f"{field}={getattr(entry, field)}" for field, _ in entry._fields_)
            print(f"  {values}")

    @staticmethod
    def guarded(kind, room):
        entries = (kind * (room + 4))()
        ctypes.memset(entries, GUARD, ctypes.sizeof(entries))
        return entries

    def list(self, name, room=8):
        room = int(room)
        entries = self.guarded(Info if name.endswith(("_v2", "_v3")) else InfoV1, room)
        count = c_uint(room)
        result = getattr(self.nvml, "nvmlDeviceGet" + name)(self.handle, byref(count), entries)
        self.show(name, result, count.value, entries, room)

    def details(self, mode, room=8, version=0x1000018):
        room = int(room)
        entries = self.guarded(Detail, room)
        asked = DetailList(version, int(mode), room, ctypes.cast(entries, POINTER(Detail)))
        result = self.nvml.nvmlDeviceGetRunningProcessDetailList(self.handle, byref(asked))
        self.show("details", result, asked.count, entries, room)

    def nolist(self, name, number):
        count = c_uint(int(number))
        result = getattr(self.nvml, "nvmlDeviceGet" + name)(self.handle, byref(count), None)
        print(f"nolist rc={result} count={count.value}")

    def attributes(self, name):
        values = (c_uint * 10)()
        result = getattr(self.nvml, "nvmlDevice" + name)(self.handle, values)
        print(f"{name} rc={result} memory={ctypes.cast(values, POINTER(c_ulonglong))[4]}")

    def accounts(self, room=8):
        room = int(room)
        entries = self.guarded(Account, room)
        count = c_uint(room)
        result = self.nvml.nvmlDeviceGetAccountingPids(self.handle, byref(count), entries)
        self.show("accounts", result, count.value, entries, room)

    def account(self, pid):
        first, second = Stats(), StatsV2(pid=int(pid))
        result = self.nvml.nvmlDeviceGetAccountingStats(self.handle, int(pid), byref(first))
        print(f"account rc={result} most={first.most} running={first.running} gpu={first.gpu}")
        result = self.nvml.nvmlDeviceGetAccountingStats_v2(self.handle, byref(second))
        print(f"account2 rc={result} most={second.most} running={second.running} gpu={second.gpu}")

    def protected(self):
        memory, sizes = (c_ulonglong * 3)(), (c_ulonglong * 2)()
        result = self.nvml.nvmlDeviceGetConfComputeProtectedMemoryUsage(self.handle, memory)
        print(f"protected rc={result} total={memory[0]} free={memory[1]} used={memory[2]}")
        result = self.nvml.nvmlDeviceGetConfComputeMemSizeInfo(self.handle, sizes)
        print(f"sizes rc={result} protected={sizes[0]} unprotected={sizes[1]}")

    def mig(self):
        names = {"mig": "nvmlDeviceIsMigDeviceHandle", "index": "nvmlDeviceGetIndex",
                 "gi": "nvmlDeviceGetGpuInstanceId", "ci": "nvmlDeviceGetComputeInstanceId"}
        values = " ".join(f"{key}={self.number(name)}" for key, name in names.items())
        print(f"mig uuid={self.uuid_of(self.handle)} {values}")


def main():
    client = Client()
    rest = sys.argv[1:]
    while rest:
        command = getattr(client, rest.pop(0))
        arguments = []
        while rest and not hasattr(Client, rest[0]):
            arguments.append(rest.pop(0))
        command(*arguments)


if __name__ == "__main__":
    main()

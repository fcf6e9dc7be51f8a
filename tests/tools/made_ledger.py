"""Ledgers made by the published layout alone, for whatever reads them."""
import fcntl
import os
import re
import struct
import time

LAYOUT = os.path.join(os.path.dirname(__file__), "../../include/fracgpu/ledger_layout.h")
with open(LAYOUT, encoding="utf-8") as _file:
    VERSION = int(re.search(r"kVersion = (\d+);", _file.read())[1])
UNIT, DEVICES, SLOTS, REFUSALS, HANDLES = 512, 128, 1024, 64, 2048
SLOT_SIZE, EXPORTS_SIZE = 192, 16384
COUNTS_AT, NUMBER_AT, RECORDS_AT = 384, 4544, 8192
DEVICE_AT = RECORDS_AT + 256 * REFUSALS
SLOT_AT = DEVICE_AT + 128 * DEVICES + 8 * HANDLES + EXPORTS_SIZE
CELL_AT = SLOT_AT + SLOT_SIZE * SLOTS
ALLOCATIONS_IN_CELL = 24
SIZE = CELL_AT + 64 * SLOTS * DEVICES
WRITTEN = CELL_AT + 64 * SLOTS  # up to the first device's cells; what is behind them is a hole
LOCKS_AT = 0x40000000 + 1
F_OFD_SETLK = 37
GIB, MIB = 2**30 // UNIT, 2**20 // UNIT


def ledger(processes, key=b"GPU-test"):
    """One device with a cap of 8 GiB; processes are (slot, held units, command). For `write_ledger`."""
    data = bytearray(WRITTEN)
    struct.pack_into("<8sIIIIQ64s", data, 0, b"FRACGPU1", VERSION, SIZE, DEVICES, SLOTS, int(time.time()), b"t")
    struct.pack_into("<QQ", data, 96, 3 * SLOTS, 3 * SLOTS)
    data[256:384] = b"\xff" * 128
    struct.pack_into("<QQQQ", data, COUNTS_AT, 2, 1, 0, 0)
    for slot, held, command in processes:
        data[128 + slot // 8] |= 1 << slot % 8
        data[256 + slot // 8] &= ~(1 << slot % 8)
        struct.pack_into("<IIQQIIQ16s", data, SLOT_AT + SLOT_SIZE * slot, 4000 + slot, 7, 1, 1, 0, 0, 1700000000, command)
    devices_of(data, processes, [key])
    return data


def devices_of(data, processes, keys):
    """Puts devices with these keys into a ledger, each with the same use."""
    data.extend(bytes(max(CELL_AT + 64 * SLOTS * len(keys) - len(data), 0)))
    for row, key in enumerate(keys):
        struct.pack_into("<64sQQQQ", data, DEVICE_AT + 128 * row, key, 3 * 8 * GIB, 40 << 30, 0, 7 * GIB)
        for slot, held, _ in processes:
            at = CELL_AT + 64 * (SLOTS * row + slot)
            struct.pack_into("<QII", data, at, 3 * (held << 32 | held), held, 400 * MIB)


def write_ledger(path, data):
    """Pages without anything in them stay holes."""
    with open(path, "wb") as file:
        file.truncate(SIZE)
        for at in range(0, len(data), 4096):
            if page := data[at:at + 4096].rstrip(b"\0"):
                file.seek(at)
                file.write(page)


def live_in(file, *slots):
    """Holds the slots of a ledger that is open for writing, as living processes do, until the file is closed."""
    for slot in slots:
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, LOCKS_AT + slot, 1, 0))


def check_of(data):
    """FNV-1a."""
    check = 0xcbf29ce484222325
    for byte in data:
        check = (check ^ byte) * 0x100000001b3 % 2**64
    return check


def record(number, asked=3 * GIB, reason=0, api=b"cuMemAlloc", command=b"train", key=b"GPU-test",
           largest=(3999, b"big"), exactly=0):
    """One refusal by PID 4000, which held 1 GiB itself; a process that held 4 GiB held the most. `exactly`: the
    bytes that it asked for, where that is less."""
    text = struct.pack("<7QIIIIQQII16s16s40s64sQ8x", number, (1700000000123 + number) % 2**64, asked, GIB, 6 * GIB,
                       8 * GIB, 4 * GIB, reason, 0, 4000, 7, 1, 1, largest[0], 0, largest[1], command, api, key,
                       exactly)
    return struct.pack("<Q", check_of(text)) + text


def with_records(data, records):
    # As the layout has it, whoever writes a record has taken its number before.
    struct.pack_into("<Q", data, NUMBER_AT, max(struct.unpack_from("<Q", text, 8)[0] for text in records.values()))
    for place, text in records.items():
        data[RECORDS_AT + 256 * place:RECORDS_AT + 256 * place + 256] = text
    return data

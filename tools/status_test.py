"""status_test.py FRACGPU: `fracgpu status` on ledgers made here by the published layout, whole and scribbled over."""
import fcntl
import json
import os
import random
import re
import struct
import subprocess
import sys

UNIT, DEVICES, SLOTS, SIZE = 512, 16, 1024, 461184
DEVICE_AT, SLOT_AT, CELL_AT = 384, 384 + 128 * DEVICES, 384 + 128 * DEVICES + 64 * SLOTS
LOCKS_AT = 0x40000000 + 1
GIB, MIB = 2**30 // UNIT, 2**20 // UNIT
F_OFD_SETLK = 37
prefix = f"status-test-{os.getpid()}-"


def path(name):
    return f"/dev/shm/fracgpu-{prefix}{name}"


def ledger(processes):
    """One device with a cap of 8 GiB; processes are (slot, held units, command)."""
    data = bytearray(SIZE)
    struct.pack_into("<8sIIIIQ64s", data, 0, b"FRACGPU1", 4, SIZE, DEVICES, SLOTS, 1700000000, b"t")
    data[256:384] = b"\xff" * 128
    struct.pack_into("<64sQQQQQ", data, DEVICE_AT, b"GPU-test", 3 * 8 * GIB, 40 << 30, 0, 7 * GIB, 3)
    for slot, held, command in processes:
        data[128 + slot // 8] |= 1 << slot % 8
        data[256 + slot // 8] &= ~(1 << slot % 8)
        struct.pack_into("<IIQQIIQ16s", data, SLOT_AT + 64 * slot, 4000 + slot, 7, 1, 1, 0, 0, 1700000000, command)
        struct.pack_into("<QII", data, CELL_AT + 16 * slot, 3 * (held << 32 | held), held, 400 * MIB)
    return data


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data)


def status(*arguments):
    done = subprocess.run([sys.argv[1], "status", *arguments], capture_output=True, timeout=60,
                          env={"LC_ALL": "C", "TZ": "UTC"})
    assert done.returncode in (0, 1, 2), f"status {arguments} ended with {done.returncode}: {done.stderr}"
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_good_ledger():
    write("good", ledger([(0, 5 * GIB, b"alive"), (5, 2 * GIB, b"gone"), (1023, GIB, b"x\x1b[31m\xff\x80yyyyyyyyyy")]))
    with open(path("good"), "r+b") as owner:
        for slot in (0, 1023):
            fcntl.fcntl(owner, F_OFD_SETLK, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, LOCKS_AT + slot, 1, 0))
        code, out, err = status(prefix + "good", "--json")
        device = json.loads(out)["tenants"][0]["devices"][0]
        assert (code, err) == (0, "")
        assert (device["key"], device["cap_bytes"], device["refusals"]) == ("GPU-test", 8 << 30, 3)
        assert device["used_bytes"] == 6 << 30, "the dead are left out"
        assert [p["alive"] for p in device["processes"]] == [True, False, True]
        with open(path("good"), "r+b") as file:
            file.seek(SLOT_AT + 64 * 5 + 28)
            file.write(struct.pack("<I", 1))
        device = json.loads(status(prefix + "good", "--json")[1])["tenants"][0]["devices"][0]
        assert device["used_bytes"] == 8 << 30, "what a dead process exported still counts"
        assert "exported" in status(prefix + "good")[1]
        with open(path("good"), "r+b") as file:
            file.seek(SLOT_AT + 64 * 5 + 28)
            file.write(struct.pack("<I", 0))
        code, out, _ = status(prefix + "good")
        assert code == 0 and "75%  6.0 GiB of 8.0 GiB" in out and "#" * 30 + "." * 10 in out, out
        assert re.search(r"4005 \S+ +gone .* dead\n", out) and "x?[31m??yyy" in out, out
        assert all(len(line) <= 80 and line.isprintable() for line in out.splitlines()), out
    assert "0%  0 bytes of 8.0 GiB" in status(prefix + "good")[1], "all are dead now"


def test_a_flipped_bit():
    for place, bit in ((CELL_AT, 7), (CELL_AT, 40), (DEVICE_AT + 64, 25)):
        data = ledger([(0, 5 * GIB, b"alive")])
        assert "DAMAGED" not in (write("flipped", data), status(prefix + "flipped")[1])[1]
        data[place + bit // 8] ^= 1 << bit % 8
        write("flipped", data)
        code, out, _ = status(prefix + "flipped")
        assert code == 0 and "DAMAGED" in out, (place, bit, out)
        assert json.loads(status(prefix + "flipped", "--json")[1])["tenants"][0]["devices"][0]["damaged"]


def test_what_is_no_ledger():
    good = ledger([(0, GIB, b"a")])
    write("short", good[:-1])
    write("empty", b"")
    write("version", good[:8] + b"\x09" + good[9:])
    write("magic", b"x" + good[1:])
    os.symlink("/etc/passwd", path("link"))
    os.mkfifo(path("fifo"))
    os.mkdir(path("folder"))
    for name in ("short", "empty", "version", "magic", "link", "fifo", "folder", "nothing"):
        code, out, err = status(prefix + name)
        assert (code, out, err.count("\n")) == (1, "", 1) and err.startswith("fracgpu: "), (name, code, err)
    assert status("../passwd")[0] == 1
    assert status("--wrong")[0] == 2


def test_scribbled_ledgers():
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(10):
        data = ledger([])
        data[96:] = chance.randbytes(SIZE - 96)
        write("wild", data)
        for form in ([], ["--json"]):
            code, out, _ = status(prefix + "wild", *form)
            assert code == 0 and re.fullmatch(r"[\n -~]*", out), f"seed {seed}"
        json.loads(out)


try:
    test_a_good_ledger()
    test_a_flipped_bit()
    test_what_is_no_ledger()
    test_scribbled_ledgers()
finally:
    for entry in os.scandir("/dev/shm"):
        if entry.name.startswith("fracgpu-" + prefix):
            os.rmdir(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

"""`fracgpu status` on ledgers made here by the published layout, whole and scribbled over."""
import json
import os
import random
import re
import struct
import subprocess

import pytest

from machine import COMMAND
from made_ledger import (ALLOCATIONS_IN_CELL, CELL_AT, COUNTS_AT, DEVICE_AT, GIB, MIB, SIZE, SLOT_AT, SLOT_SIZE, check_of,
                         ledger, live_in, record, with_records, write_ledger)

PREFIX = f"status-test-{os.getpid()}-"


@pytest.fixture(autouse=True, scope="module")
def removes_ledgers():
    yield
    for entry in os.scandir("/dev/shm"):
        if entry.name.startswith("fracgpu-" + PREFIX):
            os.rmdir(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def path(name):
    return f"/dev/shm/fracgpu-{PREFIX}{name}"


def write(name, data):
    write_ledger(path(name), data)


def status(*arguments, command="status"):
    # Also where these tests themselves run in a container.
    done = subprocess.run([COMMAND, command, *arguments], capture_output=True, timeout=60,
                          env={"LC_ALL": "C", "TZ": "UTC", "FRACGPU_BOOK": path("no-book")})
    assert done.returncode in (0, 1, 2), f"{command} {arguments} ended with {done.returncode}: {done.stderr}"
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def explain(*arguments):
    return status(*arguments, command="explain")


def test_a_good_ledger():
    data = ledger([(0, 5 * GIB, b"alive"), (5, 2 * GIB, b"gone"), (1023, GIB, b"x\x1b[31m\xff\x80yyyyyyyyyy")])
    struct.pack_into("<II", data, CELL_AT + ALLOCATIONS_IN_CELL, 77, 1700000001)
    write("good", data)
    with open(path("good"), "r+b") as owner:
        live_in(owner, 0, 1023)
        code, out, err = status(PREFIX + "good", "--json")
        device = json.loads(out)["tenants"][0]["devices"][0]
        assert (code, err) == (0, "")
        assert (device["key"], device["cap_bytes"], device["refusals"]) == ("GPU-test", 8 << 30, 3)
        assert device["refusals_by_reason"] == {"cap": 2, "driver": 1, "runtime": 0, "ledger": 0}
        assert device["used_bytes"] == 6 << 30, "the dead are left out"
        assert [p["alive"] for p in device["processes"]] == [True, False, True]
        assert [p["allocations"] for p in device["processes"]] == [77, None, None]
        assert device["processes"][0]["allocations_unix_s"] == 1700000001, "which is when it said so"
        with open(path("good"), "r+b") as file:
            file.seek(SLOT_AT + SLOT_SIZE * 5 + 28)
            file.write(struct.pack("<I", 1))
        device = json.loads(status(PREFIX + "good", "--json")[1])["tenants"][0]["devices"][0]
        assert device["used_bytes"] == 8 << 30, "what a dead process exported still counts"
        assert "exported" in status(PREFIX + "good")[1]
        with open(path("good"), "r+b") as file:
            file.seek(SLOT_AT + SLOT_SIZE * 5 + 28)
            file.write(struct.pack("<I", 0))
        code, out, _ = status(PREFIX + "good")
        assert code == 0 and "75%  6.0 GiB of 8.0 GiB" in out and "#" * 30 + "." * 10 in out, out
        assert "peak 7.0 GiB, 3 refused" in out, out
        assert "  # 6.0 GiB used  = 0 bytes claimed  - 8.0 GiB capped  . 40.0 GiB\n" in out, out
        assert "######--" + "." * 32 + "   15%" in out, "the GPU's bar: used, then capped"
        assert re.search(r"4005 \S+ +gone .* dead\n", out) and "x?[31m??yyy" in out, out
        assert all(len(line) <= 80 and line.isprintable() for line in out.splitlines()), out
    assert "0%  0 bytes of 8.0 GiB" in status(PREFIX + "good")[1], "all are dead now"


def test_a_flipped_bit():
    for place, bit in ((CELL_AT, 7), (CELL_AT, 40), (DEVICE_AT + 64, 25)):
        data = ledger([(0, 5 * GIB, b"alive")])
        assert "DAMAGED" not in (write("flipped", data), status(PREFIX + "flipped")[1])[1]
        data[place + bit // 8] ^= 1 << bit % 8
        write("flipped", data)
        code, out, _ = status(PREFIX + "flipped")
        assert code == 0 and "DAMAGED" in out, (place, bit, out)
        assert json.loads(status(PREFIX + "flipped", "--json")[1])["tenants"][0]["devices"][0]["damaged"]


def test_records_of_refusals():
    name = PREFIX + "records"
    write("records", with_records(ledger([]), {0: record(64), 1: record(65, api=b"cuMemCreate"), 63: record(63)}))
    refused = json.loads(status(name, "--json")[1])["tenants"][0]["refused"]
    assert [one["number"] for one in refused] == [65, 64, 63], "the newest first, wherever they lie"
    last = dict(refused[0])
    assert last == {
        "number": 65, "unix_ms": 1700000000188, "reason": "cap", "device": "GPU-test", "api": "cuMemCreate",
        "host_pid": 4000, "pid": 7, "uid": 0, "user": "root", "command": "train", "asked_bytes": 3 << 30, "needed_bytes": 3 << 30,
        "cap_bytes": 8 << 30, "used_bytes": 6 << 30, "own_bytes": 1 << 30, "largest_bytes": 4 << 30,
        "largest_pid": 3999, "largest_command": "big"}, last
    assert json.loads(explain(name, "--json")[1])["tenants"][0]["refused"][0].items() >= last.items()
    code, out, err = explain(name)
    assert (code, err) == (0, "") and all(len(line) <= 80 and line.isprintable() for line in out.splitlines()), out
    words = " ".join(out.split())
    for said in ("was refused 3 times.", "On 2023-11-14 at 22:13:20, train (PID 4000, user root) called cuMemCreate on",
                 "It asked for 3.0 GiB. Of the cap of 8.0 GiB, 6.0 GiB were in use and 2.0 GiB free: 1.0 GiB too",
                 "The most, 4.0 GiB, was held by big (PID 3999); the asking process held 1.0 GiB.",
                 "- a larger cap at its next start: FRACGPU_MEMORY_LIMIT=9GiB or fracgpu run --memory 9GiB",
                 "- a request of at most 2.0 GiB", "- waiting for big (PID 3999) to free some of it"):
        assert said in words, (said, out)
    assert [line.split()[1:4] for line in out.splitlines()[-2:]] == [["4000", "train", "cuMemAlloc"]] * 2, out

    write("records", with_records(ledger([]), {0: record(1, asked=4 * MIB, exactly=3 << 20)}))
    last = json.loads(status(name, "--json")[1])["tenants"][0]["refused"][0]
    assert (last["asked_bytes"], last["needed_bytes"]) == (3 << 20, 4 << 20), last
    assert "It asked for 3.0 MiB (which takes 4.0 MiB)." in " ".join(explain(name)[1].split()), explain(name)

    write("records", ledger([]))
    assert "was refused 3 times, of which no record can be read." in explain(name)[1]
    data = ledger([])
    struct.pack_into("<QQQQ", data, COUNTS_AT, 0, 0, 0, 0)
    write("records", data)
    assert explain(name)[:2] == (0, f"{name} was never refused.\n")
    write("records", with_records(data, {0: record(1)}))
    assert "before its present processes came" in explain(name)[1]


def test_stories_by_reason():
    name = PREFIX + "reason"
    for reason, said in ((1, "the driver had no memory: the GPU itself was full."),
                         (2, "The vendor's runtime refused by its own count"),
                         (3, "fracgpu could grant nothing"), (77, "fracgpu could grant nothing")):
        write("reason", with_records(ledger([]), {5: record(1, reason=reason, asked=0 if reason > 1 else GIB)}))
        code, out, _ = explain(name)
        assert code == 0 and said in " ".join(out.split()) and "What would have helped:\n- " in out, (reason, out)
    # A request that the whole GPU could not serve, and amounts that overflow.
    for asked in (39 * GIB, 2**64 - 1, 2**63):
        write("reason", with_records(ledger([]), {5: record(1, asked=asked)}))
        assert "- no cap: together with what was in use" in explain(name)[1], asked


def test_torn_and_hostile_records():
    name = PREFIX + "torn"
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    whole = {place: record(place + 1) for place in range(64)}
    for place in chance.sample(range(64), 20):
        text = bytearray(whole[place])
        text[chance.randrange(256)] ^= 1 << chance.randrange(8)
        write("torn", with_records(ledger([]), {**whole, place: text}))
        numbers = [one["number"] for one in json.loads(status(name, "--json")[1])["tenants"][0]["refused"]]
        assert numbers == [n for n in range(64, 0, -1) if n != place + 1], f"seed {seed}"
    # Whoever may write the file may also compute the check.
    escape = b"\x1b]0;x\x07\xff\n\r%s{}"
    write("torn", with_records(ledger([]), {0: record(2**64 - 1, api=escape * 5, command=escape[:16], key=escape * 7,
                                                      largest=(2**32 - 1, escape[:16]))}))
    for command in ("status", "explain"):
        for form in ([], ["--json"]):
            code, out, _ = status(name, *form, command=command)
            assert code == 0 and re.fullmatch(r"[\n -~]*", out), (command, form, out)
    for _ in range(20):
        text = chance.randbytes(248)
        write("torn", with_records(ledger([]), {0: struct.pack("<Q", check_of(text)) + text}))
        for form in ([], ["--json"]):
            code, out, _ = explain(name, *form)
            assert code == 0 and re.fullmatch(r"[\n -~]*", out), f"seed {seed}"


def test_what_is_no_ledger():
    good = ledger([(0, GIB, b"a")])
    write("short", good)
    os.truncate(path("short"), SIZE - 1)
    write("empty", b"")
    os.truncate(path("empty"), 0)
    write("version", good[:8] + b"\xff" + good[9:])
    write("magic", b"x" + good[1:])
    os.symlink("/etc/passwd", path("link"))
    os.mkfifo(path("fifo"))
    os.mkdir(path("folder"))
    for name in ("short", "empty", "version", "magic", "link", "fifo", "folder", "nothing"):
        code, out, err = status(PREFIX + name)
        assert (code, out, err.count("\n")) == (1, "", 1) and err.startswith("fracgpu: "), (name, code, err)
        assert explain(PREFIX + name) == (1, "", err)
    assert status("../passwd")[0] == 1
    assert status("--wrong")[0] == 2


def test_scribbled_ledgers():
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(10):
        data = ledger([])
        data[96:] = chance.randbytes(len(data) - 96)
        write("wild", data)
        for command in ("status", "explain"):
            for form in ([], ["--json"]):
                code, out, _ = status(PREFIX + "wild", *form, command=command)
                assert code == 0 and re.fullmatch(r"[\n -~]*", out), f"seed {seed}"
            json.loads(out)

"""What a look at a machine with very many tenants reads, counted and not timed."""
import os
import resource
import subprocess
import urllib.request

from machine import COMMAND, Machine
from made_ledger import COUNTS_AT, DEVICE_AT, MIB, ledger, live_in, write_ledger

TENANTS = 1000
# Of a ledger with three processes on one device that was never refused: its head, and a few lines of each table.
BYTES_PER_LEDGER, READS_PER_LEDGER = 16 << 10, 12


class Crowd:
    """Ledgers of this many tenants on GPUs that the machine has, each with three living processes."""

    def __init__(self, machine, count):
        self.machine, self.files = machine, []
        uuids = machine.uuids()
        for number in range(count):
            name = machine.ledger(f"crowd{number:04}")
            data = ledger([(0, 20 * MIB, b"a"), (4, 10 * MIB, b"b"), (8, 5 * MIB, b"c")], uuids[number % len(uuids)].encode())
            if number != 7:  # which was refused something
                data[COUNTS_AT:DEVICE_AT] = bytes(DEVICE_AT - COUNTS_AT)
            write_ledger(name, data)
            file = open(name, "r+b")
            live_in(file, 0, 4, 8)
            self.files.append(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self.files:
            file.close()


def io_of(pid):
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        fields = dict(line.split(": ") for line in file)
    return int(fields["rchar"]), int(fields["syscr"])


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def read_by(machine, *arguments):
    """Bytes and calls of read that a command makes, and what it prints."""
    child = subprocess.Popen([COMMAND, *arguments], stdout=open(f"{machine.folder}/out", "wb"), stderr=subprocess.PIPE, env=machine.environment)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its account is kept as long as it is not reaped
    counted = io_of(child.pid)
    assert child.wait() == 0, child.stderr.read()
    child.stderr.close()
    with open(f"{machine.folder}/out", encoding="utf-8") as file:
        return *counted, file.read()


def test_a_look_reads_what_it_shows():
    with Machine("8xa100-40gb") as m, Crowd(m, TENANTS):
        few_bytes, few_calls, _ = read_by(m, "--version")
        for arguments in (("status",), ("status", "--json"), ("metrics",), ("explain", m.tenant("crowd0007"))):
            size, calls, out = read_by(m, *arguments)
            assert "crowd0007" in out, out[:200]
            print(arguments[0], (size - few_bytes) // TENANTS, "bytes and", (calls - few_calls) / TENANTS, "reads a ledger", flush=True)
            assert size - few_bytes < TENANTS * BYTES_PER_LEDGER, (arguments, size)
            assert calls - few_calls < TENANTS * READS_PER_LEDGER, (arguments, calls)


def test_the_metrics_of_2000_ledgers_take_less_than_64_mib(machine):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    m = machine("8xa100-40gb")
    peaks = []
    for count in (10, 2000):
        with Crowd(m, count):
            server = m.start("metrics", "--listen", "127.0.0.1:0")
            url = server.stderr.readline().split()[-1]
            for _ in range(3):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    assert answer.status == 200 and b"crowd0007" in answer.read()
            peaks.append(peak_kib(server.pid))
            server.kill()
            server.wait()
    print("peaks", peaks, "KiB", flush=True)
    # What is told of a tenant is a few KiB of text; its ledger is 64 KiB or more.
    assert peaks[1] < 64 << 10, peaks

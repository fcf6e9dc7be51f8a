#!/usr/bin/env python3
"""crowded_machine.py BUILD [--smoke]: what a look at a machine costs with very many tenants.

A simulated node of eight MI300X in CPX, 64 devices, with 1,000 tenants of four processes each, one of them on all
devices. Prints processor time of each command, the median of several, beside the same with one tenant. Their ledgers are
written by the published layout and their locks held by this program, so nothing is known here of 4,000 processes' own
part: /proc has one. No time makes it fail.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/tools"))
from machine import COMMAND, Machine  # noqa: E402
from made_ledger import MIB, devices_of, ledger, live_in, write_ledger  # noqa: E402
from starts import own_shm  # noqa: E402

SMOKE = "--smoke" in sys.argv
TENANTS, TURNS = (20, 1) if SMOKE else (1000, 5)
SLOTS = (0, 1, 2, 3)


class Crowd:
    """Tenants on the machine's devices in turn; the first one is on all of them."""

    def __init__(self, machine, keys, count):
        self.files = []
        used = [(slot, (4 - slot) * 5 * MIB, b"worker") for slot in SLOTS]
        for number in range(count):
            name = machine.ledger(f"crowd{number:04}")
            data = ledger(used, keys[number % len(keys)])
            if number == 0:
                devices_of(data, used, keys)
            write_ledger(name, data)
            file = open(name, "r+b")
            live_in(file, *SLOTS)
            self.files.append(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self.files:
            file.close()


def cpu_ms(machine, arguments):
    """Processor time of one command, by the kernel."""
    child = subprocess.Popen([COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=machine.environment)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    assert child.returncode == 0, (arguments, error)
    return (usage.ru_utime + usage.ru_stime) * 1000


def keys_of(machine):
    """The devices, as `fracgpu` names them."""
    import json
    shown = json.loads(machine.fracgpu("status", "--json")[1])
    return [gpu["key"].encode() for gpu in shown["gpus"]]


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, TENANTS + 256), hard), hard))
    own_shm()
    with Machine("8xmi300x-cpx-nps1") as machine:
        keys = keys_of(machine)
        print(f"{len(keys)} devices; processor time in ms, medians of {TURNS}")
        commands = {
            "status": ("status",), "status --json": ("status", "--json"), "metrics": ("metrics",),
            "explain a tenant": ("explain", machine.tenant("crowd0000")),
            "gc": ("gc",), "run --count 1": ("run", "--count", "1", "--", "/bin/true"),
        }
        rows = {name: [] for name in commands}
        for count in (1, TENANTS):
            with Crowd(machine, keys, count):
                for name, arguments in commands.items():
                    rows[name].append(statistics.median(cpu_ms(machine, arguments) for _ in range(TURNS)))
        print(f"| command | 1 tenant | {TENANTS} tenants |\n|---|---|---|")
        for name, (one, many) in rows.items():
            print(f"| {name} | {one:.0f} | {many:.0f} |")


main()

"""Random command lines of every subcommand, some of them hostile, on a simulated machine.

Whatever it is given, the command ends soon and by no signal, with a status that its manual names and, if it was used
wrongly, one line that holds nothing that steers a terminal; and nothing stays behind. FRACGPU_SEED repeats a run,
FRACGPU_CAMPAIGN tries many more. The file system is read-only meanwhile where a mount namespace can be had; elsewhere
what would write to /etc is left out."""
import ctypes
import os
import random
import re
import subprocess
import sys
import tempfile

import pytest

from machine import COMMAND, KFD

INSIDE = "FRACGPU_FUZZ_SANDBOX"
# Of those that may be hidden, the first one that hides nothing which the test is made of.
SCRATCH = next(folder for folder in ("/tmp", "/var/tmp", "/mnt")
               if not any(os.path.realpath(each).startswith(f"{folder}/") for each in (__file__, COMMAND, sys.executable)))
SANDBOX = f"mount --make-rprivate / && mount -o remount,bind,ro / && mount -t tmpfs tmpfs {SCRATCH}"
PR_SET_CHILD_SUBREAPER = 36
DEADLINE_S = 30  # of one command line, on a machine that does much else

HOSTILE = [b"", b" ", b"-", b"--", b"---", b"-x", b"--=", b"--no-such", b"=", b"=1", b",", b"0=,1=", b"\x1b[31mred\x1b[0m", b"\xff\xfe\xfd",
           "\N{SLIGHTLY SMILING FACE}\u202e".encode(), b"\xc2\x9b31m", b"a" * 300, b"a" * 100_000, b"%s%n%d", b"{}", b"'\";$(false)`", b"../x", b"/", b"/dev/null",
           b"/dev/full", b"/proc/self/mem", b"a\nb", b"\r", b"\t", b"0", b"-0", b"-1", b"1e999", b"nan", b"99999999999999999999",
           b"0x10", b"18446744073709551616b", b"8388608TiB", b"0.0000000000000000001", b"GPU-", b"MIG-", b"AMD-0", b"0000:00:00.0", b"@file"]
GOOD = [b"8GiB", b"50%", b"0.5", b"1", b"2", b"0=8GiB,1=25%", b"0=0.5", b"all", b"0-1", b"true", b"q=0.5", b"alive", b"bash", b"zsh",
        b"out.prom", b"folder", b"jobs", b"30s", b"8gb,12gb", b"127.0.0.1:0", b"1000"]
COMMANDS = [[b"true"], [b"sh", b"-c", b"exit 3"], [b"/no/such/command"], [b"/etc"], [b""], [COMMAND.encode(), b"run", b"--memory", b"1GiB", b"true"]]


def options_of(words):
    """Those that --help names, with whether they take a value; and the subcommands."""
    text = subprocess.run([COMMAND, *words, "--help"], capture_output=True, text=True, check=True).stdout.split("Examples:")[0]
    found = []
    for line in text.splitlines():
        if match := re.match(r"  (-\S+)(.*)", line):
            takes = bool(re.match(r" (TEXT|INT|FLOAT)", match[2]))
            found += [(name.split("{")[0].split(":")[0].encode(), takes) for name in match[1].split(",")]
    inside = text.split("Subcommands:")[1] if "Subcommands:" in text else ""
    return found, re.findall(r"^  ([a-z][a-z-]*) ", inside, re.M)


def grammar():
    _, names = options_of([])
    lines = {(): options_of([])[0]}
    for name in names:
        found, inner = options_of([name])
        lines[(name,)] = found
        for each in inner:
            lines[(name, each)] = options_of([name, each])[0]
    assert len(lines) > 12, lines
    return lines


def command_line(chance, lines):
    """The subcommand that is meant, and the words."""
    path = chance.choice(list(lines))
    words = [each.encode() for each in path]

    def value():
        word = chance.choice(GOOD if chance.random() < 0.6 else HOSTILE)
        if chance.random() < 0.1:
            word = bytes(b for b in chance.randbytes(chance.randrange(1, 12)) if b)
        return word
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 4, 8])):
        name, takes = chance.choice(lines[path])
        if name in (b"-h", b"--help") and chance.random() < 0.9:
            continue  # it ends the command
        kind = chance.random()
        if kind < 0.5:
            words += [name, value()] if takes else [name]
        elif kind < 0.7:
            words.append(name + b"=" + value())
        elif kind < 0.8:
            words.append(name[:-1] or b"-")
        else:
            words.append(value())
    if chance.random() < 0.05:
        words.insert(0, value())
        path = ("?",)
    if path in (("run",), ("record",), ("advise",)) and chance.random() < 0.8:
        words += ([b"--"] if chance.random() < 0.7 else []) + chance.choice(COMMANDS)
    if chance.random() < 0.1:
        words.insert(chance.randrange(len(words) + 1), value())
        path = ("?",)
    return path, words


def listing(folder):
    return sorted(entry.name for entry in os.scandir(folder))


def is_safe(words):
    """Where nothing keeps the machine's own files from being written."""
    return INSIDE in os.environ or b"generate" not in words and not any(b"textfile" in word for word in words)


def run_one(machine, words, where):
    """Status (None: it was still serving), standard output and error."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([COMMAND.encode(), *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=machine.folder,
                                 env=machine.environment, start_new_session=True)
        serves = any(word.startswith(b"--listen") for word in words)
        try:
            status = child.wait(1 if serves else DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            assert serves, f"not within {DEADLINE_S} s: {where}"
            status = None
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()


def judge(path, words, status, out, err, where):
    if status is None:
        return
    assert status >= 0, f"signal {-status}: {where}"
    run = words[:1] in ([b"run"], [b"record"])
    allowed = {0, 1, 2, 3, 75, 125, 126, 127} if run or path == ("?",) else {0, 1, 2}
    assert status in allowed, f"status {status}: {where}"
    shown = err.decode("utf-8", "replace")
    if words[:1] == [b"record"] and "fracgpu: recorded " in shown:
        return  # a command was run, and what it printed is among it
    ours = shown
    if words[:1] == [b"advise"]:  # it shows the output of the command that it runs
        ours = "\n".join(line for line in shown.split("\n") if line.startswith("fracgpu: "))
    assert all(c == "\n" or c.isprintable() or c == "\ufffd" for c in ours), f"what steers a terminal: {where}"
    if status == 2 or (run and status == 125):
        assert shown.startswith("fracgpu: ") and shown.count("\n") == 1 and out == b"", f"not one line: {where}"
        assert len(shown) < 600, f"a long line: {where}"
    elif status != 0 and path != ("doctor",) and not run and path != ("?",):
        assert "fracgpu: " in shown, f"failed and did not say why: {where}"


@pytest.fixture(autouse=True)
def sandbox(run_again):
    """Runs the test where it can write to no file of the machine, if a mount namespace can be made."""
    unshare = ["unshare", "--mount", "sh", "-c"]
    if INSIDE not in os.environ and subprocess.run([*unshare, SANDBOX], capture_output=True, check=False).returncode == 0:
        run_again(*unshare, SANDBOX + ' && exec "$@"', "sh", env={**os.environ, INSIDE: "1", "TMPDIR": SCRATCH})


def test_random_command_lines(machine):
    seed = int(os.environ.get("FRACGPU_SEED", random.randrange(2**32)))
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lines = grammar()
    failures = []
    m = machine("2xa100-40gb")
    m.environment["LD_PRELOAD"] = KFD  # no GPU of the machine itself
    alive = m.client("alive", "4GiB", "init retain alloc 1GiB wait")
    GOOD[GOOD.index(b"alive")] = m.tenant("alive").encode()
    with open(f"{m.folder}/jobs", "w", encoding="ascii") as file:
        file.write("true\nq: true\nfalse\n")
    m.fracgpu("run", "--memory", "1GiB", "true")
    before = listing("/dev/shm")
    for number in range(20_000 if os.environ.get("FRACGPU_CAMPAIGN") else 400):
        path, words = command_line(chance, lines)
        if not is_safe(words) or any(b"\0" in word for word in words):
            continue
        status, out, err = run_one(m, words, words)
        where = f"seed {seed}, line {number}: {[w[:60] for w in words]}: {status} {out[-200:]} {err[-300:]}"
        try:
            judge(path, words, status, out, err, where)
            assert listing("/dev/shm") == before, f"left in /dev/shm: {set(listing('/dev/shm')) ^ set(before)}: {where}"
            assert not [name for name in listing(m.folder) if name.endswith(".new")], f"left half written: {where}"
            left = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (os.getpid(), alive.pid) and parent(pid) == os.getpid()]
            assert not left, f"left running {left}: {where}"
        except AssertionError as failure:
            failures.append(str(failure))
            before = listing("/dev/shm")
    alive.communicate("\n", timeout=60)
    assert not failures, "\n".join([f"{len(failures)} of them:", *failures[:12]])


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0

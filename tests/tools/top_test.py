"""`fracgpu top` under a terminal of its own, of which pyte keeps the screen."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from machine import COMMAND, Machine, one_line, wait_until
from made_ledger import ledger, write_ledger

pyte = pytest.importorskip("pyte", reason="the Debian package python3-pyte is not installed")
PATIENCE_S = 60  # for what never comes
LEFT = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
WHOLE = (b"\x1b[J", LEFT)  # how a picture ends, which may come in pieces


class Terminal:
    """Runs a command in a terminal of so many rows and columns."""

    def __init__(self, command, environment, rows=24, columns=80):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        # The terminal's own end is kept open, so that its mode can be seen when the command is gone.
        self.master, self.slave = pty.openpty()
        self.set_size(rows, columns)
        self.mode = termios.tcgetattr(self.slave)

        def begin():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.child = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
                                      env={**environment, "TERM": "linux"}, preexec_fn=begin)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.child.stderr.close()
        for end in (self.master, self.slave):
            if end is not None:
                os.close(end)

    def set_size(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self.set_size(rows, columns)

    def read(self, timeout=0.1):
        if not select.select([self.master], [], [], timeout)[0]:
            return False
        chunk = os.read(self.master, 65536)
        self.written += chunk
        self.stream.feed(chunk)
        return True

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines())

    def wait_for(self, condition, what):
        """Until the screen is so."""
        end = time.monotonic() + PATIENCE_S
        while not (self.written.endswith(WHOLE) and condition(self.lines())):
            assert time.monotonic() < end, f"never on the screen: {what}\n{self.text()}"
            self.read()

    def type(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Reads on until the command has ended."""
        end = time.monotonic() + PATIENCE_S
        while self.child.poll() is None:
            assert time.monotonic() < end, "it does not end"
            self.read()
        while self.read(0):
            pass
        return self.child.returncode

    def expect_restored(self):
        self.wait_for(lambda _: self.written.endswith(LEFT), "the screen as it was")
        assert termios.tcgetattr(self.slave) == self.mode, "the terminal's mode"


def top(m, *arguments, rows=24, columns=80, extra=None, interval="0.2"):
    command = [COMMAND, "top", "--interval", interval, *arguments]
    return Terminal(command, {**m.environment, **(extra or {})}, rows, columns)


def rows_of(lines):
    """PIDs of the list's rows, from the top."""
    return [int(found.group(1)) for found in (re.match(r" *(\d+) root ", line) for line in lines) if found]


def test_what_it_shows(machine):
    m = machine("3xh100-80gb")
    write_ledger(m.ledger("idle"), ledger([], m.uuids()[2].encode()))
    run = m.start("run", "--fraction", "0=0.625", "--tenant", m.tenant("train"), "--", "sh", "-c", "echo r; read x")
    assert run.stdout.readline() == "r\n"
    train = m.client("train", "40GiB", "init retain alloc 30GiB alloc 20GiB wait")
    serve = m.client("serve", "16GiB", "init retain alloc 9GiB wait")
    other = m.client("serve", "16GiB", "init device 1 retain alloc 12GiB wait")
    outsider = m.client("", None, "init device 2 retain alloc 64GiB wait")
    names = [m.tenant("train"), m.tenant("serve"), m.tenant("idle")]
    pids = [train.pid, other.pid, serve.pid]
    with top(m, *names, extra={"LC_ALL": "C.UTF-8"}) as t:
        t.wait_for(lambda lines: set(pids + [outsider.pid]) <= set(rows_of(lines)), "all processes")
        print(t.text())
        lines = t.lines()
        bars = [line for line in lines if "█" in line]
        assert bars[0].startswith("  0 ") and bars[0].split()[2:] == \
            ["40.0", "GiB", "79.6", "GiB", "0.625", "56.0", "GiB"], bars[0]
        bar = bars[0].split()[1]
        assert [bar.count(sign) for sign in "█▓▒░"] == [19, 4, 3, 12], bar
        assert re.fullmatch("█+▓+▒+░+", bar), bar
        assert bars[2].split()[2:] == ["64.5", "GiB", "79.6", "GiB", "-", "0", "bytes"], bars[2]
        row = next(line for line in lines if str(outsider.pid) in line)
        assert "(no cap)" in row and "64.5 GiB" in row and "cuda_client" in row, row
        row = next(line for line in lines if str(train.pid) in line)
        assert names[0][:14] in row and " 0 " in row and "30.5 GiB" in row, row
        title = r"fracgpu \d\d:\d\d:\d\d  3 GPUs, 3 tenants, 3 processes, 4 refused, 1 under no cap"
        assert re.fullmatch(title, lines[0]), lines[0]
        # It is live: what ends is gone at the next look.
        outsider.communicate("", timeout=60)
        t.wait_for(lambda lines: outsider.pid not in rows_of(lines), "the outsider has ended")
        assert train.pid in rows_of(t.lines())
        t.type("q")
        assert t.end() == 0
        t.expect_restored()


def test_keys(machine):
    m = machine("2xa100-40gb")
    for i in range(60):
        write_ledger(m.ledger(f"t{i:02}"), ledger([(i, (60 - i) << 14, b"job"), (i + 100, 0, b"idle")], m.uuids()[i % 2].encode()))
    names = [m.tenant(f"t{i:02}") for i in range(60)]
    with top(m, *names) as t:
        def pids():
            return rows_of(t.lines())

        def expect(first, what):
            t.wait_for(lambda lines: rows_of(lines)[:1] == [first], what)
        expect(4000, "by used, the most first")
        count = len(pids())
        assert count == 24 - 6 and pids() == list(range(4000, 4000 + count)), t.text()
        assert "1-18 of 60" in t.lines()[-1]
        for key, first, what in (("\x1b[B", 4001, "down"), ("\x1bOB", 4002, "down, as some terminals say it"),
                                 ("\x1b[A", 4001, "up"), ("\x1b[6~", 4001 + count, "a page down"),
                                 ("\x1b[5~", 4001, "a page up"), ("\x1b[F", 4060 - count, "the end"),
                                 ("\x1b[B", 4060 - count, "no farther"), ("\x1b[H", 4000, "home"),
                                 ("i", 4059, "the other way round"), ("i", 4000, "and back"),
                                 ("d", 4000, "by GPU"), ("u", 4000, "by used"), ("n", 4000, "by name")):
            t.type(key)
            expect(first, what)
        t.type("d")
        t.wait_for(lambda lines: rows_of(lines)[:2] == [4000, 4002], "by GPU")
        t.type("t")
        t.wait_for(lambda lines: any(line.startswith("TENANT") for line in lines), "tenants")
        assert sum(m.name[:20] in line for line in t.lines()) == count and "REFUSED" in t.text(), t.text()
        t.type("tg")
        t.wait_for(lambda lines: not rows_of(lines), "GPUs alone")
        t.type("g?")
        t.wait_for(lambda lines: any("this help" in line for line in lines), "help")
        t.type("\x1b\x1b[99~\x1b[1;5Zx\x00\xff")
        t.type("h")
        t.wait_for(lambda lines: rows_of(lines)[:1] == [4000], "the list again, whatever was typed")
        t.type("Q")
        assert t.end() == 0
        t.expect_restored()


def test_sizes(machine):
    m = machine("16xh100-80gb")
    keys = m.uuids()
    for i in range(200):
        write_ledger(m.ledger(f"many-{i}"), ledger([(0, (i + 1) << 10, b"job")], keys[i % 16].encode()))
    # It looks once; whatever is drawn afterwards is drawn because of a key or the new size.
    with top(m, interval="3600") as t:
        t.wait_for(lambda lines: len(rows_of(lines)) > 5, "a list")
        assert " more; g shows all" in t.text()
        t.type("g")
        t.wait_for(lambda lines: sum(bool(re.match(" {1,2}[0-9]+ [#.]", line)) for line in lines) == 16, "16 GPUs")
        t.type("g")
        for rows, columns in ((50, 160), (24, 40), (10, 80), (5, 20), (3, 10), (1, 1), (2, 300), (24, 80)):
            t.resize(rows, columns)
            t.wait_for(lambda lines: lines[-1].startswith("q quit"[:columns]) and
                       (rows < 2 or lines[0].startswith("fracgpu"[:columns])), f"{rows} rows of {columns}")
            assert len(t.lines()) == rows
            if rows == 50:
                assert any(len(line) > 100 for line in t.lines()), "it uses the room\n" + t.text()
        t.wait_for(lambda lines: len(rows_of(lines)) > 5, "as at first")
        t.type("q")
        assert t.end() == 0
        t.expect_restored()


def test_signals(machine):
    m = machine("a100-40gb")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        with top(m) as t:
            t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen")
            t.child.send_signal(number)
            assert t.end() == -number, "as every program ends that is asked to"
            t.expect_restored()
    with top(m) as t:
        t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen")
        t.type("\x03")
        assert t.end() == -signal.SIGINT
        t.expect_restored()


def test_stop_and_go_on():
    with Machine("a100-40gb") as m, top(m) as t:
        t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen")
        t.child.send_signal(signal.SIGTSTP)

        def state():
            while t.read(0):
                pass
            with open(f"/proc/{t.child.pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        wait_until(lambda: state() == "T", "it stops")
        t.expect_restored()
        shown = t.written.count(b"\x1b[?1049h")
        t.child.send_signal(signal.SIGCONT)
        t.wait_for(lambda _: t.written.count(b"\x1b[?1049h") == shown + 1, "it goes on")
        t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen again")
        t.type("q")
        assert t.end() == 0
        t.expect_restored()


def test_the_terminal_goes_away():
    with Machine("a100-40gb") as m, top(m) as t:
        t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen")
        os.close(t.slave)
        os.close(t.master)
        t.slave = t.master = None
        assert t.child.wait(PATIENCE_S) == -signal.SIGHUP


def test_a_terminal_that_takes_nothing():
    """Its output is held up, as by Ctrl-S; a signal still ends it."""
    with Machine("a100-40gb") as m, top(m, rows=200, columns=400) as t:
        t.wait_for(lambda lines: lines[-1].startswith("q quit"), "the screen")
        termios.tcflow(t.slave, termios.TCOOFF)

        def held_up():
            # In the one call of it that waits for a terminal without end: poll(_, 2, -1).
            with open(f"/proc/{t.child.pid}/syscall", encoding="ascii") as file:
                call = file.read().split()
            return len(call) > 3 and call[2] == "0x2" and int(call[3], 16) & 0xffffffff == 0xffffffff
        wait_until(held_up, "it waits for the terminal")
        t.child.send_signal(signal.SIGTERM)
        assert t.child.wait(PATIENCE_S) == -signal.SIGTERM
        t.expect_restored()


def test_no_terminal(machine):
    m = machine("a100-40gb")
    status, out, err = m.fracgpu("top", stdin=subprocess.DEVNULL)
    assert (status, out) == (1, "") and one_line(err) and "fracgpu status" in err, err
    for wrong in (["--interval", "0"], ["--interval", "x"], ["--bogus"]):
        status, out, err = m.fracgpu("top", *wrong)
        assert (status, out) == (2, "") and one_line(err), err
    # Only one of the two is a terminal.
    with Terminal(["sh", "-c", f"{COMMAND} top >/dev/null"], m.environment) as t:
        assert t.end() == 1
    with Terminal(["sh", "-c", f"{COMMAND} top </dev/null"], m.environment) as t:
        assert t.end() == 1 and t.written == b""


def test_no_gpu():
    environment = {"PATH": os.environ["PATH"], "FRACGPU_BOOK": "/dev/shm/no-book.test"}
    with Terminal([COMMAND, "top", "--interval", "0.2", "no-such-tenant"], environment) as t:
        t.wait_for(lambda lines: "no GPU here" in "\n".join(lines) and "1 could not be read" in lines[0], "no GPU")
        t.type("q")
        assert t.end() == 0
        t.expect_restored()

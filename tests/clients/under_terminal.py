#!/usr/bin/env python3
"""Runs a full-screen program under a terminal of its own until its screen shows a text, then types q.

usage: under_terminal.py TEXT PROGRAM [ARGUMENT...]   prints all that the program has written, without escapes
"""
import os
import pty
import re
import select
import struct
import sys
import time
import fcntl
import termios

PATIENCE_S = 60  # for a program that never shows it
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78MDEH])|[\x0e\x0f]")


def main():
    wanted, command = sys.argv[1], sys.argv[2:]
    pid, terminal = pty.fork()
    if pid == 0:
        # The size must be there before the program asks for it, so it sets its own.
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        os.environ["TERM"] = "linux"
        os.execvp(command[0], command)
    written, found, end = b"", False, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
        if not chunk:
            break
        written += chunk
        if not found and wanted in ESCAPES.sub("", written.decode(errors="replace")):
            found = True
            os.write(terminal, b"q")
    print(ESCAPES.sub("", written.decode(errors="replace")))
    os.close(terminal)
    sys.exit(0 if found and os.waitpid(pid, 0)[1] == 0 else 1)


main()

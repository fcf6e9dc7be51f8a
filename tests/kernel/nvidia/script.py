"""What the scripted clients share: commands that are words of the command line, and descriptors of other processes."""
import ctypes
import json
import os
import subprocess
import sys

PIDFD_GETFD = 438  # the system call


class Script:
    """Each method is a command, NAME or NAME:ARGUMENT:..., and returns its answer."""

    def __init__(self):
        self.descriptors = []  # of exported memory

    def run(self, words):
        for word in words:
            print(json.dumps({"command": word, **self.answer(*word.split(":"))}), flush=True)

    def answer(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def wait(self):
        print(json.dumps({"command": "ready"}), flush=True)
        sys.stdin.readline()
        return {}

    def hold(self, pid, fd):
        """A descriptor of another process."""
        self.descriptors.append(descriptor_of(int(pid), int(fd)))
        return {"rc": 0}

    def let_go(self):
        """Of all such descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())
        return {"rc": 0}


def accounting(rmsim, state):
    """RM's count of each GPU, by the program `rmsim`. Bytes."""
    shown = subprocess.run([rmsim, "show", state], env={}, check=True, timeout=60, capture_output=True, text=True)
    return json.loads(shown.stdout)


def descriptor_of(pid, fd):
    """A copy of another process's."""
    process = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, fd, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return copy
    finally:
        os.close(process)

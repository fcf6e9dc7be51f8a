"""Programs that use no GPU are the same with the library as without it, with a cap and without one:
what they print, what they complain of, and how they end.

Every program in the PATH that answers --version or --help is asked, and the list in lives.py is gone through. In CI that is
a sample within SECONDS, and its seed is printed; FRACGPU_CAMPAIGN=1 takes everything, FRACGPU_SEED another sample. It
runs in namespaces of its own with a root folder that nothing can write to, and does nothing where these cannot be made.
"""
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from lives import LIVES, MAKE, SOURCES
from machine import LIBRARY

SECONDS = 40
TIMEOUT_S = 20 if "FRACGPU_CAMPAIGN" in os.environ else 5
CONFIGURATIONS = {"without a cap": {"LD_PRELOAD": LIBRARY},
                  "with a cap": {"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "1GiB"}}
# Not asked anything: they might do it.
NEVER = re.compile(r"reboot|halt|poweroff|shutdown|init|telinit|runlevel|.*kill.*|mkfs.*|fsck.*|swapo.*|.*passwd|dd|wipefs|"
                   r"sulogin|agetty|getty|kexec|debugfs|losetup|systemctl|service|invoke-rc.d|deb-systemd.*|update-rc.d")
# What shows the environment says that it is there.
OWN = re.compile(r".*(LD_PRELOAD|FRACGPU_|libfracgpu).*\n?")
FOLDERS = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]


class Outcome:
    def __init__(self, command, changes, made):
        folder = tempfile.mkdtemp()
        environment = {"PATH": ":".join(FOLDERS), "HOME": folder, "TMPDIR": folder, "LC_ALL": "C", "TERM": "dumb",
                       "PAGER": "cat", "MADE": made, **changes}
        self.answered = True
        with open(f"{folder}/.out", "wb+") as out, open(f"{folder}/.err", "wb+") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                                       cwd=folder, start_new_session=True)
            try:
                self.status = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.status = None
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what it left running
            except ProcessLookupError:
                pass
            process.wait()
            texts = []
            for stream in (out, err):
                stream.seek(0)
                text = stream.read(1 << 20).decode("utf-8", "replace").replace(folder, "FOLDER")
                texts.append(OWN.sub("", text))
        self.out, self.err = texts
        shutil.rmtree(folder, ignore_errors=True)

    def key(self):
        return self.status, self.out, self.err


def differs(command, made, changes, bare):
    """What is different, in words, or None. Who answers differently each time is not compared, but for its status."""
    for _ in range(3):
        now = Outcome(command, changes, made)
        if now.key() == bare.key():
            return None
        again = Outcome(command, {}, made)
        if again.key() != bare.key():
            return None if again.status == now.status or again.status != bare.status else "only the exit status"
    for name, one, other in (("exit status", bare.status, now.status), ("stdout", bare.out, now.out),
                             ("stderr", bare.err, now.err)):
        if one != other:
            return f"{name}\n    without: {str(one)[-400:]!r}\n    with:    {str(other)[-400:]!r}"
    return None


def compare(name, command, made, must_answer):
    """How many comparisons were made, and what differed."""
    bare = Outcome(command, {}, made)
    if bare.status is None or (must_answer and (bare.status != 0 or not bare.out + bare.err)):
        return 0, []
    wrong = []
    for configuration, changes in CONFIGURATIONS.items():
        difference = differs(command, made, changes, bare)
        if difference:
            wrong.append(f"{name}, {configuration}: {difference}")
    return len(CONFIGURATIONS), wrong


def programs():
    """Paths of programs for this machine's own architecture, or of scripts; each file once."""
    found = {}
    for folder in FOLDERS:
        for entry in os.scandir(folder) if os.path.isdir(folder) else []:
            path = os.path.realpath(entry.path)
            if NEVER.fullmatch(entry.name) or not os.path.isfile(path) or not os.access(path, os.X_OK):
                continue
            with open(path, "rb") as file:
                start = file.read(5)
            # A 32-bit program's loader complains of what it cannot preload.
            if start[:4] == b"\x7fELF" and start[4] != 2:
                continue
            found.setdefault((path, entry.name) if "busybox" in path else path, entry.path)
    return sorted(found.values())


def make_programs(folder):
    """Compiles what the list names; what cannot be compiled here is left out."""
    for name, compiler, options, source in MAKE:
        if shutil.which(compiler):
            subprocess.run([compiler, "-x", "c", "-", "-O1", "-g", "-pthread", *options.split(), "-o", f"{folder}/{name}", "-ldl"],
                           input=SOURCES[source].encode(), stderr=subprocess.DEVNULL, check=False)


def is_here(need, made):
    if need.startswith("made:"):
        return os.path.exists(f"{made}/{need[5:]}")
    if ".so" in need:
        return need in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return shutil.which(need) is not None


@pytest.fixture
def namespaces(run_again):
    """Runs the test again where it can do no harm."""
    if os.environ.get("FRACGPU_SWEEP_INSIDE"):
        return
    script = ("mount --make-rprivate / && mount -t tmpfs none /dev/shm && mkdir /dev/shm/tmp && "
              "mount -o bind,remount,ro / && exec \"$@\"")
    unshare = ["unshare", "-m", "-p", "-n", "-i", "-f", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]
    if subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("namespaces cannot be made here")
    run_again(*unshare, env={**os.environ, "FRACGPU_SWEEP_INSIDE": "1", "TMPDIR": "/dev/shm/tmp"})


def test_programs_are_the_same(namespaces):
    campaign = "FRACGPU_CAMPAIGN" in os.environ
    seed = os.environ.get("FRACGPU_SEED", "1")
    end = time.monotonic() + SECONDS
    made = tempfile.mkdtemp()
    make_programs(made)
    lives = [(f"{name}: {command}", ["/bin/sh", "-c", command], False) for name, needs, command in LIVES
             if all(is_here(need, made) for need in needs.split())]
    asked = [(f"{path} {option}", [path, option], True) for path in programs() for option in ("--version", "--help")]
    random.Random(seed).shuffle(asked)
    counts = [0, 0]
    wrong = []

    def one(kind, name, command, must_answer):
        if not campaign and time.monotonic() > end:
            return
        compared, differences = compare(name, command, made, must_answer)
        counts[kind] += compared
        wrong.extend(differences)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # The lives first: they are few, and each is there for a reason.
        for kind, some in enumerate((lives, asked)):
            for future in [pool.submit(one, kind, *each) for each in some]:
                future.result()
    print(f"{len(lives)} lives: {counts[0]} comparisons; {len(asked)} questions, seed {seed}: {counts[1]} comparisons")
    assert not wrong, "\n".join(wrong)
    left = [name for name in os.listdir("/dev/shm") if name.startswith("fracgpu")]
    assert not left, f"left in /dev/shm: {left}"
    assert counts[0] > 0, "nothing was compared"

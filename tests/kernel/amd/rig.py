"""Programs on AMD's own runtimes over the simulated kernel driver.

    with Machine(mib=1024) as machine:
        program = machine.start(STACKS["6.4.3"], "hip_program", "init malloc 10MiB wait", cap="512MiB")
        program.until_ready()
        machine.counts()["cards"][0]["peak"]

run.py runs a program by hand. Every wait has an end, and says then what it waited for and what
each process on the machine waits for.
"""
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
from machine import BUILD, LIBRARY, part, wait_until  # pylint: disable=unused-import,wrong-import-position

MIB = 1 << 20
GIB = 1 << 30
SECONDS = 30  # more than any step takes on a loaded machine
COMMAND = f"{BUILD}/tests/kernel/amd/simulated_kfd"
INTERPOSED = f"{BUILD}/tests/kernel/amd/libsimulatedkfd.so"


class Hang(Exception):
    """Something did not end within its time."""


class Stack:
    """One release of AMD's user-space drivers: the system's, or a part that tests/fetch.sh fetches; with a library of another
    part beside them."""

    def __init__(self, release, beside=None):
        self.release = release
        self.beside = beside
        self.at_least_six = int(release.split(".")[0]) >= 6

    def command(self, program):
        """What starts a program on it, and the environment that it needs."""
        if not self.at_least_six:
            if not glob.glob("/usr/lib/*-linux-gnu/libamdhip64.so.5.2.*"):
                raise unittest.SkipTest("libamdhip64-5 of release 5.2 is not installed (containers/packages.sh tests, on Debian 12)")
            return [program], {}
        where = part(f"hip-{self.release}")
        libraries = [found for folder in (where, *([part(self.beside)] if self.beside else []))
                     for pattern in ("/usr/lib/*-linux-gnu", "/lib/*-linux-gnu") for found in glob.glob(folder + pattern)]
        loader = glob.glob(f"{where}/lib64/ld-linux-*.so.*")[0]
        hip = glob.glob(f"{libraries[0]}/libamdhip64.so.?")[0]
        return [loader, "--library-path", ":".join(libraries), program], {"HIP_LIBRARY": hip}


class Mesa:
    """One release of Mesa's drivers for AMD's GPUs, with the loaders of Vulkan, EGL and VA-API; with a release of HIP beside
    them for programs that use both."""

    def __init__(self, release, beside=None):
        self.release = release
        self.beside = beside
        self.folder = tempfile.TemporaryDirectory()

    def command(self, program):
        """What starts a program on it, and the environment that it needs."""
        roots = [part(f"hip-{self.beside}")] if self.beside else []
        roots.append(part(f"mesa-{self.release}"))
        libraries = [found for root in roots for folder in ("/usr/lib", "/lib") for found in glob.glob(f"{root}{folder}/*-linux-gnu")]
        loader = glob.glob(f"{roots[0]}/lib64/ld-linux-*.so.*")[0]
        drivers = glob.glob(f"{roots[-1]}/usr/lib/*-linux-gnu/dri")[0]
        return [loader, "--library-path", ":".join(libraries), program], {
            "HOME": self.folder.name, "MESA_SHADER_CACHE_DISABLE": "true", "LIBGL_DRIVERS_PATH": drivers,
            "LIBVA_DRIVERS_PATH": drivers, "LIBVA_MESSAGING_LEVEL": "1", "VK_DRIVER_FILES": self.driver("libvulkan_radeon.so"),
            "VK_ICD_FILENAMES": self.driver("libvulkan_radeon.so"),
            "__EGL_VENDOR_LIBRARY_FILENAMES": self.driver("libEGL_mesa.so.0")}

    def driver(self, library):
        """The file that makes a loader open this driver and no other."""
        path = f"{self.folder.name}/{library}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"file_format_version": "1.0.0", "ICD": {"library_path": library, "api_version": "1.3.0"}}, file)
        return path

    def info(self):
        return f"{part(f'mesa-{self.release}')}/usr/bin/vulkaninfo"


STACKS = {release: Stack(release) for release in ("5.2.3", "6.4.3")}


class Program:
    """A client that runs. Its lines are kept; `field` finds numbers in them."""

    def __init__(self, machine, process, words):
        self.machine = machine
        self.process = process
        self.words = words
        self.pid = process.pid  # the command becomes the program
        self._unread = b""

    def _wait_for(self, ready, what, seconds=SECONDS):
        end = time.monotonic() + seconds
        while not ready(max(end - time.monotonic(), 0)):
            if time.monotonic() >= end:
                waits = self.machine.waits()
                self.kill()
                raise Hang(f"not within {seconds} s: {what} of {self.words!r}; {waits}")

    def line(self, seconds=SECONDS):
        """The next that it prints; None at the end."""
        pipe = self.process.stdout
        line = []

        def read(seconds):
            at = self._unread.find(b"\n")
            if at < 0 and select.select([pipe], [], [], seconds)[0]:
                some = os.read(pipe.fileno(), 1 << 16)
                self._unread += some or b"\0\n"  # the end
                at = self._unread.find(b"\n")
            if at >= 0:
                line.append(self._unread[:at].decode())
                self._unread = self._unread[at + 1:]
            return bool(line)

        self._wait_for(read, "a line", seconds)
        return None if line[0].endswith("\0") else line[0]

    def until_ready(self):
        """What it prints until it waits."""
        lines = []
        while (line := self.line()) != "ready":
            if line is None:
                raise AssertionError(f"{self.words!r} ended with {self.finish().status}: {lines}")
            lines.append(line)
        return lines

    def go_on(self, words=""):
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()

    def finish(self):
        """Its end, with all that it printed since."""
        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        lines = []
        while (line := self.line()) is not None:
            lines.append(line)
        self._wait_for(lambda seconds: _ended(self.process, seconds), "the end")
        return Outcome(self.process.returncode, lines, self.machine.errors(self))

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(SECONDS)


def _ended(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


class Outcome:
    def __init__(self, status, lines, errors):
        self.status, self.lines, self.errors = status, lines, errors

    def of(self, what):
        """The lines that begin so."""
        return [line for line in self.lines if line.startswith(what + " ")]

    def __repr__(self):
        return f"status {self.status}, {self.lines[-20:]}, {self.errors!r}"


def field(line, name):
    """4 of "malloc rc=0 count=4"."""
    return int(line.split(f"{name}=")[1].split()[0], 0)


class Machine:
    """A simulated machine with AMD's kernel driver, until the block ends. All ioctls must have been known to it."""

    takes_unknown_ioctls = False  # malformed ones, of a test

    def __init__(self, mib, cards=1, card="mi210"):
        profile = card if cards == 1 else f"{cards}x{card}"
        self._errors = {}
        self._programs, self._helpers = [], []
        self._kernel = subprocess.Popen([COMMAND, "start", profile, str(mib)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        told = select.select([self._kernel.stdout], [], [], SECONDS)[0]
        line = self._kernel.stdout.readline() if told else ""
        if not line.startswith("ready "):
            self._kernel.kill()
            raise unittest.SkipTest(f"no simulated machine: {self._kernel.communicate()[1].strip() or 'it does not start'}")
        self.name = line.split()[1]

    def __enter__(self):
        return self

    def __exit__(self, error=None, *_):
        unknown = 0 if error is not None or self.takes_unknown_ioctls else self.counts()["unknown_ioctls"]
        for program in self._programs:
            if program.process.poll() is None:
                program.kill()
            for pipe in (program.process.stdin, program.process.stdout):
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
            self._errors[program].close()
        for helper in self._helpers:
            helper.kill()
            helper.wait(SECONDS)
            helper.stdin.close()
            helper.stdout.close()
        self._kernel.stdin.close()  # its end
        self._kernel.stdout.close()
        self._kernel.stderr.close()
        self._kernel.wait(SECONDS)
        assert unknown == 0, f"{unknown} ioctls are not simulated"

    def _ask(self, what):
        return subprocess.run([COMMAND, what, self.name], capture_output=True, text=True, timeout=SECONDS, check=True).stdout

    def counts(self):
        """KFD's own count: of cards their use and peak, of each process its memory."""
        return json.loads(self._ask("show"))

    def peak(self, card=0):
        return self.counts()["cards"][card]["peak"]

    def used(self, card=0):
        return self.counts()["cards"][card]["used"]

    def wait_for_use(self, bytes_, card=0):
        """Until so much is used: for what a runtime does in a thread of its own."""
        wait_until(lambda: self.used(card) >= bytes_, f"{bytes_} bytes used by card {card}", SECONDS)

    def reset(self):
        self._ask("reset")

    def hold(self):
        """A process that keeps KFD from everybody else until it is killed."""
        holder = subprocess.Popen([COMMAND, "hold", self.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._helpers.append(holder)
        assert select.select([holder.stdout], [], [], SECONDS)[0] and holder.stdout.readline() == b"held\n"
        return holder

    def waits(self):
        try:
            processes = self.counts()["processes"]
        except (subprocess.SubprocessError, ValueError) as reason:
            return f"the machine does not answer: {reason}"
        return "; ".join(f"process {p['pid']} waited last for event {p['waits_for_event']}"
                         + (f", {p['blocked_queue']}" if p["blocked_queue"] else "") for p in processes)

    def errors(self, program):
        file = self._errors[program]
        file.seek(0)
        return file.read()

    def start(self, stack, program, words, cap=None, tenant="judged", extra=None, library=LIBRARY):
        """Starts one of tests/clients, or any program by its path."""
        path = program if "/" in program else f"{BUILD}/tests/clients/{program}"
        command, environment = stack.command(path)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"} | environment | (extra or {})
        preloaded = [INTERPOSED]
        if cap is not None:
            preloaded.insert(0, library)
            environment |= {"FRACGPU_MEMORY_LIMIT": cap, "FRACGPU_TENANT": tenant}
        # Of the program alone, and not of what starts it.
        command = [COMMAND, "run", self.name, shutil.which("env"), f"LD_PRELOAD={':'.join(preloaded)}", *command]
        errors = open(os.memfd_create("errors"), "w+", encoding="utf-8", errors="replace")
        process = subprocess.Popen([*command, *(words.split() if isinstance(words, str) else words)], env=environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        started = Program(self, process, words)
        self._programs.append(started)
        self._errors[started] = errors
        return started

    def run(self, *arguments, **options):
        return self.start(*arguments, **options).finish()

"""A simulated NVIDIA GPU for one test, and programs on the vendor's own libraries that use it."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import script

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = [sys.executable, "-B", os.path.join(HERE, "client.py")]
OPENCL_CLIENT = [sys.executable, "-B", os.path.join(HERE, "opencl_client.py")]
VULKAN_CLIENT = [sys.executable, "-B", os.path.join(HERE, "vulkan_client.py")]
OPENGL_CLIENT = [sys.executable, "-B", os.path.join(HERE, "opengl_client.py")]

CAP_MIB = 2048
CARD_MIB = 8192  # of the tests with a cap: what passes it is seen, and an end is reached where nothing is refused

RELEASES = {"470": "470.256.02", "535": "535.261.03", "550": "550.163.01"}


class Build:
    """The built tree: the library, the simulator that the fixture built, and the driver that it fetched.

    `folder`: by default pytest's --build. `release` of the driver: by default that of the environment variable
    NVIDIA_RELEASE, or 535.
    """

    def __init__(self, folder=None, release=None):
        folder = folder or os.environ["TEST_BUILD"]
        self.release = release or os.environ.get("NVIDIA_RELEASE", "535")
        self.folder = folder
        self.library = f"{folder}/libfracgpu.so"
        self.simulator = f"{folder}/kernel/nvidia/librmsim.so"
        self.rmsim = f"{folder}/kernel/nvidia/rmsim"
        driver = f"{folder}/parts/nvidia-driver-{self.release}/usr/lib"
        place = "nvidia/tesla-470" if self.release == "470" else "nvidia/current"
        self.driver = [f"{driver}/x86_64-linux-gnu/{place}", f"{driver}/x86_64-linux-gnu"]
        self.smi = f"{driver}/{place}/nvidia-smi"
        self.opencl = f"{folder}/parts/opencl/usr"
        self.vulkan = f"{folder}/parts/vulkan-535/usr"  # with the loaders for any release
        self.graphics = None  # beside the driver: 550's libraries for OpenCL, Vulkan and OpenGL
        if self.release == "550":
            self.graphics = f"{folder}/parts/nvidia-graphics-550/usr/lib/x86_64-linux-gnu"
            self.driver = [f"{self.graphics}/nvidia/current", self.graphics, *self.driver]
        self.pocl = f"{folder}/parts/pocl-3.1/usr/lib/x86_64-linux-gnu"
        self.version = RELEASES[self.release]
        self.context_mib = 383 if self.release == "470" else 384  # what libcuda takes of this chip
        self.runtime = f"{folder}/parts/nvidia-driver-535/usr/lib/x86_64-linux-gnu/libcudart.so.11.0"  # for any driver

    def missing(self):
        """What the fixture could not build or fetch, or nothing."""
        return next((path for path in (self.simulator, self.rmsim, self.smi) if not os.path.exists(path)), None)

    def missing_for(self, *parts):
        """What the tests of the APIs beside CUDA need of these parts and cannot have, or nothing."""
        return next((part for part in (*parts, self.graphics) if part and not os.path.exists(part)), None)

    def needs(self):
        """Skips the test if that is missing."""
        if missing := self.missing():
            raise unittest.SkipTest(f"{missing} is not there")


def only_in_campaigns_on(*releases):
    """A decorator for tests that repeat on these releases of the driver what CI runs on another."""
    is_repeated = os.environ.get("NVIDIA_RELEASE", "535") in releases
    return unittest.skipIf(is_repeated and "FRACGPU_CAMPAIGN" not in os.environ, "in a campaign")


def granted(answer):
    """Bytes or objects that a client got, or whether its order was carried out."""
    for key in ("granted", "count"):
        if key in answer:
            return answer[key]
    return int(answer["rc"] == 0)


def errors(answer):
    """The results of the call that ended the order, and of the wait for it."""
    return {key: answer[key] for key in ("rc", "end") if key in answer}


class Comparison(unittest.TestCase):
    """RM's count never passes the cap, and comes to what it comes to on a card that has no more than the cap. At least as much is
    granted as on that card, and what is refused ends with the same error."""

    build = None
    leaves_room = ()  # tests in which the driver alone takes more before it fails, which the cap refuses at once

    def compare(self, scene):
        """`scene` acts on a GPU, under a cap or None, and returns the answers that count."""
        with Gpu(self.build, CAP_MIB) as gpu:
            bare, bare_peak = scene(gpu, None), gpu.accounting()["peak"]
        with Gpu(self.build, CARD_MIB) as gpu:
            capped, peak = scene(gpu, f"{CAP_MIB}MiB"), gpu.accounting()["peak"]
            unknown = gpu.unknown()
        print(f"RM {peak / MIB:.3f} MiB, on a card of {CAP_MIB} MiB {bare_peak / MIB:.3f}", file=sys.stderr)
        self.assertEqual(len(capped), len(bare), (capped, bare))
        for here, there in zip(capped, bare):
            print(f"    {here['command'][:40]}: {granted(here)}, on a card of {CAP_MIB} MiB {granted(there)}", file=sys.stderr)
        self.assertEqual(unknown, "")
        self.assertLessEqual(peak, CAP_MIB * MIB, "RM's count")
        for here, there in zip(capped, bare):
            self.assertGreaterEqual(granted(here), granted(there), f"{here}: less than from a card of that size")
            if granted(here) == granted(there):
                self.assertEqual(errors(here), errors(there), f"{here}: not as on a card of that size")
        if self._testMethodName not in self.leaves_room:
            self.assertGreaterEqual(peak, bare_peak, "the cap wastes memory")

    def compare_race(self, start, first, fill):
        """Two processes fill, after each has done what comes `first`. Both together get what there is. `start`: of Gpu."""
        def scene(gpu, cap):
            racers = [start(gpu, first, "wait", fill, "wait", cap=cap) for _ in range(2)]
            for racer in racers:
                racer.until("ready")
            for racer in racers:
                racer.go_on()
            return [{"command": "both", "granted": sum(racer.until(fill)["granted"] for racer in racers)}]
        self.compare(scene)

    def compare_beside(self, start, commands, run, is_killed=False):
        """`run(gpu, cap)` beside a process that has done the commands and waits, or after that was killed. `start`: of Gpu."""
        def scene(gpu, cap):
            other = start(gpu, *commands, "wait", cap=cap)
            other.until("ready")
            if is_killed:
                other.end()
            return run(gpu, cap)
        self.compare(scene)


def add_fills(case, fills, run, on_each_release):
    """A method of the Comparison for each of `fills`; `run(gpu, commands, cap)` returns the answers that count.

    Releases other than 535 run only those `on_each_release`, and in a campaign all.
    """
    is_whole = case.build.release == "535" or "FRACGPU_CAMPAIGN" in os.environ
    for name, commands in fills.items():
        def judge(self, commands=commands):
            self.compare(lambda gpu, cap: run(gpu, commands, cap))
        judge = judge if is_whole or name in on_each_release else unittest.skip("in a campaign")(judge)
        setattr(case, "test_" + name.replace(" ", "_"), judge)


class Child:
    """A client that runs beside the test. It is killed if it has not ended in time, so that no read waits for ever."""

    SECONDS = 900 if "FRACGPU_CAMPAIGN" in os.environ else 60

    def __init__(self, command, environment):
        self.words, self.last, self.hangs = command[len(CLIENT):], None, False
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.watchdog = threading.Timer(self.SECONDS, self.give_up)
        self.watchdog.start()
        self.pid = self.process.pid

    def give_up(self):
        self.hangs = True
        self.process.kill()

    def answer(self):
        """Of its next command."""
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait(60)
            how = f"the client has not ended after {self.SECONDS} s" if self.hangs else f"the client ended: status {status}"
            raise AssertionError(f"{how}, of {self.words}; its last answer: {self.last}\n{self.process.stderr.read()}")
        self.last = line.strip()
        return json.loads(line)

    def until(self, name):
        while not (answer := self.answer()).get("command", "").startswith(name):
            pass
        return answer

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self):
        """Reads its answers until it waits for a line or has ended."""
        while line := self.process.stdout.readline():
            if json.loads(line).get("command") == "ready":
                break

    def end(self):
        """Kills it, if need be, as nobody can hinder."""
        self.process.kill()
        self.process.communicate(timeout=60)
        self.watchdog.cancel()


class Gpu:
    """GPUs with their accounting in a folder of its own, which goes with them. No two tests share anything. `mib`: of each."""

    def __init__(self, build, mib=24576, gpus=1):
        self.build = build
        # Memory that is really written lies in the page cache of a file; on a disk it would be written out.
        self.folder = tempfile.mkdtemp(prefix="rmsim-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.state = f"{self.folder}/state"
        self.tenant = os.path.basename(self.folder)
        self.children = []
        subprocess.run([build.rmsim, "create", self.state, str(mib), build.version, str(gpus)], check=True, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.end()
        shutil.rmtree(self.folder)
        for entry in os.scandir("/dev/shm"):
            if entry.name.startswith(f"fracgpu-{self.tenant}"):
                os.unlink(entry.path)

    def environment(self, cap=None, **more):
        """Of a program on this GPU; with a cap, as text, the library is in front."""
        preload = [self.build.simulator] if cap is None else [self.build.library, self.build.simulator]
        environment = {  # all clients share compiled code: NVIDIA's OpenCL compiles for a second at each start
            "PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": ":".join(self.build.driver), "LD_PRELOAD": ":".join(preload),
            "RMSIM": self.build.rmsim, "RMSIM_STATE": self.state, "CUDA_CACHE_PATH": f"{self.build.folder}/kernel/nvidia/cache"}
        if cap is not None:
            environment.update(FRACGPU_MEMORY_LIMIT=cap, FRACGPU_TENANT=self.tenant)
        for name in ("RMSIM_TRACE", "RANDOM_KINDS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        return {**environment, **more}

    def start(self, *commands, cap=None, **more):
        """The scripted client, beside the test."""
        return self.begin(CLIENT, commands, cap, more)

    def begin(self, client, commands, cap, more):
        child = Child([*client, *map(str, commands)], self.environment(cap, **more))
        self.children.append(child)
        return child

    def run(self, command, cap=None, seconds=120, **more):
        """Its result; it is killed, and the test fails, if it has not ended by then."""
        try:
            return subprocess.run(command, env=self.environment(cap, **more), text=True, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as late:
            said = "".join(text.decode(errors="replace") for text in (late.stdout, late.stderr) if text)
            raise AssertionError(f"{command} has not ended after {seconds} s. It said:\n{said}") from late

    def client(self, *commands, cap=None, **more):
        """What the scripted client answered, a dictionary a command."""
        return self.answers(CLIENT, commands, cap, more)

    def answers(self, client, commands, cap, more):
        result = self.run([*client, *map(str, commands)], cap, **more)
        if result.returncode != 0:
            raise AssertionError(f"{commands}: status {result.returncode}\n{result.stdout}{result.stderr}")
        return [json.loads(line) for line in result.stdout.splitlines()]

    def opencl(self, way, *commands, cap=None, **more):
        """The same of the scripted OpenCL program."""
        return self.answers([*OPENCL_CLIENT, way], commands, cap, {**self.opencl_environment(), **more})

    def start_opencl(self, *commands, cap=None):
        return self.begin([*OPENCL_CLIENT, "loader"], commands, cap, self.opencl_environment())

    def opencl_environment(self):
        """So that a loader is found, and the loader finds NVIDIA's library and pocl's, if that could be fetched."""
        with open(f"{self.folder}/nvidia.icd", "w", encoding="utf-8") as file:
            file.write("libnvidia-opencl.so.1\n")
        if os.path.exists(self.build.pocl):
            with open(f"{self.folder}/pocl.icd", "w", encoding="utf-8") as file:
                file.write("libpocl.so.2\n")
        opencl = f"{self.build.opencl}/lib/x86_64-linux-gnu"
        return {"OCL_ICD_VENDORS": self.folder,
                "LD_LIBRARY_PATH": ":".join([*self.build.driver, opencl, f"{opencl}/nvidia/current", self.build.pocl])}

    def vulkan(self, *commands, cap=None, **more):
        """The same of the scripted Vulkan program."""
        return self.answers(VULKAN_CLIENT, commands, cap, {**self.vulkan_environment(), **more})

    def start_vulkan(self, *commands, cap=None, **more):
        return self.begin(VULKAN_CLIENT, commands, cap, {**self.vulkan_environment(), **more})

    def opengl(self, *commands, cap=None, **more):
        """The same of the scripted OpenGL program."""
        return self.answers(OPENGL_CLIENT, commands, cap, {**self.vulkan_environment(), **more})

    def start_opengl(self, *commands, cap=None, **more):
        return self.begin(OPENGL_CLIENT, commands, cap, {**self.vulkan_environment(), **more})

    def vulkan_environment(self):
        """So that the loader of Vulkan finds NVIDIA's library alone, and so does that of EGL, which NVIDIA's Vulkan uses."""
        libraries = {"vulkan.json": "libGLX_nvidia.so.0", "egl.json": "libEGL_nvidia.so.0"}
        for name, library in libraries.items():
            with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
                json.dump({"file_format_version": "1.0.0", "ICD": {"library_path": library, "api_version": "1.3.242"}}, file)
        vulkan = f"{self.build.vulkan}/lib/x86_64-linux-gnu"
        return {"VK_DRIVER_FILES": f"{self.folder}/vulkan.json", "VK_ICD_FILENAMES": f"{self.folder}/vulkan.json",
                "__EGL_VENDOR_LIBRARY_FILENAMES": f"{self.folder}/egl.json",
                "LD_LIBRARY_PATH": ":".join([*self.build.driver, f"{vulkan}/nvidia/current", vulkan])}

    def accounting(self, gpu=0):
        return script.accounting(self.build.rmsim, self.state)[gpu]

    def hold(self):
        """A process that keeps the accounting locked until it is killed."""
        holder = subprocess.Popen([self.build.rmsim, "hold", self.state], stdout=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "held\n":
            raise AssertionError(f"rmsim hold: status {holder.wait(60)}")
        return holder

    def reset(self):
        subprocess.run([self.build.rmsim, "reset", self.state], check=True, timeout=60)

    def unknown(self):
        """What the driver asked that the simulator does not know."""
        try:
            with open(f"{self.state}/unknown", encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

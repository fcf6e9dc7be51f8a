"""Follows the commands that pages show: runs them on a simulated machine, or judges their names and options."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from machine import BUILD, CLIENT, COMMAND, GIB, LIBRARY
from page import DOCKERFILE, without_variables, words

SCRIPTS_THAT_SHOW_OPTIONS = ("tests/run.sh", "tests/hardware.sh", "containers/demo.sh")
ENGINES = ("docker", "podman", "kubectl", "srun", "install", "echo")

# Commands whose names and options are judged as far as can be, and that are not run here, with the reason.
NOT_RUN = [
    (r"fracgpu top\b", "needs a terminal; tests/tools/top_test.py"),
    (r"fracgpu metrics --listen\b", "serves until a signal ends it; tests/tools/serving_test.py"),
    (r"cmake\b", "configures, builds or installs, and this is run in what they built"),
    (r"cpack -G (DEB|RPM)$", "tests/containers/package_test.py runs it"),
    (r"ninja\b", "builds"),
    (r"tests/run\.sh\b", "runs this test"),
    (r"tests/other_release\.sh\b", "runs this test in a root that it makes"),
    (r"tests/hardware\.sh\b", "takes the machine's own GPU if it has one; tests/hardware/hardware_test.py"),
    (r"build/release/tests/sim/simnode profile-from\b", "needs a report; tests/hardware/hardware_test.py"),
    (r"fracgpu partition \d", "needs AMD's GPUs, whose numbers are NVIDIA's too; tests/tools/partition_test.py"),
    (r"containers/demo\.sh\b", "builds, and takes the machine's own GPU if it has one"),
    (r"containers/packages\.sh\b", "installs packages"),
    (r"tests/fetch\.sh\b", "fetches packages"),
    (r"(python3 )?tests/kernel/", "needs the vendors' drivers, which are fetched; the tests with the label kernel"),
    (r"python3 tests/abi/\w+\.py --write\b", "writes a page of this tree; a test in tests/abi compares it"),
    (r"(python3 )?tests/containers/start_cost\.py\b", "measures, for minutes"),
    (r"(python3 )?tests/soak/soak\.py\b", "runs for an hour; the test soak runs it for seconds"),
    (r"(python3 )?bench/run\.py\b", "measures; the test bench_runs runs it"),
    (r"docker buildx bake\b", "needs Docker; tests/containers/dockerfile_test.py builds what it names"),
    (r"docker run --gpus all --pid=host --ipc=host IMAGE$", "needs Docker; tests/containers/image_test.py uses podman"),
    (r"fracgpu (record|report|advise)\b", "needs a program; tests/tools/walks_test.py follows their page"),
    (r"(python3 )?bench/recording\.py\b", "measures; the test recording_bench_runs runs it"),
    (r"fracgpu dra\b", "needs a cluster; tests/containers/claims_test.py"),
    (r"(apt-get|cd|clang-format-14|git)\b", "changes the machine, the tree or the shell"),
]


def options_of(help_text):
    """The names of options that a --help of ours lists."""
    columns = re.findall(r"^\s+(-[\w,-]+)", help_text, re.M) + re.findall(r"[\[ ](--[\w-]+)", help_text)
    return {name for column in columns for name in column.split(",")}


class Follower:
    """With a machine of two simulated GPUs and a tenant that holds memory and was refused some."""

    def __init__(self, root, machine):
        self.root, self.machine = root, machine
        self.folder = tempfile.mkdtemp(dir=machine.folder)
        self.helps, self.run_count, self.not_run = {}, 0, []
        with open(f"{self.folder}/jobs.txt", "w", encoding="ascii") as file:
            file.write("half: true\ndual: true\n")
        machine.client("held", "2GiB", "init retain alloc 1GiB alloc 4GiB wait")
        self.tenant = machine.tenant("held")
        with open(f"{BUILD}/build.ninja", encoding="utf-8") as file:
            self.targets = file.read()
        with open(f"{root}/CMakePresets.json", encoding="utf-8") as file:
            self.presets = {each["name"] for each in json.load(file)["configurePresets"]}

    def close(self):
        shutil.rmtree(self.folder)

    def fault(self, command):
        """What is wrong with a command, or None."""
        for text in re.split(r"\s+(?:&&|\|\|?|;)\s+|;\s+", command.text):
            reason = self._fault_of(command, text.strip())
            if reason:
                return f"{command.where()}: {reason}"
        return None

    def _fault_of(self, command, text):
        # In a synopsis, what may be left out is.
        text = re.sub(r"\s*\[[^\]]*\]", "", text).replace("build/release/fracgpu", "fracgpu")
        variables, rest = without_variables(words(text))
        if not rest:
            return None
        program = rest[0]
        reason = self._judged(command, program, rest, variables)
        if reason is not None:
            return reason or None
        return f"nobody follows {program}: teach tests/pages/follow.py"

    def _judged(self, command, program, rest, variables):
        """"" if it is right; None if it is of no known kind."""
        plain = " ".join(rest)
        listed = next((why for pattern, why in NOT_RUN if re.match(pattern, plain)), None)
        if listed:
            self.not_run.append((plain, listed))
        if program in DOCKERFILE:
            return self._dockerfile(rest)
        if program in ENGINES and self._followed_elsewhere(command):
            return ""
        if program == "fracgpu":
            return self._fracgpu(rest[1:], listed)
        if program == "ctest":
            return self._ctest(rest[1:], variables)
        if program == "cmake":
            return self._cmake(rest[1:])
        if any(word.startswith("--gtest_filter=") for word in rest):
            return self._gtest(program, rest[1:], variables)
        if program == "build/release/bench/contention":
            return self._runs([f"{BUILD}/bench/contention", *rest[1:], "--smoke"])
        if program.startswith("build/"):
            built = program.split("/", 2)[-1]
            ours = [self.machine.node if word == "NODE" else word for word in rest[1:]]
            if listed and os.access(f"{BUILD}/{built}", os.X_OK):
                return ""
            return self._runs([f"{BUILD}/{built}", *ours]) if os.access(f"{BUILD}/{built}", os.X_OK) else \
                f"there is no {built} in the build"
        if program in SCRIPTS_THAT_SHOW_OPTIONS:
            return self._script(program, rest[1:])
        if program == "containers/packages.sh":
            usage = subprocess.run([f"{self.root}/{program}", "?"], capture_output=True, text=True, check=False).stderr
            unknown = [word for word in rest[1:] if word not in usage.strip().rpartition(" ")[2].split("|")]
            return f"{unknown} is not understood" if unknown else ""
        if rest[:3] == ["python3", "-m", "pytest"]:
            return self._pytest(rest[3:], variables)
        if program == "python3" or program.endswith(".py"):
            return self._python(rest[program == "python3":], listed)
        return "" if listed else None

    def _runs(self, arguments, **more):
        self.run_count += 1
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder,
                              env=self.machine.environment, **more)
        return "" if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr[-300:]}"

    def _help(self, *subcommands):
        if subcommands not in self.helps:
            done = subprocess.run([COMMAND, *subcommands, "--help"], capture_output=True, text=True, check=False)
            self.helps[subcommands] = done.stdout if done.returncode == 0 else None
        return self.helps[subcommands]

    def _fracgpu(self, arguments, listed):
        names = []
        while arguments and re.fullmatch(r"[a-z][a-z-]*", arguments[0]):
            text = self._help(*names)
            if "Subcommands:" not in text or not re.search(rf"^  {arguments[0]} ", text, re.M):
                break
            names.append(arguments.pop(0))
        known, ours = self._help(*names), arguments
        if not names and (not ours or not ours[0].startswith("-")):
            return f"there is no subcommand {ours[:1]}"
        if "--" in ours:
            ours = ours[:ours.index("--")]
        for word in ours:
            if word.startswith("-") and word.partition("=")[0] not in options_of(known):
                return f"fracgpu {' '.join(names)} has no option {word}"
        if listed or not names:
            return ""
        return self._fracgpu_runs(names, ours, "--" in arguments)

    def _fracgpu_runs(self, names, ours, has_command):
        """Runs it on the simulated machine, for the tenant there and with files of the test's own."""
        name = names[-1]
        if name in ("status", "explain", "gc"):
            ours = [word for word in ours if word.startswith("-")] + [self.tenant]
        elif name == "limit":
            if not ours:
                return ""
            ours[0] = self.tenant
        elif name == "doctor":
            status, _, err = self.machine.fracgpu("doctor", *ours, *(["--", "true"] if has_command else []))
            return "" if status in (0, 1) else f"exit status {status}: {err}"
        elif name == "metrics":
            ours = [f"{self.folder}/{os.path.basename(word)}" if "/" in word else word for word in ours]
        elif name == "generate":
            ours = [*ours, "--output", f"{self.folder}/cdi", "--files", f"{self.folder}/files", "--library", LIBRARY]
        elif name == "run":
            if not has_command:
                return ""  # it only names the option
            ours = [*ours, *([] if "--tenant" in ours else ["--tenant", self.machine.tenant("run")]), "--", "true"]
        elif name == "queue":
            if not ours:
                return ""
        elif not ours:
            return ""  # a group of subcommands
        self.run_count += 1
        status, _, err = self.machine.fracgpu(*names, *ours, cwd=self.folder)
        return "" if status == 0 else f"exit status {status}: {err}"

    def _ctest(self, arguments, variables):
        takes_value = {"--test-dir": 1, "--preset": 1, "-L": 1, "-R": 1, "-E": 1, "-LE": 1, "-j": 1, "--parallel": 1,
                       "--repeat": 1}
        plain = {"--output-on-failure", "-V", "-N", "--rerun-failed"}
        chosen, index = [], 0
        while index < len(arguments):
            word, count = arguments[index], takes_value.get(arguments[index], 0)
            if not count and word not in plain:
                return f"ctest's option {word} is not known here"
            value = arguments[index + 1:index + 1 + count]
            if word == "--preset" and value[0] not in self.presets:
                return f"there is no preset {value[0]}"
            if word in ("-L", "-R", "-E", "-LE"):
                chosen += [word, *value]
            index += 1 + count
        self.run_count += 1
        done = subprocess.run(["ctest", "--test-dir", BUILD, "-N", *chosen], capture_output=True, text=True,
                              check=False, env={**os.environ, **variables})
        total = re.search(r"^Total Tests: (\d+)", done.stdout, re.M)
        return "" if total and int(total.group(1)) > 0 else f"no test matches: {done.stdout[-200:]}{done.stderr}"

    def _cmake(self, arguments):
        index = 0
        while index < len(arguments):
            word = arguments[index]
            value = arguments[index + 1] if index + 1 < len(arguments) else ""
            if word == "--preset":
                if value not in self.presets:
                    return f"there is no preset {value}"
                index += 1
            elif word == "--target":
                for target in arguments[index + 1:]:
                    if not re.search(rf"^build (\S+/)?{re.escape(target)}(\.so)?(?=[ :|])", self.targets, re.M):
                        return f"there is no target {target}"
                break
            elif word in ("--parallel", "--prefix", "-j", "-G", "-S", "-B"):
                index += 1
            elif word not in ("--build", "--install", "-Wno-dev", "--strip") and \
                    not re.match(r"-D|build/(" + "|".join(self.presets) + r")$", word):
                return f"cmake's argument {word} is not known here"
            index += 1
        return ""

    def _gtest(self, program, arguments, variables):
        unknown = [word for word in arguments if not word.startswith("--gtest_")]
        if unknown:
            return f"no option of Google Test: {unknown}"
        if program == "…":  # the programs of the lines above it
            programs = [f"{BUILD}/tests/{each}" for each in ("integration/integration_tests", "fault/ledger_steps",
                                                            "fault/ledger_faults")]
        else:
            programs = [f"{BUILD}/{program.split('/', 2)[-1]}"]
        listed = ""
        for each in programs:
            if not os.access(each, os.X_OK):
                return f"{each} is not built"
            self.run_count += 1
            listed += subprocess.run([each, "--gtest_list_tests", *arguments], capture_output=True, text=True,
                                     check=False, env={**os.environ, **variables}).stdout
        return "" if re.search(r"^  \S", listed, re.M) else "no test matches"

    def _pytest(self, arguments, variables):
        """Only collects the tests."""
        self.run_count += 1
        done = subprocess.run([sys.executable, "-B", "-m", "pytest", "--collect-only", "-q", f"--build={BUILD}", *arguments],
                              capture_output=True, text=True, check=False, cwd=self.root, env={**os.environ, **variables})
        return "" if done.returncode in (0, 77) else f"no test matches: {done.stdout[-300:]}{done.stderr}"

    def _script(self, program, arguments):
        usage = subprocess.run([f"{self.root}/{program}", "--help"], capture_output=True, text=True, check=False).stdout
        known = options_of(usage)
        ours = [word for word in arguments if word in known or word.startswith("--") and program != "tests/run.sh"]
        unknown = [word for word in ours if word not in known]
        if unknown:
            return f"{program} has no option {unknown}"
        others = arguments[len(ours):] if program == "tests/run.sh" else []
        if any(word in known for word in others):
            return "its own options come first"
        return self._ctest(others, {}) if others else ""

    def _python(self, rest, listed):
        script = f"{self.root}/{rest[0]}"
        if not os.path.exists(script):
            return f"there is no {rest[0]}"
        with open(script, encoding="utf-8") as file:
            if "argparse" not in file.read():
                return "" if listed else None
        told = subprocess.run(["python3", script, "--help"], capture_output=True, text=True, check=False).stdout
        known = options_of(told)
        unknown = [word for word in rest[1:] if word.startswith("-") and word.partition("=")[0] not in known]
        return f"{rest[0]} has no option {unknown}" if unknown else "" if listed else None

    def _dockerfile(self, rest):
        """What a line ENV sets is set for a program, which must see a GPU of that size; other lines only name files."""
        if rest[0] != "ENV":
            return ""
        variables, other = without_variables(rest[1:])
        limit = re.fullmatch(r"(\d+)GiB", variables.get("FRACGPU_MEMORY_LIMIT", ""))
        if other or not limit:
            return "nobody knows what it should do"
        where = {"LD_LIBRARY_PATH": f"{BUILD}:{BUILD}/sim", "FRACGPU_TENANT": self.machine.tenant("env")}
        self.run_count += 1
        said = subprocess.run([CLIENT, "init", "retain", "meminfo"], capture_output=True, text=True, check=False,
                              env={**self.machine.environment, **variables, **where})
        total = re.search(r"total=(\d+)", said.stdout)
        return "" if total and int(total.group(1)) == int(limit.group(1)) * GIB else f"{said.stdout}{said.stderr}"

    def _followed_elsewhere(self, command):
        """Whether one of tests/containers runs this section of containers/README.md."""
        if command.page != "containers/README.md":
            return False
        for path in glob.glob(f"{self.root}/tests/containers/*.py"):
            with open(path, encoding="utf-8") as file:
                if f'blocks("{command.section}")' in file.read():
                    return True
        return False

"""peers.py --against 'NAME=LIBRARY [VARIABLE=VALUE ...]': compares the library with others of its kind, fill by fill.

Each fill runs on a card of 2 GiB without a library, and on a larger card under a cap of 2 GiB by each library. Prints a table
in Markdown: what was granted, and RM's peak in MiB. Bold is a peak above the cap, less than the card of 2 GiB grants, and
another error than the card's. TEST_BUILD is the build folder, NVIDIA_RELEASE the driver.

`--against` may be repeated. In the values of its variables, {folder} is a folder of the fill's own. Without variables, a
library gets HAMi-core's.
"""
import argparse
import os
import shlex
import sys

import fill_test
import random_test
import rig

MIB, CAP_MIB = rig.MIB, rig.CAP_MIB
OUT_OF_MEMORY = 2
HAMI_CORE = {"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": "{folder}/cache", "LIBCUDA_LOG_LEVEL": "0"}
WITHOUT_POOLS = "linear linear large large large pitched physical array stream module"

# Tests of Fill, and rows of Measured itself.
ROWS = (
    "pieces of 1 MiB", "pieces of 100 KiB", "pieces of 1025 KiB", "pieces of 3 MiB", "a mix", "fragmented", "pitch", "async",
    "explicit pools", "a pool with a gap", "VMM", "arrays of 4 MiB", "arrays of 256 KiB", "graph nodes", "kernel graphs",
    "modules", "a library whose image does not tell its size", "a library that prints", "local memory",
    "local memory at a full cap", "a stack limit at a full cap", "streams at a full cap", "a context of its own",
    "a second context", "ipc", "ipc whose owner frees", "memory that a descriptor held", "a race", "after a kill",
    "random calls", "random calls without pools", "random calls without pools of three processes", "what smi shows")


class Contender:
    """A library with its variables, the library of the build, or none."""

    def __init__(self, name, library=None, variables=None, card_mib=rig.CARD_MIB, cap=f"{CAP_MIB}MiB"):
        self.name, self.library, self.variables, self.card_mib, self.cap = name, library, variables, card_mib, cap
        self.failures = self.excesses = 0

    @classmethod
    def parse(cls, text):
        first, *rest = shlex.split(text)
        name, _, library = first.partition("=")
        if not os.path.isfile(library):
            raise argparse.ArgumentTypeError(f"{first}: there is no such library; write NAME=LIBRARY")
        return cls(name, os.path.abspath(library), dict(each.split("=", 1) for each in rest) or HAMI_CORE)


class Gpu(rig.Gpu):
    """A contender's. Programs use the primary context, as those of CUDA's runtime do: HAMi-core charges no other one."""

    def __init__(self, build, contender):
        super().__init__(build, contender.card_mib)
        self.contender = contender

    def environment(self, cap=None, **more):
        more = {"PRIMARY_CONTEXT": "1", **more}
        if cap is None or self.contender.library is None:
            return super().environment(cap, **more)
        variables = {name: value.replace("{folder}", self.folder) for name, value in self.contender.variables.items()}
        return super().environment(LD_PRELOAD=f"{self.contender.library}:{self.build.simulator}", **variables, **more)


class Measured(fill_test.Fill):
    """Measures instead of judging."""

    contenders = ()
    cells = ()  # of the table, two of each contender

    def compare(self, scene):
        measured = [self.measure(scene, contender) for contender in self.contenders]
        self.cells = []
        for contender, (answers, text, peak) in zip(self.contenders, measured):
            fails, exceeds = is_worse(answers, measured[0][0]), peak > CAP_MIB * MIB
            contender.failures += fails
            contender.excesses += exceeds
            self.cells += [emphasized(text, fails), emphasized(f"{peak / MIB:,.0f}", exceeds)]

    def measure(self, scene, contender):
        """The answers, or None, what they say in words, and RM's peak."""
        with Gpu(self.build, contender) as gpu:
            try:
                answers = scene(gpu, contender.cap)
                text = in_words(answers)
            except (AssertionError, KeyError, ValueError) as error:
                print(f"{self._testMethodName}, {contender.name}: {error}", file=sys.stderr)
                answers, text = None, how_it_ended(str(error))
            return answers, text, gpu.accounting()["peak"]

    def row_a_context_of_its_own(self):
        """Not the primary one."""
        self.compare(lambda gpu, cap: gpu.client("init", "fill:1024", cap=cap, PRIMARY_CONTEXT=""))

    def row_after_a_kill(self):
        """Fill's own fills with pieces of 3 MiB first, whose peak is in another row."""
        self.compare_beside(rig.Gpu.start, ["init", "fill:1024"], lambda gpu, cap: gpu.client("init", "fill:1024", cap=cap),
                            is_killed=True)

    def random_calls(self, processes=1, **more):
        def scene(gpu, cap):
            commands = [["wait", f"random:{random_test.SEED + i}:{random_test.CALLS}", "wait"] for i in range(processes)]
            children = [gpu.start("init", *each, cap=cap, **more) for each in commands]
            for child in children:
                child.until("ready")
            for child in children:
                child.go_on()
            for child in children:
                child.until("random")
            return []  # once a call is refused, the next ones are others; so their number says nothing
        self.compare(scene)

    def row_random_calls(self):
        self.random_calls()

    def row_random_calls_without_pools(self):
        self.random_calls(RANDOM_KINDS=WITHOUT_POOLS)

    def row_random_calls_without_pools_of_three_processes(self):
        self.random_calls(3, RANDOM_KINDS=WITHOUT_POOLS)

    def row_what_smi_shows(self):
        """Beside a process that has 100 MiB."""
        def scene(gpu, cap):
            gpu.start("init", "alloc:102400", "wait", cap=cap).until("ready")
            query = [self.build.smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
            total, used = gpu.run(query, cap).stdout.split(",")
            return [{"command": "smi", "rc": 0, "text": f"{int(total):,} MiB, {int(used):,} used"}]
        self.compare(scene)


def how_it_ended(error):
    return "hung" if "has not ended" in error else "crashed" if "status -" in error else "failed"


def in_words(answers):
    """What was granted."""
    size, others = 0, []
    for answer in answers:
        name, count, rc = answer["command"].partition(":")[0].replace("_", " "), answer.get("count"), answer.get("rc")
        if "text" in answer:
            others.append(answer["text"])
        elif answer.get("granted", 0) > (count or 0):  # bytes
            size += answer["granted"]
        elif count is not None and (count or "granted" not in answer):
            others.append(f"{count:,} {name}")
        if rc and not (rc == OUT_OF_MEMORY and count is not None):  # as each fill ends
            others.append(f"{name} refused" if rc == OUT_OF_MEMORY else f"{name} ends with error {rc}")
    return ", ".join([f"{size / MIB:,.0f} MiB"] * (size > 0) + others) or "—"


def is_worse(answers, card):
    """Less than on the card, or another error. What one answer has more, another one may lack."""
    if answers is None or card is None:
        return answers is None
    surplus = [rig.granted(here) - rig.granted(there) for here, there in zip(answers, card)]
    if any(surplus):
        return max(surplus) <= 0
    return any(rig.errors(here) != rig.errors(there) for here, there in zip(answers, card))


def emphasized(text, is_fault):
    return f"**{text}**" if is_fault else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", action="append", default=[], type=Contender.parse, metavar="NAME=LIBRARY")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help="these alone (default: all)")
    options = parser.parse_args()
    if missing := Measured.build.missing():
        sys.exit(f"peers.py: {missing} is not there; prepare.sh makes it")
    card = Contender(f"card of {CAP_MIB:,} MiB", card_mib=CAP_MIB, cap=None)
    Measured.contenders = [card, Contender("fracgpu"), *options.against]
    print("| fill |" + "".join(f" {each.name} | peak |" for each in Measured.contenders))
    print("|" + "---|" * (1 + 2 * len(Measured.contenders)))
    for row in options.rows:
        own, inherited = (kind + row.replace(" ", "_") for kind in ("row_", "test_"))
        test = Measured(own if hasattr(Measured, own) else inherited)
        getattr(test, test._testMethodName)()
        print(f"| {row} | " + " | ".join(test.cells) + " |", flush=True)
    print("| in bold |" + "".join(f" {each.failures} | {each.excesses} |" for each in Measured.contenders))


if __name__ == "__main__":
    main()

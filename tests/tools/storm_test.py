"""Many `fracgpu run --wait` at once on eight simulated GPUs, some of them killed at random moments.

The judge are the commands themselves (witness.cc), which report what they were given and count who is there with them:
never more than a whole GPU. In the end no claim is left, and everybody who was not killed has been served.
FRACGPU_CAMPAIGN makes it 1,000 at once.
"""
import fcntl
import os
import random
import signal
import subprocess
import time

from machine import BUILD, COMMAND

CAMPAIGN = "FRACGPU_CAMPAIGN" in os.environ
LAUNCHES, AT_ONCE = (1000, 1000) if CAMPAIGN else (200, 100)
KILLS = 6  # of either kind, at least
PATIENCE_S = 600


def is_there(path):
    """Whether the witness lives: the kernel keeps its lock."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True


class Storm:
    def __init__(self, machine, chance):
        self.machine, self.chance = machine, chance
        self.folder = machine.folder
        self.running, self.killed, self.kills = {}, set(), {"run": 0, "command": 0}

    def launch(self, number):
        size, parts = self.chance.choice([("--fraction=0.125", 1), ("--fraction=0.25", 2), ("--fraction=0.5", 4),
                                          ("--fraction=0.625", 5), ("--fraction=1", 8), ("--count=2", 8), ("--count=4", 8)])
        daemon = ["daemon"] if self.chance.random() < 0.2 else []
        self.running[number] = subprocess.Popen(
            [COMMAND, "run", size, "--wait", f"--priority={self.chance.randint(-1, 1)}",
             "--tenant", self.machine.tenant(f"s{number}"), "--", f"{BUILD}/tests/tools/witness", self.folder, str(number),
             str(parts), str(self.chance.randint(1, 60)), *daemon],
            env=self.machine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL)
        return bool(daemon)

    def reap(self):
        for number, run in list(self.running.items()):
            status = run.poll()
            if status is None:
                continue
            del self.running[number]
            report = f"{self.folder}/at-{number}"
            if number in self.killed:
                continue
            assert status == 0, f"launch {number} ended with {status}"
            assert os.path.exists(report), f"launch {number} was not served"
            assert not is_there(report), f"run {number} has ended before the last of its tree"

    def kill_a_run(self, daemons):
        # What a daemon that closed its descriptors and uses no GPU has is kept by run alone, which is documented.
        number = self.chance.choice(list(self.running))
        if number not in daemons:
            self.running[number].send_signal(signal.SIGKILL)
            self.kills["run"] += 1
            self.killed.add(number)

    def kill_a_command(self):
        reports = [(number, f"{self.folder}/at-{number}") for number in self.running]
        reports = [each for each in reports if os.path.exists(each[1]) and is_there(each[1])]
        if not reports:
            return
        number, report = self.chance.choice(reports)
        with open(report, encoding="ascii") as file:
            words = file.read().split()
        # The PID is that of a witness that lives as long as its lock is held.
        if words and is_there(report):
            try:
                os.kill(int(words[0]), signal.SIGKILL)
            except ProcessLookupError:  # it has ended since
                return
            self.kills["command"] += 1
            self.killed.add(number)


def test_storm(machine):
    seed = int(os.environ.get("FRACGPU_SEED", random.randrange(2**32)))
    print("seed", seed, flush=True)
    m = machine("8xa100-40gb")
    storm = Storm(m, random.Random(seed))
    daemons, launched = set(), 0
    end = time.monotonic() + PATIENCE_S
    try:
        # How many are killed among so many launches is chance, and depends on the machine.
        while launched < LAUNCHES or min(storm.kills.values()) < KILLS or storm.running:
            assert time.monotonic() < end, f"{len(storm.running)} were never served: seed {seed}"
            while len(storm.running) < AT_ONCE and (launched < LAUNCHES or min(storm.kills.values()) < KILLS):
                if storm.launch(launched):
                    daemons.add(launched)
                launched += 1
            storm.reap()
            if storm.running and storm.chance.random() < 0.1:
                storm.kill_a_run(daemons)
            if storm.chance.random() < 0.2:
                storm.kill_a_command()
            time.sleep(0.005)
        violations = f"{m.folder}/violations"
        assert not os.path.exists(violations), open(violations, encoding="ascii").read()
        # Those that outlived their run end by themselves.
        for number in storm.killed:
            report = f"{m.folder}/at-{number}"
            while os.path.exists(report) and is_there(report):
                assert time.monotonic() < end
                time.sleep(0.01)
    finally:
        for run in storm.running.values():
            run.kill()
            run.wait()
    claims = m.claims()
    assert claims == [], f"{claims}: seed {seed}"
    left = [entry.name for entry in os.scandir("/dev/shm") if entry.name.startswith(f"fracgpu-{m.name}")]
    assert not left, left
    everything = ",".join(f"{i}=1" for i in range(8))
    assert m.fracgpu("run", "--fraction", everything, "--", "true")[0] == 0
    served = sum(entry.name.startswith("at-") for entry in os.scandir(m.folder))
    print(f"{launched} launches, {served} served, killed: {storm.kills}")

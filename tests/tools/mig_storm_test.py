"""Random launches on GPUs in MIG mode, some of them killed at any moment, beside an instance of somebody else's.

Each launch has its instance for itself, which a lock named by it shows, and uses it before and after some time: it was
not destroyed under it. In the end the GPUs are as they were found. FRACGPU_CAMPAIGN makes it 2,000 launches on eight GPUs.
"""
import os
import random
import signal
import subprocess

from machine import CLIENT, COMMAND, wait_until
from mig_machine import used_slices

CAMPAIGN = "FRACGPU_CAMPAIGN" in os.environ
GPUS, LAUNCHES, AT_ONCE = (8, 2000, 40) if CAMPAIGN else (2, 80, 16)
SIZES = ["--memory=9GiB", "--memory=15GiB", "--memory=30GiB", "--memory=70GiB", "--fraction=0.125", "--fraction=0.25",
         "--fraction=0.5", "--fraction=1", "--mig=1g.10gb", "--mig=2g.20gb", "--mig=4g.40gb"]
CALLS = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy",
         "nvmlGpuInstanceDestroy")
# Exits with 9 where somebody has the instance already, and with 8 where it cannot be used.
JOB = f"""exec flock -n -E 9 "$0/$CUDA_VISIBLE_DEVICES" sh -c '
  {CLIENT} init retain alloc 64MiB >/dev/null || exit 8; sleep $0; {CLIENT} init retain alloc 64MiB >/dev/null || exit 8' $1"""


def test_storm(mig_machine):
    seed = int(os.environ.get("SEED", random.randrange(2**31)))
    chance = random.Random(seed)
    print("seed", seed, flush=True)
    m = mig_machine(f"{GPUS}xh100-80gb-mig-empty")
    m.make(0, 19)
    found = m.instances()
    running, killed, begun, most = {}, set(), 0, 0
    while begun < LAUNCHES or running:
        if begun < LAUNCHES and len(running) < AT_ONCE:
            slow = ",".join(f"{call}={chance.randrange(30_000)}" for call in CALLS)
            running[begun] = subprocess.Popen(
                [COMMAND, "run", chance.choice(SIZES), "--wait", f"--priority={chance.randint(-1, 1)}", "--tenant",
                 m.tenant(f"s{begun}"), "--", "sh", "-c", JOB, m.folder, f"0.{chance.randint(0, 9)}"],
                env={**m.environment, "FRACGPU_SIM_DELAY_US": slow}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
            begun += 1
        elif running:
            number = chance.choice(list(running))
            if chance.random() < 0.1 and number not in killed:
                killed.add(number)
                # The command that waits for it alone, or all of the launch.
                end = os.kill if chance.random() < 0.5 else os.killpg
                end(running[number].pid, signal.SIGKILL)
            most = max(most, len(used_slices(m.instances())))
        for number, launch in list(running.items()):
            status = launch.poll()
            if status is None:
                continue
            said = launch.stderr.read() if number not in killed else ""
            launch.stderr.close()
            assert status == 0 or number in killed, (seed, number, status, said)
            del running[number]
    # What was left alone by those that were killed ends by itself.
    wait_until(lambda: m.fracgpu("gc")[0] == 0 and m.claims() == [], "all launches have ended")
    assert m.instances() == found, (seed, m.instances())
    print(f"{LAUNCHES} launches, {len(killed)} killed, at most {most} of {8 * GPUS} slices in use at once")
    assert most > 4 * GPUS, "the GPUs were not full"

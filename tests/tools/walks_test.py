"""The walks of tools/RECORDING.md, command by command as they stand there, on a simulated machine."""
import os
import re
import shutil
import subprocess

from machine import BUILD, COMMAND

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/RECORDING.md")


def walks():
    """The commands of each walk, by its heading."""
    with open(PAGE, encoding="utf-8") as file:
        sections = re.split(r"^## ", file.read(), flags=re.M)[1:]
    return {section.splitlines()[0]: re.findall(r"^    (fracgpu .*)$", section, re.M) for section in sections}


class Walk:
    """In a folder with ./job and an empty PATH but for fracgpu."""

    def __init__(self, machine):
        self.machine, self.folder = machine, machine.folder
        shutil.copy(f"{BUILD}/tests/clients/example_job", f"{self.folder}/job")
        os.makedirs(f"{self.folder}/bin", exist_ok=True)
        os.symlink(COMMAND, f"{self.folder}/bin/fracgpu")
        shutil.copy(f"{BUILD}/libfracgpu.so", f"{self.folder}/bin/")

    def go(self, command):
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=120, check=False,
                              env={**self.machine.environment, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr


def test_a_leak_is_found(machine):
    m = machine("a100-40gb")
    walk = Walk(m)
    record, report, collapsed = walks()["Find a leak"]
    assert "recorded" in walk.go(record)
    left = walk.go(report).split("Not released at the end")[1]
    assert re.search(r"160\.0 MiB +20 +20 .*remember_batch", left), left
    assert re.search(r"300\.0 MiB +1 +1 .*load_weights", left), left
    stacks = walk.go(collapsed)
    assert re.search(r"train;train_step;remember_batch;.* 167772160$", stacks, re.M), stacks


def test_what_made_the_peak_is_found(machine):
    m = machine("a100-40gb")
    walk = Walk(m)
    leak, peak = walks()["Find a leak"], walks()["Find what made the peak"]
    walk.go(leak[0])
    record, report, page, span, stacks, comparison = peak
    walk.go(record)
    text = walk.go(report)
    made_of = text.split("CALL SITE")[1].splitlines()[1]
    assert "512.0 MiB" in made_of and "build_index" in made_of, text
    assert "cap 1.5 GiB" in text, text
    walk.go(page)
    with open(f"{walk.folder}/peak.html", encoding="utf-8") as file:
        assert "build_index" in file.read()
    told = walk.go(span)
    assert "Of this is told what happened from 1 ms to " in told and "build_index" in told, told
    assert re.search(r";train;build_index;.* 536870912$", walk.go(stacks), re.M)
    assert "CHANGE" in walk.go(comparison)


def test_a_slice_is_chosen(machine):
    m = machine("a100-40gb")
    walk = Walk(m)
    advise, run, verify = walks()["Choose the slice"]
    advice = walk.go(advise)
    cap = int(re.search(r"cap +(\d+)MiB", advice)[1])
    # The page's number is of a card with larger contexts; what is said here holds here.
    written = int(re.search(r"--memory (\d+)MiB", run)[1])
    assert cap <= written <= cap + 256, (cap, written)
    walk.go(run)
    walk.go(f"fracgpu run --memory {cap}MiB -- ./job")
    found = int(re.search(r"it passes with (\d+)MiB", walk.go(verify))[1])
    assert found <= cap, (found, cap)
    status, _, err = m.fracgpu("run", "--memory", f"{found - 40}MiB", "--", f"{walk.folder}/job")
    assert status == 1 and "out of memory" in err, (found, err)


def test_every_command_of_the_page_is_walked():
    told = sum(len(commands) for commands in walks().values())
    assert told == 12, "a test above must follow it"

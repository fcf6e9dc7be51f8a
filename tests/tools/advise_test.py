"""`fracgpu advise`, end to end on simulated machines. Its numbers are proved by running under them."""
import json
import os
import re
import subprocess

import pytest

from machine import BUILD, CLIENT, HIP_PROGRAM, HSA_PROGRAM, Machine, one_line

MIB = 1 << 20
RANDOM = f"{BUILD}/tests/clients/random_calls"
WRITER = f"{BUILD}/tests/tools/write_recording"


def advise(m, *words, status=0, extra=None):
    done, out, err = m.fracgpu("advise", *words, extra=extra)
    assert done == status, (done, out, err)
    return out, err


def advice(m, *words, extra=None):
    out, err = advise(m, "--json", *words, extra=extra)
    return json.loads(out)["gpus"], err


def strict(*commands):
    """A client that fails where one of its calls does."""
    return ["sh", "-c", f"{CLIENT} {' '.join(commands)} | tee /dev/stderr | grep -q 'rc=[^0]' && exit 9; exit 0"]


def run_printed(m, *command):
    """Runs each command line that advise prints for it, which must pass, and returns the options of those lines."""
    out, _ = advise(m, "--", *command)
    lines = re.findall(r"fracgpu (run .*?) -- ", out)
    for line in lines:
        assert m.fracgpu(*line.split(), "--", *command)[0] == 0, line
    return [line.split()[1] for line in lines], out


# What is done, and of what it needs at least: bytes beside the context.
PROGRAMS = [
    (["alloc 300MiB", "alloc 4KiB"], 302 * MIB),
    (["managed 100MiB", "free 0", "alloc 64MiB"], 100 * MIB),
    # A pool gives back what nothing is left of: all of it, or nothing of a chunk with something in it.
    (["pooled 500MiB", "free 0", "alloc 700MiB"], 700 * MIB),
    (["pooled 500MiB", "free 0", "pooled 20MiB", "alloc 700MiB"], 1200 * MIB),
    (["pooled 96MiB", "pooled 192MiB", "free 0", "pooled 288MiB", "free 2", "alloc 90MiB"], 480 * MIB),
    (["module", "alloc 10MiB"], 10 * MIB),
]


def test_what_is_advised_is_enough_and_not_much_more(machine):
    m = machine("a100-40gb")
    for commands, least in PROGRAMS:
        command = strict("init", "ctxcreate", *commands)
        gpu, = advice(m, "--", *command)[0]
        context = gpu["unnamed_bytes"]
        assert least + context <= gpu["needed_bytes"] <= least + context + 40 * MIB, (commands, gpu)
        assert gpu["needed_bytes"] < gpu["cap_bytes"] <= gpu["needed_bytes"] * 1.05 + 96 * MIB, gpu
        status, _, err = m.fracgpu("run", "--memory", f"{gpu['cap_bytes'] // MIB}MiB", "--", *command)
        assert status == 0, (commands, gpu, err)
        # And with less than is needed it fails, so that this program can tell.
        less = (least + context) // MIB - 16
        assert m.fracgpu("run", "--memory", f"{less}MiB", "--", *command)[0] == 9, (commands, gpu)


def test_random_programs_run_without_a_refusal_under_what_is_advised(machine):
    m = machine("a100-40gb")
    for family in ("linear", "vmm", "managed", "graphs"):
        words = [RANDOM, "11", "1", "2", "100", "150", family]
        command = ["sh", "-c", f"yes go | {' '.join(words)} | tee /dev/stderr | grep -v 'refused=0' | grep -q quiet && exit 9;"
                   " exit 0"]
        gpu, = advice(m, "--", *command, extra={"RANDOM_CALLS_ALONE": "1"})[0]
        status, _, err = m.fracgpu("run", "--memory", f"{gpu['cap_bytes'] // MIB}MiB", "--", *command,
                                   extra={"RANDOM_CALLS_ALONE": "1"})
        assert status == 0, (family, gpu, err)


def test_slices_are_the_next_that_hold_it():
    def slices(profile, size, vendor="nvidia"):
        with Machine(profile) as m:
            command = [CLIENT, "init", "ctxcreate", "alloc", size]
            if vendor == "amd":
                command = [HIP_PROGRAM, *f"init malloc {size}".split()]
            gpus, err = advice(m, "--", *command)
            if not gpus:
                pytest.skip(err)
            gpu, = gpus
            return gpu["fraction"], gpu["mig_profile"], gpu["partition"], gpu["image_gb"]
    assert slices("a100-40gb", "300MiB") == (0.125, "1g.5gb", None, 2)
    assert slices("a100-40gb", "6GiB") == (0.25, "2g.10gb", None, 8)
    assert slices("a100-40gb", "21GiB") == (0.625, "7g.40gb", None, 24)
    assert slices("a100-40gb", "36GiB") == (1.0, "7g.40gb", None, 48)
    assert slices("h100-80gb", "30GiB") == (0.5, "3g.40gb", None, 48)


def test_missing_events_and_processes_are_reported(machine):
    m = machine("a100-40gb")
    for name in ("story", "lowered"):
        subprocess.run([WRITER, f"{m.folder}/{name}", name], check=True)
    _, err = advise(m, "--from", f"{m.folder}/story")
    assert err.endswith("story': 3 events came too fast and were dropped: what it needed may be wrong\n") and one_line(err), err
    out, err = advise(m, "--from", f"{m.folder}/lowered")
    assert "refused 1 time: it may need more" in out, out
    assert err.endswith("the advice leaves out what was not recorded: other (PID 5) was not recorded: why\n") and one_line(err), err


def test_verify_finds_the_smallest_that_passes(machine):
    m = machine("a100-40gb")
    command = strict("init", "ctxcreate", "alloc 300MiB", "pooled 200MiB", "freeall")
    out, err = advise(m, "--verify", "--json", "--", *command)
    gpu, = json.loads(out)["gpus"]
    found = gpu["verified"]
    assert found["passed"] and found["runs"] == err.count(" in ") > 2, (found, err)
    needed = gpu["unnamed_bytes"] + 500 * MIB
    assert needed <= found["bytes"] <= needed + 40 * MIB, (found, needed)
    assert m.fracgpu("run", "--memory", f"{found['bytes'] // MIB}MiB", "--", *command)[0] == 0
    # What --success judges is what was printed.
    careless = [CLIENT, "init", "ctxcreate", "alloc", "300MiB"]
    judged = json.loads(advise(m, "--verify", "--success", "! grep -q 'rc=2' \"$FRACGPU_OUTPUT\"", "--json", "--",
                               *careless)[0])["gpus"][0]["verified"]
    unjudged = json.loads(advise(m, "--verify", "--json", "--", *careless)[0])["gpus"][0]["verified"]
    assert unjudged["bytes"] < 300 * MIB + gpu["unnamed_bytes"] <= judged["bytes"], (unjudged, judged)
    out, _ = advise(m, "--verify", "--", *careless)
    assert "Verified in" in out and "it passes with" in out, out


def test_two_gpus_and_two_processes(machine):
    m = machine("2xa100-40gb")
    one = f"{CLIENT} init device 0 ctxcreate alloc 100MiB"
    other = f"{CLIENT} init device 1 ctxcreate alloc 200MiB"
    gpus, _ = advice(m, "--", "sh", "-c", f"{one}; {other}; {one}")
    assert len(gpus) == 2 and [len(gpu["processes"]) for gpu in gpus] in ([2, 1], [1, 2]), gpus
    sizes = sorted(gpu["needed_bytes"] - gpu["unnamed_bytes"] for gpu in gpus)
    assert sizes == [100 * MIB, 200 * MIB], gpus
    # Each command that is printed holds for the program, and not for one of its GPUs.
    command = strict("init device 0 ctxcreate alloc 100MiB device 1 ctxcreate alloc 3GiB")
    assert run_printed(m, *command)[0] == ["--memory"]


def test_commands_that_are_printed_work(machine):
    m = machine("8xa100-40gb")
    one = "init ctxcreate alloc 100MiB"
    assert run_printed(m, *strict(one))[0] == ["--memory", "--fraction"], "no GPU is in MIG mode"
    # A GPU that is given to a launch is its first.
    assert run_printed(m, *strict("init device 1 ctxcreate alloc 100MiB"))[0] == ["--memory"]
    words, out = run_printed(m, *strict("init device 0 ctxcreate alloc 100MiB device 3 ctxcreate alloc 3GiB"))
    assert words == [] and re.search(r"^caps of all: GPU-\S+=592MiB,GPU-\S+=3664MiB; ", out, re.M), out
    # On a GPU that is the first of those that the environment shows.
    hidden = {"CUDA_VISIBLE_DEVICES": "3,4"}
    assert "--fraction" in advise(m, "--", *strict(one), extra=hidden)[0]
    m = machine("mi300x")
    assert "--partition" not in run_printed(m, HSA_PROGRAM, *"init alloc 300MiB".split())[0], "it is in another mode"


def test_no_more_is_advised_than_the_gpu_has(machine):
    m = machine("a100-40gb")
    command = strict("init", "ctxcreate", "alloc 39GiB")
    gpu, = advice(m, "--", *command)[0]
    assert gpu["needed_bytes"] < gpu["cap_bytes"] == gpu["physical_bytes"], gpu
    words, out = run_printed(m, *command)
    assert words == ["--memory", "--fraction"] and "40GiB, all that the GPU has: " in out, out


def test_recordings_of_many_runs(machine):
    m = machine("a100-40gb")
    files = []
    for i in range(5):
        files.append(f"{m.folder}/{i}.fgr")
        status, _, err = m.fracgpu("record", "--frames", "0", "--output", files[-1], "--", CLIENT, "init", "ctxcreate",
                                   "alloc", f"{(i + 1) * 100}MiB")
        assert status == 0, err
    gpu, = advice(m, "--from", *files)[0]
    runs, context = gpu["runs"], gpu["unnamed_bytes"]
    assert (runs["count"], runs["least_bytes"], runs["median_bytes"], runs["p99_bytes"], runs["most_bytes"]) == (
        5, 100 * MIB + context, 300 * MIB + context, 500 * MIB + context, 500 * MIB + context), gpu
    assert "runs" in advise(m, "--from", *files)[0]
    assert one_line(advise(m, "--from", files[0], "/etc/passwd", status=1)[1])
    # A run may get another GPU than the run before.
    m = machine("2xa100-40gb")
    for device in (0, 1):
        m.fracgpu("record", "--output", f"{m.folder}/{device}.fgr", "--", CLIENT, "init", "device", str(device), "ctxcreate",
                  "alloc", f"{device + 1}00MiB")
    gpu, = advice(m, "--from", f"{m.folder}/0.fgr", f"{m.folder}/1.fgr")[0]
    assert gpu["runs"]["count"] == 2 and gpu["runs"]["most_bytes"] - gpu["runs"]["least_bytes"] == 100 * MIB, gpu


def test_real_hip(machine):
    m = machine("mi210")
    words = [HIP_PROGRAM, *"init malloc 200MiB".split()]
    out, err = advise(m, "--json", "--", *words)
    gpu, = json.loads(out)["gpus"]
    if "malloc" not in err:
        pytest.skip("no HIP runtime here")
    status, out, err = m.fracgpu("run", "--memory", f"{gpu['cap_bytes'] // MIB}MiB", "--", *words)
    assert status == 0 and "malloc" in out and gpu["needed_bytes"] >= 200 * MIB, (gpu, out, err)


def test_bad_usage_is_one_line(machine):
    m = machine("a100-40gb")
    for words, status in (([], 2), (["--from", "/no/such/file"], 1), (["--", "false"], 1), (["--", "true"], 1),
                          (["--from"], 2), (["--margin", "-1", "--", "true"], 2), (["--success", "x", "--", "true"], 2),
                          (["--keep", "x", "--from", "/etc/passwd"], 2), (["--", "no-such-command"], 1),
                          (["--verify", "--from", "/etc/passwd"], 2), (["--margin", "nan", "--", "true"], 2),
                          (["--success", "x", "--from", "/etc/passwd"], 2)):
        out, err = advise(m, *words, status=status)
        assert out == "" and one_line(err), (words, err)
    kept = f"{m.folder}/kept.fgr"
    advise(m, "--keep", kept, "--", CLIENT, "init", "ctxcreate")
    assert os.path.getsize(kept) > 0
    assert "; name another file, or remove it" in advise(m, "--keep", kept, "--", CLIENT, "init", "ctxcreate", status=1)[1]
    assert not [name for name in os.listdir("/tmp") if name.startswith("fracgpu-advise-")]

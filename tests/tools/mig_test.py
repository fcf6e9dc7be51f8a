"""MIG instances that are made for launches and go with them, on simulated GPUs.

The judge is NVML asked by this test itself, and NVIDIA's own nvidia-smi where it can be had.
"""
import contextlib
import json
import os
import re
import signal
import struct
import subprocess

from machine import BUILD, CLAIMS_AT, CLAIM_BYTES, CLIENT, GIB, IN_USE_AT, one_line, wait_until
from mig_machine import SHOW, MigMachine, used_slices

MEMORY = re.compile(r"=(\d+)b$")


def test_three_launches_have_three_instances(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    assert m.instances() == []
    launches = [m.launch("--memory", amount) for amount in ("9GiB", "16GiB", "30GiB")]
    assert sorted(profile for _, profile, _, _ in m.instances()) == [9, 15, 19], m.instances()
    used_slices(m.instances())
    assert len({each.seen[0] for each in launches}) == 3 and all(each.seen[0].startswith("MIG-") for each in launches)
    assert [int(MEMORY.search(each.seen[1])[1]) for each in launches] == [9 * GIB, 16 * GIB, 30 * GIB]
    listed = m.smi("-L")
    for each in launches:
        assert each.seen[0] in listed, listed
    for profile in ("1g.10gb", "1g.20gb", "3g.40gb"):
        assert listed.count(f"MIG {profile} ") == 1, listed
    gpus = {gpu["key"]: gpu for gpu in json.loads(m.fracgpu("status", "--json")[1])["gpus"]}
    assert sum(gpu["mig_mode"] for gpu in gpus.values()) == 1 and len(gpus) == 4, gpus
    assert gpus[launches[1].seen[0]]["mig_profile"] == "1g.20gb", gpus
    assert gpus[launches[1].seen[0]]["tenants"], "the launch is named at its instance"
    # They go one by one, and the place of one is another's.
    m.end(launches.pop(1))
    assert sorted(profile for _, profile, _, _ in m.instances()) == [9, 19], m.instances()
    again = m.launch("--mig", "2g.20gb")
    assert again.seen[0] not in {each.seen[0] for each in launches}
    m.end(again, *launches)
    assert m.instances() == [] and m.claims() == []
    assert "MIG" not in m.smi("-L")


def test_the_cap_is_the_request_or_the_instance(mig_machine):
    m = mig_machine("a100-40gb-mig-empty")
    for arguments, least, most in ((["--memory", "3GiB"], 2.5, 3), (["--fraction", "0.25"], 9.1, 9.75)):
        status, out, err = m.fracgpu("run", *arguments, "--", CLIENT, "init", "retain", "fill", "64MiB")
        assert status == 0, err
        held = int(re.search(r"count=(\d+)", out)[1]) / 16  # beside a context
        assert least <= held <= most, (held, out)
        assert m.instances() == []


def test_nobody_else_s_instances_are_touched(mig_machine):
    m = mig_machine("2xh100-80gb-mig-empty")
    m.make(0, 9)
    before = m.instances()
    status, out, _ = m.fracgpu("run", "--mig", "7g.80gb", "--dry-run")
    assert status == 0 and out.startswith("GPU 1 "), out
    launch = m.launch("--memory", "30GiB")
    m.end(launch)
    assert m.fracgpu("gc")[0] == 0 and m.instances() == before
    # They are used where they are named.
    uuid = re.search(r"UUID: (MIG-[0-9a-f-]+)", m.smi("-L"))[1]
    for arguments in (["--gpus", uuid, "--fraction", "0.5"], ["--gpus", "0:0", "--fraction", "0.5"],
                      ["--mig", "existing", "--fraction", "0.5"]):
        launch = m.launch(*arguments)
        assert launch.seen[0] == uuid and f"{uuid}=0.5" in launch.seen[1], launch.seen
        m.end(launch)
    launch = m.launch("--mig", "existing", "--memory", "10GiB")
    assert launch.seen[0] == uuid and "10GiB" in launch.seen[1], launch.seen
    status, _, err = m.fracgpu("run", "--mig", "existing", "--memory", "10GiB", "--", "true")
    assert status == 75 and "no room now" in err, err
    m.end(launch)
    launch = m.launch("--memory", "1GiB", extra={"CUDA_VISIBLE_DEVICES": uuid})
    assert launch.seen == [uuid, "1GiB"], "the environment has chosen"
    m.end(launch)
    assert m.instances() == before


def test_who_is_in_the_way_is_named(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    m.make(0, 9)
    launch = m.launch("--mig", "1g.10gb", "--tenant", m.tenant("small"))
    status, _, err = m.fracgpu("run", "--mig", "7g.80gb", "--", "true")
    assert status == 75 and f" by {m.tenant('small')} (PID" in err and "4 memory slices by instances of others" in err, err
    m.end(launch)


def test_a_tenant_has_one_instance(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    first, second = (m.launch("--memory", "5GiB", "--tenant", m.tenant("both")) for _ in range(2))
    assert first.seen == second.seen and len(m.instances()) == 1
    m.end(first)
    assert len(m.instances()) == 1, "the other one has it still"
    m.end(second)
    assert m.instances() == []


def test_media_engines_are_few(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    launch = m.launch("--mig", "1g.10gb+me")
    status, _, err = m.fracgpu("run", "--mig", "1g.10gb+me", "--", "true")
    assert status == 75 and "no room now" in err, err
    waiting = m.start("run", "--mig", "1g.10gb+me", "--wait", "--", "sh", "-c", SHOW)
    wait_until(lambda: m.claims().count(1) == 1, "it waits")
    plain = m.launch("--mig", "1g.10gb")
    m.end(launch)
    assert waiting.stdout.readline().startswith("MIG-")
    m.end(waiting, plain)
    assert m.instances() == []


def test_only_these_gpus(mig_machine):
    m = mig_machine("3xh100-80gb-mig-empty")
    name = m.tenant("second")
    launch = m.launch("--memory", "5GiB", "--gpus", "1", "--tenant", name)
    assert [gpu for gpu, *_ in m.instances()] == [1], m.instances()
    status, _, err = m.fracgpu("run", "--memory", "5GiB", "--gpus", "2", "--tenant", name, "--", "true")
    assert status == 125 and "runs already with other caps" in err, err
    m.end(launch)
    hidden = {"CUDA_VISIBLE_DEVICES": "2"}
    launch = m.launch("--memory", "5GiB", extra=hidden)
    assert [gpu for gpu, *_ in m.instances()] == [2], m.instances()
    m.end(launch)
    status, _, err = m.fracgpu("run", "--memory", "5GiB", "--gpus", "0", "--", "true", extra=hidden)
    assert status == 125 and "CUDA_VISIBLE_DEVICES '2' hides it" in err, err


def test_one_queue_for_gpus_with_and_without_it(mig_machine):
    m = mig_machine("h100-80gb-mig-empty+a100-40gb")
    halves = [m.launch("--fraction", "0.5") for _ in range(4)]
    assert sum(each.seen[0].startswith("MIG-") for each in halves) == 2, [each.seen for each in halves]
    status, _, err = m.fracgpu("run", "--fraction", "0.5", "--", "true")
    assert status == 75 and "3g.40gb at slice 4 by" in err, err
    waiting = m.start("run", "--fraction", "0.5", "--wait", "--", "sh", "-c", SHOW)
    wait_until(lambda: m.claims().count(1) == 1, "it waits")
    of_mig = next(each for each in halves if each.seen[0].startswith("MIG-"))
    halves.remove(of_mig)
    m.end(of_mig)
    waiting.seen = waiting.stdout.readline().split()
    assert waiting.seen[0].startswith("MIG-"), waiting.seen
    m.end(waiting)
    for mode, start in (("only", "MIG-"), ("never", "GPU-")):
        m.end(*halves)
        halves = [m.launch("--fraction", "0.5", "--mig", mode)]
        assert halves[0].seen[0].startswith(start), halves[0].seen
    m.end(*halves)
    assert m.instances() == []


def test_queues_of_all_kinds(mig_machine):
    m = mig_machine("h100-80gb-mig-empty+a100-40gb")
    jobs = "\n".join(f"{queue}: echo $CUDA_VISIBLE_DEVICES" for queue in ("small", "half", "whole") * 4)
    status, out, err = m.fracgpu("queue", "--queue", "small=1g.10gb", "--queue", "half=0.5", "--queue", "whole=1",
                                 "--json", input=jobs)
    assert status == 0 and json.loads(out[out.index("{"):])["done"] == 12, err
    assert "1g.10gb at slice" in err, err
    assert m.instances() == []


def waits_in(launch):
    """Whether it sleeps for long, as a call of the simulated driver does that is delayed."""
    with contextlib.suppress(FileNotFoundError):
        with open(f"/proc/{launch.pid}/syscall", encoding="ascii") as file:
            return file.read().split()[0] in ("35", "230")  # nanosleep, clock_nanosleep
    return False


def test_who_is_killed_leaves_nothing_for_ever(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    # While it runs.
    launch = m.launch("--memory", "5GiB")
    tree = int(subprocess.run(["pgrep", "-P", str(launch.pid)], capture_output=True, check=True).stdout.split()[0])
    launch.kill()
    launch.wait()
    assert len(m.instances()) == 1, "the rest of the launch lives"
    assert m.fracgpu("gc")[0] == 0 and len(m.instances()) == 1
    os.kill(tree, signal.SIGKILL)
    wait_until(lambda: m.fracgpu("gc")[0] == 0 and m.instances() == [], "gc destroys it")
    # In the middle of each call that makes or destroys something: before it and behind it.
    steps = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance",
             "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy")
    for step in steps:
        slow = {"FRACGPU_SIM_DELAY_US": f"{step}=600000000"}
        launch = m.start("run", "--memory", "5GiB", "--", "true", extra=slow)
        wait_until(lambda: waits_in(launch), step)  # the simulated driver, in the call
        launch.kill()
        launch.wait()
        m.make_room = m.launch("--memory", "5GiB")  # the next launch of root's destroys it
        assert len(m.instances()) == 1, (step, m.instances())
        m.end(m.make_room)
        assert m.instances() == [] and m.claims() == [], step


def test_the_claim_table_cannot_name_somebody_else_s(mig_machine):
    """Everybody may write into it, and root destroys only what root has noted."""
    m = mig_machine("h100-80gb-mig-empty")
    launch = m.launch("--mig", "3g.40gb")
    notes = f"{m.claim_table}.instances"
    assert len(os.listdir(notes)) == 1 and os.stat(notes).st_mode & 0o777 == 0o700
    with open(m.claim_table, "rb") as file:
        forged = bytearray(file.read())
    m.end(launch)
    assert m.instances() == [] and not os.path.exists(notes)
    m.make(0, 9)
    found = m.instances()
    start = CLAIMS_AT + CLAIM_BYTES * (struct.unpack_from("<I", forged, IN_USE_AT)[0] - 1)
    for place in (0, 4):
        struct.pack_into("<I", forged, start, 3)  # abandoned
        forged[start + 488 + 1] = place
        with open(m.claim_table, "r+b") as file:
            file.write(forged)
        status, out, err = m.fracgpu("gc")
        assert status == 0 and "destroyed" not in out, (out, err)
        assert m.instances() == found and m.claims() == [], place
    # A folder that is somebody else's is not trusted, and nothing is made that could not be noted.
    os.mkdir(notes, 0o755)
    os.chmod(notes, 0o755)
    status, _, err = m.fracgpu("run", "--mig", "1g.10gb", "--", "true")
    assert status == 125 and "is not a folder of this user's alone" in err and one_line(err), err
    assert m.instances() == found


def test_errors_of_the_driver(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    make, compute = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"
    for step, code, words in ((make, 4, "takes root"), (make, 16, "must be reset first"), (make, 3, "not supported"),
                              (make, 999, "cannot make a MIG instance"), (compute, 16, "must be reset first"),
                              (compute, 999, "cannot make")):
        status, out, err = m.fracgpu("run", "--memory", "5GiB", "--", "echo", "ran",
                                     extra={"FRACGPU_SIM_FAIL": f"{step}:1={code}"})
        assert status == 125 and words in err and one_line(err) and out == "", (step, code, err)
        assert m.instances() == [] and m.claims() == [], (step, code)
    # Somebody was faster: it takes another place.
    launch = m.launch("--memory", "5GiB", extra={"FRACGPU_SIM_FAIL": f"{make}:1=23"})
    m.end(launch)
    # What cannot be destroyed now is, later.
    status, _, err = m.fracgpu("run", "--memory", "5GiB", "--", "true",
                               extra={"FRACGPU_SIM_FAIL": "nvmlGpuInstanceDestroy:1=16"})
    assert status == 0 and "fracgpu gc tries again" in err, err
    assert len(m.instances()) == 1 and m.claims() == [3]
    status, out, _ = m.fracgpu("gc")
    assert status == 0 and "destroyed 1 MIG instances" in out, out
    assert m.instances() == [] and m.claims() == []
    # Without the right to.
    status, out, err = m.fracgpu("run", "--mig", "only", "--memory", "5GiB", "--", "true",
                                 extra={"FRACGPU_SIM_NVML_ROOT": "0"})
    assert status == 125 and "takes root" in err and one_line(err), err


def test_bad_input(mig_machine):
    with MigMachine("a30-mig-empty+a100-40gb") as m:
        for arguments, words in (
                (["--mig", "9g.90gb"], "there are 1g.6gb"), (["--mig", "0g.0gb"], "there are 1g.6gb"), (["--mig", ""], ""),
                (["--mig", "only", "--memory", "30GiB"], "so much memory; there are"),
                (["--mig", "1g.6gb", "--memory", "20GiB"], "and so much memory"),
                (["--mig", "1g.6gb", "--fraction", "0.5"], "goes with --memory"),
                (["--mig", "only", "--count", "1"], "makes an instance for one amount"), (["--mig", "only"], "for one amount"),
                (["--mig", "only", "--memory", "1GiB", "--gpus", "1"], "none of the GPUs"),
                (["--gpus", "0:0", "--fraction", "0.5"], "there is no GPU '0:0'"),
                (["--gpus", "MIG-00000000-0000-0000-0000-000000000000", "--memory", "1GiB"], "there is no GPU"),
                (["--fraction", "0=0.5"], "in MIG mode and cannot be used itself"),
                (["--fraction", "0.5", "--gpus", "0", "--mig", "never"], "--mig never leaves nothing"),
                (["--count", "2"], "2 GPUs are asked for"), (["--count", "65"], "accepted: 1 to 64")):
            status, out, err = m.fracgpu("run", *arguments, "--", "true")
            if words:
                assert status == 125 and words in err and one_line(err) and out == "", (arguments, status, err)
        assert m.instances() == []
    m = mig_machine("a100-40gb")
    status, _, err = m.fracgpu("run", "--mig", "only", "--memory", "1GiB", "--", "true")
    assert status == 125 and "no GPU here is in MIG mode" in err and one_line(err), err
    assert m.fracgpu("run", "--mig", "never", "--memory", "1GiB", "--", "true")[0] == 0


def test_a_launch_inside_stays_inside(mig_machine):
    m = mig_machine("h100-80gb-mig-empty")
    inner = f"{BUILD}/fracgpu run -- {CLIENT} init retain fill 64MiB; {BUILD}/fracgpu run --memory 20GiB -- true"
    status, out, err = m.fracgpu("run", "--memory", "2GiB", "--", "sh", "-c", inner)
    assert status == 0 and re.search(r"count=(\d+)", out) and int(re.search(r"count=(\d+)", out)[1]) <= 32, (out, err)
    assert "its cap on GPU 0:0" in err and "2.0 GiB" in err, err
    assert m.instances() == []

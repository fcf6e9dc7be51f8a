"""fracgpu partition, and launches that choose by mode, end to end on simulated MI300X, MI325X and MI355X.

How a GPU is divided is asked of the simulated node and of AMD's own amd-smi, never of the command alone.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from machine import BUILD, COMMAND, HSA_PROGRAM, KFD, LIBRARY, Machine, one_line, part, wait_until

SIMNODE = f"{BUILD}/tests/sim/simnode"
HOLDS = ("sh", "-c", "echo ready; read x")


def devices(m):
    """Of AMD's, as the node has them."""
    out = subprocess.run([SIMNODE, "show", m.node, "--json"], check=True, capture_output=True, text=True).stdout
    return [d for d in json.loads(out)["devices"] if d["vendor"] == "amd"]


def gpus(m, *arguments, **more):
    status, out, err = m.fracgpu("partition", *arguments, "--json", **more)
    assert status == 0, err
    return json.loads(out)["gpus"]


def modes(m):
    return [f"{g['compute']}/{g['memory']}" for g in gpus(m)]


def refused(m, *arguments, **more):
    status, out, err = m.fracgpu("partition", *arguments, **more)
    assert (status, out) == (1, "") and one_line(err), (status, out, err)
    return err


def with_library(m, version):
    """Environment in which libamd_smi is of this version; None: there is none."""
    folder = tempfile.mkdtemp(dir=m.folder)
    for name in os.listdir(f"{BUILD}/sim"):
        if not name.startswith("libamd_smi"):
            os.symlink(f"{BUILD}/sim/{name}", f"{folder}/{name}")
    if version is not None:
        os.symlink(f"{BUILD}/sim/libamd_smi.so.{version}", f"{folder}/libamd_smi.so")
    return {"LD_LIBRARY_PATH": folder}


def start_client(m, words, hidden=None, preload=True, **variables):
    """A program over HSA, capped or not; waits until it has begun."""
    extra = {"LD_PRELOAD": KFD + (f":{LIBRARY}" if preload else ""), **variables}
    if hidden:
        extra["FRACGPU_SIM_HIDDEN"] = hidden
    child = subprocess.Popen([HSA_PROGRAM, *words.split()], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env={**m.environment, **extra})
    m.children.append(child)
    child.lines = []
    while not child.lines or child.lines[-1] and child.lines[-1] != "ready\n":
        child.lines.append(child.stdout.readline())
    return child


def test_shows_what_there_is(machine):
    with Machine("a100-40gb+mi300x+mi355x-cpx-nps2+mi210") as m:
        first, second, third = gpus(m)
        assert (first["gpu"], first["compute"], first["memory"], first["partitions"], first["indices"]) == \
            (0, "SPX", "NPS1", 1, [0]), first
        assert first["compute_modes"] == ["SPX", "DPX", "QPX", "CPX"]
        assert first["memory_modes"] == ["NPS1", "NPS2", "NPS4"] and second["memory_modes"] == ["NPS1", "NPS2"]
        assert (second["compute"], second["memory"], second["partitions"]) == ("CPX", "NPS2", 8), second
        assert second["indices"] == list(range(1, 9)) and second["partition_bytes"] == 36862 << 20
        assert (third["compute"], third["memory"], third["compute_modes"]) == (None, None, [])
        assert [g["bus_id"] for g in (first, second, third)] == ["0000:24:00.0", "0000:30:00.0", "0000:3c:00.0"]
        status, out, _ = m.fracgpu("partition")
        assert status == 0 and "GPU 1 (0000:30:00.0): CPX/NPS2, 8 GPUs of 36.0 GiB (index 1-8)" in out, out
        assert "GPU 2 (0000:3c:00.0): not divisible" in out and len(out.splitlines()) == 5, out
        # One of them, by any of its names.
        for name in ("1", "0000:30:00.0", second["keys"][3]):
            assert gpus(m, name) == [second], name
        # Without libamd_smi it is shown all the same.
        assert gpus(m, extra=with_library(m, None)) == [first, second, third]
    m = machine("a100-40gb")
    assert m.fracgpu("partition")[:2] == (0, "this machine shows no GPU of AMD's (/sys/class/kfd)\n")
    assert "no GPU of AMD's" in refused(m, "0", "--compute", "CPX")


def test_divides_and_unites(machine):
    m = machine("2xmi300x")
    status, out, err = m.fracgpu("partition", "1", "--compute", "cpx")
    assert status == 0 and "CPX/NPS1, 8 GPUs of 24.0 GiB (index 1-8)" in out, (out, err)
    assert [d["partition"] for d in devices(m)].count(0) == 2 and len(devices(m)) == 9
    assert {d["total"] for d in devices(m)} == {196592 << 20, 24574 << 20}
    told = json.loads(m.fracgpu("status", "--json")[1])["gpus"]
    assert [(g["board"], g["mode"]) for g in told] == [(0, "SPX/NPS1")] + [(1, "CPX/NPS1")] * 8, told
    assert m.fracgpu("status")[1].count("CPX/NPS1") == 8
    before = devices(m)
    status, out, _ = m.fracgpu("partition", "1", "--compute", "CPX")
    assert status == 0 and "CPX/NPS1 already" in out and devices(m) == before
    status, out, _ = m.fracgpu("partition", "0000:24:00.0", "--compute", "QPX", "--dry-run")
    assert status == 0 and "would go from CPX/NPS1 to QPX/NPS1: 4 GPUs of 48.0 GiB" in out, out
    told = json.loads(m.fracgpu("partition", "1", "--compute", "QPX", "--dry-run", "--json")[1])
    assert told == {"gpu": 1, "from": "CPX/NPS1", "to": "QPX/NPS1", "partitions": 4,
                    "partition_bytes": 49148 << 20, "reloads_driver": False}, told
    assert devices(m) == before
    for mode, count in (("DPX", 2), ("QPX", 4), ("SPX", 1)):
        assert gpus(m, "1", "--compute", mode)[0]["partitions"] == count
    assert m.claims() == []


def test_memory_modes_by_each_generation_of_the_library():
    for version, reloads in ((25, True), (26, True), (27, False), (28, False)):
        with Machine("2xmi300x") as m:
            library = with_library(m, version)
            wanted = ("0", "--compute", "QPX", "--memory", "nps4")
            err = refused(m, *wanted, extra=library)
            assert "add --yes" in err and "all 2" in err and modes(m) == ["SPX/NPS1"] * 2, err
            status, out, _ = m.fracgpu("partition", *wanted, "--dry-run", extra=library)
            assert status == 0 and "QPX/NPS4" in out and "all 2 AMD GPUs got NPS4" in out, out
            status, out, err = m.fracgpu("partition", *wanted, "--yes", extra=library)
            if reloads:
                assert status == 0 and "is to be reloaded: all its GPUs get NPS4" in err, (version, out, err)
            else:
                assert status == 1 and "run modprobe -r amdgpu && modprobe amdgpu" in err, (version, err)
                assert modes(m) == ["SPX/NPS1"] * 2
                subprocess.run([SIMNODE, "reload", m.node], check=True)
                assert modes(m) == ["CPX/NPS4"] * 2
                assert m.fracgpu("partition", *wanted, extra=library)[0] == 0, "no driver is reloaded"
            assert modes(m) == ["QPX/NPS4", "CPX/NPS4"], version
            err = refused(m, "0", "--compute", "SPX", extra=library)
            assert "SPX does not go with NPS4" in err and "it goes with NPS1: add --memory" in err, err


def test_what_cannot_be(machine):
    m = machine("a100-40gb+mi300x+mi355x+mi210")
    for arguments, words in (
            (("0", "--compute", "TPX"), ("no compute mode 'TPX'", "SPX, DPX, QPX or CPX")),
            (("0", "--compute", "fast\x1b[2J"), ("no compute mode", "SPX, DPX, QPX or CPX")),
            (("1", "--memory", "NPS4", "--yes"), ("no memory mode 'NPS4'", "NPS1 or NPS2")),
            (("0", "--compute", "CPX", "--memory", "NPS2"), ("CPX does not go with NPS2", "NPS1 or NPS4")),
            (("0", "--compute", "DPX", "--memory", "NPS4"), ("DPX does not go with NPS4", "NPS1 or NPS2")),
            (("2", "--compute", "CPX"), ("cannot be divided",)),
            (("3", "--compute", "CPX"), ("no GPU 3 of AMD's here", "0 to 2")),
            (("99999999999", "--compute", "CPX"), ("there is no GPU",)),
            (("nonsense", "--compute", "CPX"), ("accepted:",)),
            ((m.uuids()[0], "--compute", "CPX"), ("is not AMD's",)),
            (("--compute", "CPX"), ("which GPU?",))):
        err = refused(m, *arguments)
        assert all(word in err for word in words) and "\x1b" not in err, (arguments, err)
    assert m.fracgpu("partition", "0", "--compute")[0] == 2
    assert m.fracgpu("partition", "0", "1")[0] == 2
    wish = ("0", "--compute", "CPX")
    assert "no libamd_smi.so here" in refused(m, *wish, extra=with_library(m, None))
    for version in (0, 24):
        assert "too old" in refused(m, *wish, extra=with_library(m, version)), version
    for status, word in ((30, "is busy"), (10, "only root"), (55, "does not give"), (2, "does not give"),
                         (12, "answers 12")):
        err = refused(m, *wish, extra={"FRACGPU_SIM_FAIL": f"amdsmi_set_gpu_accelerator_partition_profile:1={status}"})
        assert word in err, err
    # A profile that is not what is known of it: none is set.
    err = refused(m, *wish, extra={"FRACGPU_SIM_FAIL": "amdsmi_get_gpu_accelerator_partition_profile_config:1=2"})
    assert "does not give" in err, err
    assert "cannot be initialised" in refused(m, *wish, extra={"FRACGPU_SIM_FAIL": "rsmi_init:1=8"})
    assert modes(m) == ["SPX/NPS1", "SPX/NPS1", "None/None"] and m.claims() == []


def test_only_root_may(machine):
    m = machine("mi300x")
    if os.geteuid() != 0 or subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", COMMAND, "--version"],
                                           check=False, capture_output=True).returncode != 0:
        pytest.skip("root is needed to become somebody else")
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", COMMAND, "partition", "0", "--compute", "CPX"],
                          env=m.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and one_line(done.stderr) and "only root may divide a GPU" in done.stderr, done
    assert modes(m) == ["SPX/NPS1"]


def test_a_gpu_in_use_is_left_alone(machine):
    m = machine("2xmi300x")
    user = start_client(m, "init alloc 64MiB wait", preload=False)
    err = refused(m, "0", "--compute", "CPX")
    assert "is in use by" in err and f"PID {user.pid} (hsa_program" in err, err
    # The runtime opens every GPU, whether it uses it or not.
    assert f"PID {user.pid}" in refused(m, "1", "--compute", "CPX")
    user.kill()
    user.wait()
    # In a container it has one alone.
    user = start_client(m, "init alloc 64MiB wait", preload=False, hidden="0")
    assert gpus(m, "0", "--compute", "CPX")[0]["partitions"] == 8
    assert f"PID {user.pid}" in refused(m, "1", "--compute", "CPX")
    assert f"PID {user.pid}" in refused(m, "0", "--memory", "NPS4", "--yes", extra=with_library(m, 26))
    assert modes(m) == ["CPX/NPS1", "SPX/NPS1"]
    out, _ = user.communicate("alloc 64MiB\n", timeout=60)
    assert "alloc rc=0" in out, "what it has stays"


def test_what_is_open_of_another_gpu_stays(machine):
    """The library counts by fdinfo of a render node, which another GPU's new modes do not touch."""
    m = machine("2xmi300x")
    code = ("import os\nfd = os.open('/dev/dri/renderD136', os.O_RDONLY)\n"
            "def look():\n print(os.readlink(f'/proc/self/fd/{fd}'), end=' ')\n"
            " print(open(f'/proc/self/fdinfo/{fd}').read().count('drm-pdev:\\t0000:24:00.0'), flush=True)\n"
            "look()\ninput()\nlook()")
    child = subprocess.Popen([sys.executable, "-c", code], env=m.environment, text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    m.children.append(child)
    assert child.stdout.readline() == "/dev/dri/renderD136 1\n"
    gpus(m, "0", "--compute", "CPX")
    assert child.communicate("\n", timeout=60)[0] == "/dev/dri/renderD136 1\n"


def test_a_claimed_gpu_is_left_alone(machine):
    m = machine("2xmi300x")
    run = m.start("run", "--fraction", "1=0.25", "--tenant", m.tenant("one"), "--", *HOLDS)
    assert run.stdout.readline() == "ready\n"
    err = refused(m, "1", "--compute", "CPX")
    assert f"taken: tenant {m.tenant('one')} (PID {run.pid}, sh) has claimed it" in err, err
    waiting = m.start("run", "--fraction", "0=1,1=1", "--wait", "--tenant", m.tenant("two"), "--", "true")
    assert waiting.stderr.readline().startswith("fracgpu: waiting for room")
    err = refused(m, "0", "--compute", "CPX")
    assert f"tenant {m.tenant('two')} (PID {waiting.pid}, true) waits for it" in err, err
    assert "GPU 0" in refused(m, "0", "--memory", "NPS4", "--yes") and modes(m) == ["SPX/NPS1"] * 2
    run.communicate("\n", timeout=60)
    assert waiting.wait(60) == 0
    assert gpus(m, "0", "--compute", "CPX")[0]["partitions"] == 8 and m.claims() == []
    # A part of it is enough.
    run = m.start("run", "--fraction", "5=0.125", "--tenant", m.tenant("three"), "--", *HOLDS)
    assert run.stdout.readline() == "ready\n"
    assert m.tenant("three") in refused(m, "0", "--compute", "SPX")
    run.communicate("\n", timeout=60)


def in_sleep(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().split()[0] in ("35", "230", "115", "101")  # nanosleep and clock_nanosleep


def test_a_kill_leaves_the_old_mode_or_the_new(machine):
    m = machine("2xmi300x")
    library = with_library(m, 26)
    for step, arguments, then in (
            ("before a change of partitions", ("0", "--compute", "CPX"), ["SPX/NPS1", "SPX/NPS1"]),
            ("a change of partitions", ("0", "--compute", "CPX"), ["CPX/NPS1", "SPX/NPS1"]),
            ("before a change of partitions", ("1", "--memory", "NPS4", "--yes"), ["CPX/NPS1", "SPX/NPS1"]),
            ("a change of partitions", ("1", "--memory", "NPS4", "--yes"), ["CPX/NPS4", "CPX/NPS4"]),
            ("end of nothing", ("1", "--compute", "QPX"), ["CPX/NPS4", "QPX/NPS4"])):
        child = m.start("partition", *arguments, extra={**library, "FRACGPU_SIM_DELAY_US": f"{step}=600000000"})
        if step.startswith("end"):
            child.wait(60)
        else:
            wait_until(lambda pid=child.pid: in_sleep(pid), f"it comes to {step}")
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert modes(m) == then, (step, arguments, modes(m))
        assert m.claims() == [], "its claim went with it"
        ids = {d["node"]: d["gpu_id"] for d in devices(m)}
        for node, gpu_id in ids.items():
            with open(f"{m.node}.sys/sys/class/kfd/kfd/topology/nodes/{node}/gpu_id", encoding="ascii") as file:
                assert int(file.read()) == gpu_id, (step, node)
        assert not os.path.exists(f"{m.node}.sys/sys/class/kfd/kfd/topology/nodes/{len(ids) + 1}")


def test_launches_choose_by_mode(machine):
    with Machine("3xmi300x") as m:
        status, _, err = m.fracgpu("run", "--partition", "cpx", "--count", "1", "--", "true")
        assert status == 125 and one_line(err) and "there are SPX: GPU 0, 1, 2" in err, err
        gpus(m, "0", "--compute", "CPX")
        gpus(m, "2", "--compute", "DPX")
        for mode, indices in (("CPX", range(8)), ("spx", [8]), ("Dpx", [9, 10])):
            status, out, err = m.fracgpu("run", "--partition", mode, "--memory", "1GiB", "--dry-run", "--json")
            assert status == 0 and [g["index"] for g in json.loads(out)["gpus"]] == list(indices), (mode, out, err)
        status, out, err = m.fracgpu("run", "--partition", "dpx", "--count", "2", "--", "env")
        seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        assert status == 0 and seen["ROCR_VISIBLE_DEVICES"] == "9,10", (out, err)
        assert m.fracgpu("run", "--partition", "dpx", "--count", "4", "--", "true")[0] == 125
        status, _, err = m.fracgpu("run", "--partition", "qpx", "--fraction", "1", "--", "true")
        assert status == 125 and one_line(err) and "CPX: GPU 0, 1" in err and "SPX: GPU 8" in err, err
        status, _, err = m.fracgpu("run", "--partition", "mig", "--fraction", "1", "--", "true")
        assert status == 125 and one_line(err) and "accepted: spx, dpx, tpx, qpx and cpx" in err, err
        status, _, err = m.fracgpu("run", "--partition", "cpx", "--gpus", "8-10", "--fraction", "1", "--", "true")
        assert status == 125 and "DPX: GPU 9, 10; SPX: GPU 8" in err, err
        with open(f"{m.folder}/jobs", "w", encoding="ascii") as file:
            file.write('echo "on $ROCR_VISIBLE_DEVICES"\n' * 4)
        status, out, err = m.fracgpu("queue", "--queue", "one=1", "--partition", "dpx", f"{m.folder}/jobs")
        assert status == 0 and {line for line in out.splitlines() if line.startswith("on ")} <= {"on 9", "on 10"}, (out, err)
        status, _, err = m.fracgpu("queue", "--queue", "one=1", "--partition", "qpx", f"{m.folder}/jobs")
        assert status == 1 and one_line(err) and "no GPU is in the mode" in err, err
    m = machine("a100-40gb")
    status, _, err = m.fracgpu("run", "--partition", "cpx", "--fraction", "1", "--", "true")
    assert status == 125 and one_line(err) and "no GPU to choose from tells a mode" in err, err


def amd_smi(m, version, library, place):
    """Runs AMD's own tool, with the simulated library where it looks for it; its output."""
    where = part(version)
    root = f"{m.folder}/{version}"
    if not os.path.exists(root):
        for below in ("usr/libexec", "usr/share/amd_smi", "usr/lib/python3"):
            if os.path.exists(f"{where}/{below}"):
                shutil.copytree(f"{where}/{below}", f"{root}/{below}", symlinks=True)
        if place:
            os.makedirs(os.path.dirname(f"{root}/{place}"), exist_ok=True)
            os.symlink(f"{BUILD}/sim/{library}", f"{root}/{place}")

    # The older tool offers partitions only where lscpu says nothing of a hypervisor.
    with open(f"{m.folder}/lscpu", "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write("#!/bin/sh\n")

    def run(*arguments):
        done = subprocess.run([sys.executable, "-B", f"{root}/usr/libexec/amdsmi_cli/amdsmi_cli.py", *arguments],
                              env={**m.environment, "PYTHONPATH": f"{root}/usr/lib/python3/dist-packages",
                                   "PATH": f"{m.folder}:{m.environment['PATH']}"},
                              capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout
    return run


def test_amd_smi_says_the_same(machine):
    m = machine("mi300x+mi355x")
    gpus(m, "1", "--compute", "CPX")
    run = amd_smi(m, "amd-smi-10.1", "libamd_smi.so.27", "")
    rows = [line.split() for line in run("partition", "--current").splitlines() if line[:1].isdigit()]
    assert rows[0][:4] == ["0", "NPS1", "SPX", "0"] and rows[1][:4] == ["1", "NPS1", "CPX", "3"], rows
    assert len(rows) == 9, rows
    rows = [line.split() for line in run("partition", "--memory").splitlines() if line[:1].isdigit()]
    assert rows[0] == ["0", "NPS1,NPS2,NPS4", "NPS1"] and rows[1] == ["1", "NPS1,NPS2", "NPS1"], rows
    told = run("partition", "--accelerator")
    assert "CPX*" in told and "SPX*" in told and told.count("XCC") >= 8, told
    told = run("static", "--partition", "--gpu", "1")
    assert "ACCELERATOR_PARTITION: CPX" in told and "MEMORY_PARTITION: NPS1" in told, told
    # What its library sets, the command sees; the tool itself sets nothing on a virtual machine.
    code = ("import amdsmi as a;a.amdsmi_init()\n"
            "gpu = a.amdsmi_get_processor_handles()[1]\n"
            "all = a.amdsmi_get_gpu_accelerator_partition_profile_config(gpu)['profiles']\n"
            "dpx = next(p for p in all if p['profile_type'] == 'DPX')\n"
            "assert dpx['memory_caps'] == ['NPS1', 'NPS2'] and dpx['num_partitions'] == 2, dpx\n"
            "a.amdsmi_set_gpu_accelerator_partition_profile(gpu, dpx['profile_index'])")
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False,
                          env={**m.environment, "PYTHONPATH": f"{m.folder}/amd-smi-10.1/usr/share/amd_smi"})
    assert done.returncode == 0, done.stderr
    assert modes(m) == ["SPX/NPS1", "DPX/NPS1"]


def test_amd_smi_of_rocm_6_says_the_same(machine):
    m = machine("mi300x")
    gpus(m, "0", "--compute", "QPX")
    run = amd_smi(m, "amd-smi-6.1.2", "libamd_smi.so.0", "usr/lib/x86_64-linux-gnu/libamd_smi.so")
    told = run("static", "--partition", "--gpu", "2")
    assert "COMPUTE_PARTITION: QPX" in told and "MEMORY_PARTITION: NPS1" in told, told


def test_sixty_four_partitions_each_with_its_capped_process(machine):
    m = machine("8xmi300x")
    for board in range(8):
        assert gpus(m, str(board), "--compute", "CPX")[0]["partitions"] == 8
    assert len(devices(m)) == 64
    children = []
    for i in range(64):
        # The cap of 256 MiB holds the first and refuses the second.
        children.append(m.start("run", "--partition", "cpx", "--memory", f"{i}=256MiB", "--tenant",
                                m.tenant(f"t{i}"), "--", HSA_PROGRAM, "init", "alloc", "128MiB", "alloc", "256MiB",
                                "wait"))
    for child in children:
        lines = [child.stdout.readline() for _ in range(4)]
        assert lines[1] == "alloc rc=0\n" and lines[2] != "alloc rc=0\n" and lines[3] == "ready\n", lines
    assert all((128 << 20) <= d["used"] <= (256 << 20) for d in devices(m)), devices(m)
    err = refused(m, "3", "--compute", "SPX")
    assert "is in use by" in err and "and 60 more" in err, err
    for child in children:
        child.communicate("\n", timeout=60)
    for board in range(8):
        assert gpus(m, str(board), "--compute", "SPX")[0]["partitions"] == 1
    assert modes(m) == ["SPX/NPS1"] * 8

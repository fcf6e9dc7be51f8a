"""What a launch starts in its turn is charged to the same cap, or refused, whatever it is called."""
import os
import subprocess

import pytest

from machine import CLIENT, COMMAND, GIB, LIBRARY, one_line


def inside(m, outer, script, extra=None):
    """Runs the script in a launch with these options: status, stdout, stderr."""
    return m.fracgpu("run", *outer, "--tenant", m.tenant("outer"), "--", "bash", "-c", script, extra=extra)


DISGUISES = ("", "FRACGPU_TENANT=other ", "env -u FRACGPU_TENANT ", "env -u LD_PRELOAD ", "FRACGPU_BOOK=/dev/shm/none.test ",
             "env -u FRACGPU_MEMORY_LIMIT -u FRACGPU_TENANT -u LD_PRELOAD -u CUDA_VISIBLE_DEVICES ", "setsid -w ",
             "bash -c 'for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -gt 2 ] && eval \"exec $n>&-\"; done; exec \"$@\"' x ")


def test_the_sum_stays_under_the_outer_cap(machine):
    m = machine("2xa100-40gb")
    taken = f"{CLIENT} init retain alloc 3GiB wait"
    for disguise in DISGUISES:
        # Two of 3 GiB each in 4 GiB: one is refused, whoever starts them.
        status, out, err = inside(
            m, ("--memory", "4GiB"),
            f"mkfifo {m.folder}/hold; exec 3<>{m.folder}/hold; {taken} <&3 & "
            f"for i in {{1..500}}; do [ -e {m.ledger('outer')} ] && break; sleep 0.01; done; sleep 0.3; "
            f"{disguise}{COMMAND} run -- {CLIENT} init retain alloc 3GiB; echo status=$?; echo >&3; wait; rm {m.folder}/hold")
        allocations = sorted(line.split("rc=")[1][0] for line in out.splitlines() if line.startswith("alloc"))
        assert allocations == ["0", "2"] and "status=0" in out, (disguise, status, out, err)
    assert m.claims() == []


def test_what_asks_for_less_or_another_name_is_refused(machine):
    m = machine("2xa100-40gb")
    for outer, inner in ((("--memory", "4GiB"), "--memory 2GiB"), (("--memory", "4GiB"), "--tenant other"),
                         (("--memory", "4GiB"), "--memory 8GiB --tenant other"), (("--memory", "4GiB"), "--fraction 0.0625"),
                         (("--fraction", "0.5"), "--fraction 0.25"), (("--fraction", "0.5"), "--count 2"), (("--fraction", "0.5"), "--memory 19GiB"),
                         (("--fraction", "0=0.5"), "--fraction 1=0.5"), (("--fraction", "0=0.5"), "--memory 30GiB --gpus 1"),
                         (("--memory", "0=4GiB"), "--memory 1=8GiB"), (("--memory", "1=4GiB,0=8GiB"), "--memory 5GiB")):
        for disguise in DISGUISES:
            status, out, err = inside(m, outer, f"{disguise}{COMMAND} run {inner} -- echo ran; echo status=$?")
            assert "ran" not in out and "status=125" in out and one_line(err), (outer, inner, disguise, out, err)
    for disguise in DISGUISES:
        status, out, err = inside(m, ("--fraction", "0.5"),
                                  f"echo 'echo ran' | {disguise}{COMMAND} queue --queue a=0.5; echo status=$?")
        assert "ran" not in out and "status=1" in out and one_line(err) and m.tenant("outer") in err, (disguise, out, err)
    assert m.claims() == []


def test_what_asks_for_no_less_joins(machine):
    m = machine("2xa100-40gb")
    uuids = m.uuids()
    shown = 'echo $FRACGPU_TENANT $FRACGPU_MEMORY_LIMIT $CUDA_VISIBLE_DEVICES'
    for outer, inner, expected, told in (
            (("--memory", "4GiB"), "", "4GiB", False),
            (("--memory", "4GiB"), "--memory 4096MiB", "4GiB", False),
            (("--memory", "4GiB"), "--memory 8GiB", "4GiB", True),
            (("--memory", "4GiB"), "--memory 8GiB --gpus 1", f"4GiB {uuids[1]}", True),
            (("--memory", "4GiB"), f"--tenant {m.tenant('outer')}", "4GiB", False),
            (("--memory", "0=4GiB,1=5GiB"), "--memory 5GiB --gpus 1", f"{uuids[0]}=4GiB,{uuids[1]}=5GiB {uuids[1]}", False),
            (("--fraction", "1=0.5"), "--memory 20GiB --gpus 1", f"512b,{uuids[1]}=0.5 {uuids[1]}", False),
            (("--memory", "20GiB"), "--fraction 1=0.5", f"20GiB {uuids[1]}", False),
            (("--fraction", "1=0.5"), "--fraction 0.5", f"512b,{uuids[1]}=0.5 {uuids[1]}", False),
            (("--count", "2"), "--count 1", f"1.0 {uuids[0]}", False)):
        for disguise in DISGUISES:
            if "CUDA_VISIBLE" in disguise and "--gpus" not in inner:
                continue
            status, out, err = inside(m, outer, f"{disguise}{COMMAND} run {inner} -- sh -c '{shown}'")
            assert status == 0 and out == f"{m.tenant('outer')} {expected}\n", (outer, inner, disguise, status, out, err)
            assert (one_line(err) and "4.0 GiB" in err) if told else err == "", (outer, inner, disguise, err)
    # Two levels down, and in the tree of one that joined.
    status, out, err = inside(m, ("--memory", "4GiB"),
                              f"{COMMAND} run -- env -u FRACGPU_TENANT {COMMAND} run -- sh -c '{shown}'")
    assert (status, out, err) == (0, f"{m.tenant('outer')} 4GiB\n", "")
    status, out, _ = inside(m, ("--memory", "4GiB"), f"{COMMAND} run --memory 8GiB --dry-run 2>/dev/null")
    assert status == 0 and "cap 4.0 GiB" in out and "8.0" not in out, out
    assert m.claims() == []


def test_a_queue_command_is_a_launch_too(machine):
    m = machine("a100-40gb")
    status, out, err = m.fracgpu(
        "queue", "--queue", "q=0.25",
        input=f"env -u FRACGPU_TENANT {COMMAND} run --fraction 0.125 -- echo ran; env -u FRACGPU_TENANT {COMMAND} run -- sh -c 'echo $FRACGPU_MEMORY_LIMIT'\n")
    assert status == 0 and out == "0.25\n" and "inside" in err, (status, out, err)


def test_a_capped_environment(machine):
    """As in an image whose environment caps it: the shell is under the cap itself."""
    m = machine("a100-40gb")
    extra = {"LD_PRELOAD": LIBRARY, "FRACGPU_MEMORY_LIMIT": "4GiB", "FRACGPU_TENANT": m.tenant("image")}
    status, out, err = m.fracgpu("run", "--memory", "2GiB", "--", "echo", "ran", extra=extra)
    assert (status, out) == (125, "") and one_line(err) and m.tenant("image") in err, (status, out, err)
    status, out, err = m.fracgpu("run", "--tenant", "other", "--", "echo", "ran", extra=extra)
    assert (status, out) == (125, "") and one_line(err), (status, out, err)
    status, out, err = m.fracgpu("run", "--", CLIENT, "init", "retain", "total", extra=extra)
    assert status == 0 and f"bytes={4 * GIB}" in out, (status, out, err)
    status, out, err = m.fracgpu("queue", "--queue", "a=1", input="echo ran\n", extra=extra)
    assert (status, out) == (1, "") and one_line(err), (status, out, err)
    # With nothing preloaded the variable alone is a wish, not a cap.
    status, out, err = m.fracgpu("run", "--memory", "2GiB", "--", "sh", "-c", "echo $FRACGPU_MEMORY_LIMIT", extra={"FRACGPU_MEMORY_LIMIT": "4GiB"})
    assert (status, out) == (0, "2GiB\n"), (status, out, err)


def test_a_container_with_a_ceiling_is_one_tenant(machine):
    if os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    m = machine("a100-40gb")
    def container(script):
        image = "mount -t tmpfs none /etc && mkdir /etc/fracgpu && echo 4GiB > /etc/fracgpu/limit.conf && "
        done = subprocess.run(["unshare", "--mount", "--uts", "bash", "-c", image + script], capture_output=True, text=True,
                              timeout=120, check=False, env=m.environment)
        return done.stdout, done.stderr
    out, err = container(f"{COMMAND} run --memory 8GiB --tenant other -- echo ran; echo status=$?")
    assert out == "status=125\n" and one_line(err) and "inside tenant container-" in err, (out, err)
    out, err = container(f"echo 'echo ran' | {COMMAND} queue --queue a=1; echo status=$?")
    assert out == "status=1\n" and one_line(err), (out, err)
    # The environment may lower the ceiling, and never raise it; the sum is one tenant's.
    out, err = container(f"{COMMAND} run --memory 2GiB -- {CLIENT} init retain total")
    assert f"bytes={2 * GIB}" in out, (out, err)
    out, err = container(f"{COMMAND} run --memory 8GiB -- {CLIENT} init retain total")
    assert f"bytes={4 * GIB}" in out, (out, err)
    out, err = container(f"mkfifo {m.folder}/hold; exec 3<>{m.folder}/hold; {COMMAND} run --memory 4GiB -- {CLIENT} init retain alloc 3GiB wait <&3 >{m.folder}/first & "
                         f"for i in {{1..500}}; do grep -q ready {m.folder}/first 2>/dev/null && break; sleep 0.01; done; "
                         f"{COMMAND} run --memory 4GiB -- {CLIENT} init retain alloc 3GiB; echo >{m.folder}/hold; wait; cat {m.folder}/first")
    assert sorted(line.split("rc=")[1][0] for line in out.splitlines() if line.startswith("alloc")) == ["0", "2"], (out, err)

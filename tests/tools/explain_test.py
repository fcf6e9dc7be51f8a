"""Refusals as people are told of them, end to end on simulated machines: `fracgpu explain` and
what `fracgpu status` says of tenants, claims, and processes under no cap."""
import json
import os
import re
import shlex
import signal
import subprocess

import pytest

from machine import CLIENT, COMMAND, GIB, HIP_PROGRAM, HSA_PROGRAM, SHARE_CLIENT, one_line
from made_ledger import ledger, write_ledger


CONTEXT = 414 << 20  # of the simulated A100


def words(text):
    return " ".join(text.split())


def told(m, name):
    status, out, err = m.fracgpu("explain", m.tenant(name))
    assert (status, err) == (0, ""), (status, err)
    assert all(len(line) <= 80 for line in out.splitlines()), out
    return out


def refusals(m, name):
    status, out, err = m.fracgpu("explain", m.tenant(name), "--json")
    assert (status, err) == (0, ""), (status, err)
    return json.loads(out)["tenants"][0]


def test_the_dead_hold_nothing(machine):
    m = machine("a100-40gb")
    for name in ("a", "b"):
        client = m.client(name, "1GiB", "init retain alloc 2GiB alloc 100MiB wait")
        client.kill()
        client.wait()
    said = words(told(m, "a"))
    assert f"Now 0 bytes of 40.0 GiB on GPU 0 ({m.uuids()[0]}) are in use. What would" in said, said
    assert "held by PID" not in said and m.tenant("b") not in said, said
    # Those that live are still shown, of every tenant.
    living = m.client("c", "1GiB", "init retain alloc 100MiB wait")
    said = words(told(m, "a"))
    assert "are in use, held by PID" in said and f"{living.pid} root" in said and m.tenant("b") not in said, said


def test_the_part_of_a_gpu_is_told(machine):
    """A MIG instance by its profile, a partition of AMD's by its modes and the GPU that it is a part of."""
    m = machine("h100-80gb-mig+mi300x-cpx-nps4+mi300x")
    gpus = {gpu["key"]: gpu for gpu in json.loads(m.fracgpu("explain", "--json")[1])["gpus"]}
    instance = next(gpu for gpu in gpus.values() if gpu["number"] == "0:1")
    m.client("mig", "1GiB", "init retain alloc 2GiB wait", extra={"CUDA_VISIBLE_DEVICES": instance["key"]})
    assert f"on GPU 0:1 ({instance['key']}, 2g.20gb)." in words(told(m, "mig"))
    assert (instance["mig_profile"], instance["mig_slices"], instance["board_bus_id"]) == ("2g.20gb", 2, None), instance
    assert gpus[instance["mig_parent"]]["mig_mode"]
    for visible, bus_id, mode, division in (("3", "0000:24:00.0", "CPX/NPS4", "CPX/NPS4 of 0000:24:00.0"),
                                            ("8", "0000:30:00.0", "SPX/NPS1", "SPX/NPS1")):
        name = f"amd-{visible}"
        m.client(name, "256MiB", "init alloc 512MiB wait", extra={"ROCR_VISIBLE_DEVICES": visible}, program=HSA_PROGRAM)
        said = words(told(m, name))
        gpu = gpus[re.search(r"on GPU \d+ \((AMD-\d+), ", said)[1]]
        assert f"on GPU {visible} ({gpu['key']}, {division})." in said, said
        assert (gpu["number"], gpu["mode"], gpu["board_bus_id"]) == (visible, mode, bus_id), gpu
        listed = next(each for each in json.loads(m.fracgpu("partition", "--json")[1])["gpus"] if gpu["key"] in each["keys"])
        assert (listed["gpu"], listed["bus_id"]) == (gpu["board"], gpu["board_bus_id"]), "as fracgpu partition says"


def test_the_advice_is_good(machine):
    m = machine("a100-40gb")
    outsider = m.client("", None, "init retain alloc 10GiB wait")
    big = m.client("a", "8GiB", "init retain alloc 6GiB wait")
    asking = m.client("a", "8GiB", "init retain wait alloc 3GiB wait alloc 3GiB wait")
    assert told(m, "a") == f"{m.tenant('a')} was never refused.\n"
    asking.stdin.write("\n")
    asking.stdin.flush()
    assert "rc=2" in asking.stdout.readline() and asking.stdout.readline() == "ready\n"
    out = told(m, "a")
    said = words(out)
    uuid = m.uuids()[0]
    for each in (f"{m.tenant('a')} was refused once.",
                 f"cuda_client (PID {asking.pid}, user root) called cuMemAlloc on GPU 0 ({uuid}).",
                 "It asked for 3.0 GiB.",
                 "Of the cap of 8.0 GiB, 6.8 GiB were in use and 1.2 GiB free: 1.8 GiB too little.",
                 f"The most, 6.4 GiB, was held by cuda_client (PID {big.pid}); the asking process held 414.0 MiB.",
                 "- a request of at most 1220.0 MiB",
                 f"- waiting for cuda_client (PID {big.pid}) to free some of it: it held 6.4 GiB, the most",
                 "- fewer processes: 2 of them hold 828.0 MiB for contexts and code now"):
        assert each in said, (each, out)
    rows = [line.split() for line in out.splitlines() if "cuda_client" in line and "GiB" in line and "root" in line]
    assert [str(outsider.pid), "root", "cuda_client", "(under", "no", "cap)", "10.4"] in [r[:7] for r in rows], out
    assert [str(big.pid), "root", "cuda_client", "(this", "one)", "6.4", "GiB"] in [r[:7] for r in rows], out
    # What it says is done to the letter, and helps.
    command = re.search(r"fracgpu limit \S+ \S+", said).group()
    status, _, err = m.fracgpu(*shlex.split(command)[1:])
    assert status == 0, err
    assert "nothing more: " in words(told(m, "a")), "it would fit now"
    asking.stdin.write("\n")
    asking.stdin.flush()
    assert "rc=0" in asking.stdout.readline(), "what was advised is enough"
    # Its processes gone, it can still be told, and what is advised is for the next start.
    for child in (asking, big):
        child.communicate("", timeout=60)
    said = words(told(m, "a"))
    assert "- a larger cap at its next start: FRACGPU_MEMORY_LIMIT=10GiB or fracgpu run" in said, said


def test_what_the_dead_exported_and_who_has_it(machine):
    m = machine("a100-40gb")
    maker = m.client("a", "8GiB", f"export-vmm {6 * GIB}", program=SHARE_CLIENT, until="token ")
    user = m.client("b", "8GiB", f"import {maker.lines[-1].split()[1]} {6 * GIB}", program=SHARE_CLIENT,
                    until="open rc=0")
    maker.kill()
    maker.wait()
    asking = m.client("a", "8GiB", "init retain alloc 3GiB wait")
    assert "rc=2" in "".join(asking.lines), asking.lines
    said = words(told(m, "a"))
    assert (f"- closing what was imported from share_client (PID {maker.pid}), which is dead: 6.0 GiB of it are "
            f"still in use; importing are share_client (PID {user.pid})") in said, said
    out = m.fracgpu("status", m.tenant("a"))[1]
    assert re.search(rf"\n +{maker.pid} .* exported\n", out) and re.search(rf"\n +{user.pid} .* importer\n", out), out
    (tenant,) = json.loads(m.fracgpu("status", m.tenant("a"), "--json")[1])["tenants"]
    (importer,) = [each for each in tenant["devices"][0]["processes"] if each["foreign_importer"]]
    assert (importer["pid"], importer["used_bytes"], importer["imported_bytes"]) == (user.pid, 0, 6 * GIB), importer
    user.communicate("free\n", timeout=60)
    assert "rc=0" in m.client("a", "8GiB", "init retain alloc 3GiB wait").lines[-2]


def test_run_tells_it_before_it_is_forgotten(machine):
    m = machine("a100-40gb")
    def run(*program):
        return m.fracgpu("run", "--memory", "2GiB", "--tenant", m.tenant("a"), "--explain", "--", *program)
    status, out, err = run(CLIENT, "init", "retain", "alloc", "3GiB")
    assert "rc=2" in out and f"fracgpu: {m.tenant('a')} was refused once.\n" in err, err
    assert "- a larger cap at its next start: FRACGPU_MEMORY_LIMIT=3486MiB" in words(err), err
    assert not os.path.exists(m.ledger("a"))
    assert run(CLIENT, "init", "retain", "alloc", "1GiB")[2] == "" and run("true") == (0, "", "")


def test_each_refusal_counts_once_and_what_was_granted_does_not(machine):
    m = machine("a100-40gb")
    one = m.client("a", "8GiB", "init retain " + "alloc 9GiB " * 70 + "alloc 1GiB freeall wait")
    assert sum("rc=2" in line for line in one.lines) == 70
    tenant = refusals(m, "a")
    assert tenant["refusals"] == 70 and [r["number"] for r in tenant["refused"]] == list(range(70, 6, -1))
    assert all(r["asked_bytes"] == 9 * GIB and r["reason"] == "cap" and r["api"] == "cuMemAlloc"
               for r in tenant["refused"])
    devices = json.loads(m.fracgpu("status", m.tenant("a"), "--json")[1])["tenants"][0]["devices"]
    assert devices[0]["refusals_by_reason"] == {"cap": 70, "driver": 0, "runtime": 0, "ledger": 0}
    # An idle pool is trimmed before a refusal: what fits afterwards was never refused.
    two = m.client("b", "8GiB", "init retain pooled 5GiB free 0 alloc 7GiB wait")
    assert "rc=0" in two.lines[-2] and refusals(m, "b")["refusals"] == 0, two.lines
    two.communicate("", timeout=60)
    one.communicate("", timeout=60)


def test_the_gpu_itself_is_full(machine):
    m = machine("a100-40gb")
    outsider = m.client("", None, "init retain alloc 36GiB wait")
    one = m.client("a", "20GiB", "init retain alloc 8GiB wait")
    assert "rc=2" in "".join(one.lines)
    err_line = "which the driver does not have"
    said = words(told(m, "a"))
    for each in ("It asked for 8.0 GiB, for which the cap of 20.0 GiB had room (414.0 MiB were in use), but the "
                 "driver had no memory: the GPU itself was full.",
                 f"- ending or capping who is under no cap: 1 hold 36.4 GiB there now, cuda_client "
                 f"(PID {outsider.pid})"):
        assert each in said, (each, said)
    tenant = refusals(m, "a")
    assert [r["reason"] for r in tenant["refused"]] == ["driver"] and tenant["refusals"] == 1
    _, err = one.communicate("", timeout=60)
    assert err_line in err and err.count("\n") == 1, err


def test_nothing_can_be_granted(machine):
    m = machine("2xa100-40gb")
    first = m.uuids()[0]
    one = m.client("a", f"{first}=8GiB,GPU-00000000-0000-0000-0000-000000000000=1GiB",
                   "init retain device 1 retain wait")
    assert [line.split()[-1] for line in one.lines if line.startswith("retain")][1].startswith("rc=2") or \
        "rc=2" in one.lines[-2], one.lines
    tenant = refusals(m, "a")
    assert [(r["reason"], r["device"]) for r in tenant["refused"]] == [("ledger", None)], tenant
    assert "fracgpu could grant nothing" in words(told(m, "a"))
    one.communicate("", timeout=60)


def test_amd_refusals_have_the_name_that_the_program_called(machine):
    m = machine("mi210")
    probe = subprocess.run([HIP_PROGRAM, "init"], env=m.environment, capture_output=True, text=True,
                           check=False)
    if probe.returncode != 0:
        pytest.skip(f"no HIP runtime: {probe.stderr.strip()}")
    one = m.client("a", "2GiB", "init malloc 3GiB wait", program=HIP_PROGRAM)
    refused = refusals(m, "a")["refused"]
    assert [(r["api"], r["reason"]) for r in refused] == [("hipMalloc", "cap")], (refused, one.lines)
    one.communicate("", timeout=60)


def test_who_asks_for_what_there_is_not(machine):
    m = machine("a100-40gb")
    for command in ("explain", "status"):
        status, out, err = m.fracgpu(command, m.tenant("nobody"))
        assert (status, out) == (1, "") and one_line(err), err
        assert m.fracgpu(command, "--wrong")[0] == 2
        status, out, _ = m.fracgpu(command, "--help")
        assert status == 0 and f"fracgpu {command} team-a" in out and "Exit status:" in out


def of_gpu(m, key, *arguments):
    _, out, err = m.fracgpu("status", "--json", *arguments)
    # What others left on this machine may be unreadable.
    assert m.name not in err, err
    return next(gpu for gpu in json.loads(out)["gpus"] if gpu["key"] == key)


def test_status_shows_claims_caps_and_who_is_under_none(machine):
    m = machine("2xa100-40gb")
    first, second = m.uuids()
    outsider = m.client("", None, "init device 1 retain alloc 2GiB wait")
    run = m.start("run", "--fraction", "1=0.25", "--tenant", m.tenant("half"), "--",
                  "sh", "-c", "echo ready; read x")
    assert run.stdout.readline() == "ready\n"
    one = m.client("a", "8GiB", "init device 1 retain alloc 6GiB wait")
    gpu = of_gpu(m, second)
    assert gpu["physical_bytes"] // GIB == 40 and gpu["index"] == 1 and gpu["outsiders_known"]
    assert gpu["claimed"] == 0.25 and gpu["claimed_bytes"] == 10 * GIB and gpu["capped_bytes"] == 8 * GIB
    assert gpu["used_by_tenants_bytes"] == 6 * GIB + CONTEXT
    assert gpu["used_by_driver_bytes"] >= 8 * GIB
    assert [(t["tenant"], t["claimed"], t["used_bytes"]) for t in gpu["tenants"]] == \
        [(m.tenant("a"), 0, 6 * GIB + CONTEXT), (m.tenant("half"), 0.25, None)]
    assert [(o["pid"], o["user"], o["command"], o["used_bytes"]) for o in gpu["outsiders"]] == \
        [(outsider.pid, "root", "cuda_client", 2 * GIB + CONTEXT)]
    assert of_gpu(m, first)["tenants"] == of_gpu(m, first)["outsiders"] == []
    device = json.loads(m.fracgpu("status", m.tenant("a"), "--json")[1])["tenants"][0]["devices"][0]
    process = device["processes"][0]
    assert process["pid"] == one.pid and process["used_bytes"] == 6 * GIB + CONTEXT
    tenant = next(t for t in gpu["tenants"] if t["tenant"] == m.tenant("a"))
    assert tenant["cap_bytes"] == 8 * GIB
    status, out, _ = m.fracgpu("status", m.tenant("a"), m.tenant("half"))
    assert status == 0 and all(len(line) <= 80 for line in out.splitlines()), out
    for each in (f"GPU 1  {second}\n", f"{m.tenant('half')}, claims 0.25\n", "has used nothing here yet",
                 "UNDER NO CAP", "  = 10.0 GiB claimed  - 8.0 GiB capped  . 40.0 GiB\n", "6.4 GiB of 8.0 GiB"):
        assert each in out, (each, out)
    assert "GPU 0" not in out, "of certain tenants only what they use"
    assert re.search(rf"\n +{outsider.pid} root +cuda_client +2\.4 GiB +\d\d:\d\d:\d\d\n", out), out


def test_status_marks_whom_the_driver_has_not_let_go_of(machine):
    m = machine("a100-40gb")
    subprocess.run([f"{os.path.dirname(COMMAND)}/tests/sim/simnode", "remove", m.node], check=True)
    subprocess.run([f"{os.path.dirname(COMMAND)}/tests/sim/simnode", "create", m.node, "--profile", "a100-40gb",
                    "--linger-ms", "3600000"], check=True)
    one = m.client("a", "8GiB", "init retain alloc 6GiB wait")
    one.send_signal(signal.SIGKILL)
    one.wait()
    out = m.fracgpu("status", m.tenant("a"))[1]
    assert re.search(rf"\n +{one.pid} .* dying\n", out) and "has not let go" in out, out
    gpu = of_gpu(m, m.uuids()[0])
    assert gpu["outsiders"] == [] and gpu["used_by_tenants_bytes"] == 0 and gpu["used_by_driver_bytes"] > 6 * GIB


def test_sixteen_gpus_and_two_hundred_tenants(machine):
    m = machine("16xh100-80gb")
    keys = m.uuids()
    assert len(keys) == 16
    for i in range(200):
        write_ledger(m.ledger(f"many-{i}"), ledger([(0, i, b"job")], keys[i % 16].encode()))
    _, out, err = m.fracgpu("status")
    assert m.name not in err, err
    assert sum(line.startswith("GPU ") and line.split()[-1] in keys for line in out.splitlines()) == 16
    assert sum(f"{m.tenant('many-')}" in line for line in out.splitlines()) == 200
    assert all(len(line) <= 80 for line in out.splitlines())
    # Whoever reads only the beginning: no complaint, no hang.
    for extra in ("", "trap '' PIPE; "):
        done = subprocess.run(["bash", "-c", f"{extra}{COMMAND} status | head -n 1"], env=m.environment, timeout=60,
                              capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if "/dev/shm/" not in line]
        assert done.stdout.startswith("GPU 0") and said in ([], ["fracgpu: cannot write to standard output"]), done


def test_without_permission(machine):
    m = machine("a100-40gb")
    for name in ("mine", "theirs"):
        write_ledger(m.ledger(name), ledger([(0, 7, b"job")], m.uuids()[0].encode()))
        os.chmod(m.ledger(name), 0o600 if name == "theirs" else 0o644)
    for command in ("status", "explain"):
        status, out, err = m.fracgpu(command, m.tenant("mine"), m.tenant("theirs"), user=65534, group=65534,
                                     cwd="/")
        assert status == 1 and m.tenant("mine") in out and m.tenant("theirs") not in out, out
        assert one_line(err) and m.tenant("theirs") in err and "ermission denied" in err, err


def test_in_a_container_only_its_own_tenant(machine):
    m = machine("a100-40gb")
    one = m.client("a", "8GiB", "init retain alloc 6GiB wait")
    write_ledger(m.ledger("own"), ledger([], b"GPU-other"))

    def inside(*arguments):
        done = subprocess.run(["unshare", "--uts", COMMAND, "status", *arguments], capture_output=True, text=True,
                              env={**m.environment, "FRACGPU_TENANT": m.tenant("own")}, check=False)
        assert m.name not in done.stderr, done
        return done.stdout
    assert m.tenant("a") not in inside() and m.tenant("own") in inside()
    assert m.tenant("a") in inside("--all")
    one.communicate("", timeout=60)

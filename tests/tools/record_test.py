"""`fracgpu record`, end to end on simulated machines.

What a recording says is summed up here anew, from its events as recording_dump prints them, and compared with what the
simulated node and the tenant's ledger say.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from machine import BUILD, CLIENT, GIB, HIP_PROGRAM, Machine, one_line, stop, wait_until

RANDOM = f"{BUILD}/tests/clients/random_calls"
STACKS = f"{BUILD}/tests/clients/recorded_client"
MIB = 1 << 20
ALLOCATED, RELEASED, LEVEL, REFUSED, DROPPED, CAP, ENDED, MARK = range(1, 9)
EXITED, NO_HANDLERS, BY_EXIT_CALL, BY_EXEC, BY_SIGNAL = 0, 1, 2, 3, 256
LINEAR, MANAGED, POOL, PHYSICAL, ARRAY, CHUNKS, RESERVED, GRAPH, OVERHEAD, CODE, IMPORTED, UNKNOWN = range(12)


class Recording:
    """The events of a file and the sums that follow from them."""

    def __init__(self, path):
        done = subprocess.run([f"{BUILD}/tests/tools/recording_dump", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.tables = lines.pop()
        self.events = lines

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    def taken(self, device=0):
        """What was taken of a device after each event."""
        levels, total, series = {}, 0, []
        for event in self.events:
            if event["event"] == ENDED:
                total -= sum(taken for key, taken in levels.items() if key[0] == event["process"])
                levels = {key: taken for key, taken in levels.items() if key[0] != event["process"]}
            if event["device"] == device:
                key = (event["process"], event["kind"], event["owner"], event["address"])
                if event["event"] == ALLOCATED and event["taken"]:
                    levels[key] = levels.get(key, 0) + event["taken"]
                    total += event["taken"]
                elif event["event"] == RELEASED:
                    total -= event["taken"]
                    levels[key] = levels.get(key, 0) - event["taken"]
                elif event["event"] == LEVEL:
                    key = key[:3]
                    total += event["taken"] - levels.get(key, 0)
                    levels[key] = event["taken"]
            series.append(total)
        return series

    def stack(self, number):
        modules = self.tables["modules"]
        return [f"{modules[module]['path'] if module is not None else '?'}+{offset:x}"
                for module, offset, _ in self.tables["stacks"][number]]


def node_says(m, index=0):
    shown = subprocess.run([f"{BUILD}/tests/sim/simnode", "show", m.node, "--json"], capture_output=True, text=True, check=True)
    device = json.loads(shown.stdout)["devices"][index]
    return device["used"], device["tenants"].get("none", {}).get("high_water", 0)


def ledger_says(m):
    tenants = json.loads(m.fracgpu("status", "--json")[1])["tenants"]
    return sum(device["used_bytes"] for tenant in tenants for device in tenant["devices"])


def record(m, *command, options=(), status=0):
    path = f"{m.folder}/recording"
    done, out, err = m.fracgpu("record", "--force", "--output", path, *options, "--", *command)
    assert done == status, (done, out, err)
    return Recording(path), out, err


def random_calls(families, threads, seed):
    return [RANDOM, str(seed), str(threads), "3", "150", "150", *families], {"RANDOM_CALLS_ALONE": "1"} if threads == 1 else {}


def run_random(m, families, threads, seed=7):
    """Random calls with looks at the node and the ledger whenever all stand still."""
    path = f"{m.folder}/recording"
    subprocess.run([f"{BUILD}/tests/sim/simnode", "reset", m.node], check=True)
    command, extra = random_calls(families, threads, seed)
    child = m.start("record", "--force", "--output", path, "--", *command, extra=extra)
    assert child.stdout.readline().startswith("up")
    print("go", file=child.stdin, flush=True)
    looks = []
    for line in child.stdout:
        assert line.startswith("quiet") and line.rstrip().endswith("bad="), line
        looks.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), node_says(m)[0], ledger_says(m)))
        print("go", file=child.stdin, flush=True)
    assert child.wait(60) == 0, child.stderr.read()
    return Recording(path), looks, node_says(m)[1]


def attach(m, tenant, path, *options):
    """A recorder of a tenant that runs, once the tenant's processes can find it."""
    recorder = m.start("record", "--attach", m.tenant(tenant), *options, "--output", path)
    assert "recording tenant" in recorder.stderr.readline()
    return recorder


def test_each_family_is_told_as_the_node_has_it(machine):
    # Those of which a driver's count tells the rest are charged by an estimate for a moment.
    exact = {"linear": True, "managed": True, "vmm": True, "graphs": True, "pools": False, "arrays": False, "overhead": False}
    m = machine("a100-40gb")
    for family, is_exact in exact.items():
        told, looks, mark = run_random(m, [family], 1)
        peak = max(told.taken())
        assert not told.of(DROPPED) and told.tables["damage"] == "", family
        assert peak == mark if is_exact else mark <= peak, (family, peak, mark)
        # Without what the process still had, which went with it.
        assert told.events[-1]["event"] == ENDED and told.taken()[-2] == looks[-1][2], (family, looks)
        if is_exact:
            assert looks[-1][1] == looks[-1][2], (family, looks)


def test_all_families_from_many_threads_add_up_to_the_ledger(machine):
    families = ["linear", "pools", "vmm", "managed", "arrays", "graphs", "overhead"]
    m = machine("a100-40gb")
    for seed in (3, 4):
        # Four threads can fill their ring while other load delays the recorder, which then counts the events that it lacks.
        for _ in range(5):
            told, looks, mark = run_random(m, families, 4, seed)
            if not told.of(DROPPED):
                break
        assert not told.of(DROPPED)
        assert told.taken()[-2] == looks[-1][2], (told.taken()[-2], looks)
        assert max(told.taken()) >= mark, (max(told.taken()), mark)
        assert len({event["thread"] for event in told.of(ALLOCATED)}) > 3


def test_call_stacks_are_those_of_the_c_library(machine):
    m = machine("a100-40gb")
    told, out, _ = record(m, STACKS, options=["--frames", "64"])
    wanted = [line.split() for line in out.splitlines()]
    assert len(wanted) == 11 and all(words[1] == "0" for words in wanted), out
    allocations = told.of(ALLOCATED)
    assert len(allocations) == len(wanted)
    for event, (kind, _, *frames) in zip(allocations, wanted):
        stack = told.stack(event["stack"])
        assert os.path.basename(stack[0]).startswith("recorded_client+"), (kind, stack)
        assert stack[1:] == frames, (kind, stack, frames)
    few, _, _ = record(m, STACKS, options=["--frames", "3"])
    assert [few.stack(event["stack"])[:3] for event in few.of(ALLOCATED)] == [
        told.stack(event["stack"])[:3] for event in allocations]
    # What is not there is marked.
    for event in few.of(ALLOCATED):
        *_, (module, _, name) = few.tables["stacks"][event["stack"]]
        assert module is None and "cut here" in few.tables["texts"][name] and len(few.stack(event["stack"])) == 4
    assert not any("cut here" in text for text in told.tables["texts"])
    none, _, _ = record(m, STACKS, options=["--frames", "0"])
    assert {event["stack"] for event in none.of(ALLOCATED)} == {0}


def test_stacks_are_as_deep_as_programs_of_python_make_them(machine):
    m = machine("a100-40gb")
    for depth, frames, is_cut in ((60, None, False), (110, None, False), (300, None, True), (480, 512, False), (600, 512, True)):
        options = [] if frames is None else ["--frames", str(frames)]
        told, out, _ = record(m, STACKS, "deep", str(depth), options=options)
        wanted = out.split()[2:]
        event, = told.of(ALLOCATED)
        stack = told.stack(event["stack"])
        same = min(len(wanted), len(stack) - 1, 90)
        assert stack[1:same] == wanted[:same - 1], (depth, stack, wanted)
        assert len(stack) == (frames or 128) + 1 if is_cut else depth < len(stack) < depth + 12, (depth, len(stack))
        assert any("cut here" in text for text in told.tables["texts"]) == is_cut, depth


def test_code_that_is_made_at_run_time_is_named_by_perfs_file(machine):
    m = machine("a100-40gb")
    told, out, _ = record(m, STACKS, "jit")
    os.unlink(f"/tmp/perf-{told.tables['processes'][0]['pid']}.map")
    assert out.startswith("jit 0"), out
    event, = told.of(ALLOCATED)
    names = [told.tables["texts"][name] for _, _, name in told.tables["stacks"][event["stack"]]]
    inner, outer = names.index("py::inner:/srv/train.py"), names.index("py::outer:/srv/train.py")
    assert 0 < inner < outer < len(names) - 3, names
    # And behind them the walk goes on, to the start of the program.
    assert os.path.basename(told.stack(event["stack"])[-1]).startswith("recorded_client+")


def test_a_free_that_the_driver_refuses_changes_nothing(machine):
    m = machine("a100-40gb")
    told, out, _ = record(m, CLIENT, "init", "ctxcreate", "alloc", "8MiB", "alloc", "16MiB", "free", "0", "freeptr",
                          "30000000000", "freeptr", "dead0000", "freeptr", "30000800010")
    assert out.count("rc=1") >= 2, out
    assert [event["bytes"] for event in told.of(RELEASED)] == [8 * MIB], told.of(RELEASED)
    assert len(told.of(ALLOCATED)) == 2, told.of(ALLOCATED)
    assert told.taken()[-2] == told.of(LEVEL)[0]["taken"] + 16 * MIB


def test_a_storm_with_kills(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    # A phase is a few hundred calls, and then all stand still and a line is awaited.
    one = f"{RANDOM} SEED 2 1000000 20 16 linear pools vmm"
    children = " ".join(f"(yes go | (sh -c 'echo pid $$; exec {one.replace('SEED', str(i))}')) &" for i in range(6))
    child = m.start("record", "--force", "--frames", "8", "--output", path, "--", "sh", "-c", f"{children} wait; true")
    pids = []
    while len(pids) < 6:
        line = child.stdout.readline()
        if line.startswith("pid"):
            pids.append(int(line.split()[1]))
    drain = threading.Thread(target=child.stdout.read)
    drain.start()
    for pid in pids:
        before = os.path.getsize(path)
        wait_until(lambda: os.path.getsize(path) > before + 4096, "they allocate")
        os.kill(pid, signal.SIGKILL)
    assert child.wait(60) == 0
    drain.join()
    told = Recording(path)
    assert told.tables["damage"] == "" and len(told.tables["processes"]) == 6
    assert [event["bytes"] for event in told.of(ENDED)] == [BY_SIGNAL + signal.SIGKILL] * 6, "each was killed"
    assert told.taken()[-1] == 0 and (told.of(DROPPED) or min(told.taken()) >= 0)


def test_refusals_and_caps(machine):
    m = machine("a100-40gb")
    told, _, _ = record(m, CLIENT, "init", "ctxcreate", "alloc", "64MiB", "alloc", "2GiB", options=["--memory", "1GiB"])
    refused, = told.of(REFUSED)
    context = told.of(LEVEL)[0]["taken"]
    assert refused["bytes"] == 2 * GIB and refused["cap"] == GIB and refused["reason"] == 0, refused
    assert refused["held"] == context + 64 * MIB == told.taken()[-2], (refused, context)
    assert told.tables["devices"][0]["cap"] == GIB and told.tables["devices"][0]["physical"] > 39 * GIB
    assert told.tables["texts"][refused["api"]] == "cuMemAlloc"
    # The environment's cap is kept.
    _, out, _ = m.fracgpu("record", "--force", "--output", f"{m.folder}/r", "--", CLIENT, "init", "ctxcreate", "meminfo",
                          extra={"FRACGPU_MEMORY_LIMIT": "2GiB"})
    assert f"total={2 * GIB}" in out, out


def test_a_cap_that_is_changed_is_told(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    client = m.client("changed", "1GiB", "init ctxcreate alloc 64MiB wait alloc 2MiB alloc 2GiB wait alloc 2GiB wait")

    def go_on():
        print(file=client.stdin, flush=True)
        while line := client.stdout.readline():
            if line.startswith("ready"):
                return
        raise AssertionError("the client ended")

    recorder = attach(m, "changed", path)
    go_on()
    assert m.fracgpu("limit", m.tenant("changed"), "640MiB")[0] == 0
    wait_until(lambda: len(Recording(path).of(CAP)) == 1, "the next look at the ledger tells it")
    # A refusal comes sooner than the next look, and is never told before the cap it met.
    assert m.fracgpu("limit", m.tenant("changed"), "768MiB")[0] == 0
    go_on()
    print(file=client.stdin, flush=True)
    assert recorder.wait(60) == 0
    told = [event for event in Recording(path).events if event["event"] in (CAP, REFUSED)]
    assert [(event["event"], event["cap"] // MIB) for event in told] == [
        (REFUSED, 1024), (CAP, 640), (CAP, 768), (REFUSED, 768)], told


def test_contexts_and_code_are_told_with_the_calls_that_made_them(machine):
    m = machine("a100-40gb")
    m.environment["FRACGPU_SIM_MODULE_MIB"] = "20"
    told, _, _ = record(m, CLIENT, "init", "ctxcreate", "module", "heap", "64MiB")
    marks = [(told.tables["texts"][event["api"]], event["bytes"]) for event in told.of(MARK) if event["bytes"]]
    assert [name for name, _ in marks] == ["cuCtxCreate", "cuModuleLoadData", "cuCtxSetLimit"], marks
    assert sum(taken for _, taken in marks) == told.of(LEVEL)[-1]["taken"] == told.taken()[-2], (marks, told.of(LEVEL))


def test_pools_that_have_shrunk_are_told_when_memory_is_taken(machine):
    m = machine("a100-40gb")
    told, _, _ = record(m, CLIENT, *"init ctxcreate pooled 512MiB free 0 synchronize alloc 700MiB".split())
    assert [event["taken"] // MIB for event in told.of(LEVEL) if event["kind"] == RESERVED] == [0, 512, 0], told.of(LEVEL)
    assert max(told.taken()) == node_says(m)[1], (max(told.taken()), node_says(m))


def test_processes_come_and_go(machine):
    m = machine("a100-40gb")
    script = (f"{CLIENT} init ctxcreate alloc 8MiB & {CLIENT} init ctxcreate alloc 16MiB exec init ctxcreate alloc 32MiB;"
              " wait; true")
    told, _, _ = record(m, "sh", "-c", script)
    assert len(told.tables["processes"]) == 3, told.tables["processes"]
    assert sorted(event["bytes"] for event in told.of(ALLOCATED)) == [8 * MIB, 16 * MIB, 32 * MIB]
    assert len(told.of(ENDED)) == 3 and told.taken()[-1] == 0
    # A forked child holds nothing of its parent's.
    told, _, _ = record(m, CLIENT, "init", "ctxcreate", "alloc", "8MiB", "fork", "pid")
    assert len(told.tables["processes"]) == 1


def test_a_process_ends_before_others_have_its_memory():
    with Machine("a100-40gb") as m:
        script = f"for i in 1 2 3 4 5; do {CLIENT} init ctxcreate alloc 8GiB alloc 100MiB; done"
        told, _, _ = record(m, "sh", "-c", script, options=["--memory", "12GiB"])
        assert len(told.of(ENDED)) == 5 and max(told.taken()) == node_says(m)[1] > 8 * GIB, (max(told.taken()), node_says(m))
    # A killed one says nothing; the other has been there all along, and is given the memory at once.
    for cap in ("12GiB", "30GiB"):
        with Machine("a100-40gb") as m:
            path = f"{m.folder}/recording"
            killed, other = (m.client("two", cap, "init ctxcreate wait alloc 8GiB wait free 0") for _ in range(2))
            recorder = attach(m, "two", path)

            def go_on(client):
                print(file=client.stdin, flush=True)
                while not (line := client.stdout.readline()).startswith("ready"):
                    assert line, "the client ended"
            go_on(killed)
            killed.kill()
            killed.wait(60)
            go_on(other)
            print(file=other.stdin, flush=True)
            assert other.wait(60) == 0 and recorder.wait(60) == 0
            told = Recording(path)
            assert len(told.of(ALLOCATED)) == 2
            assert 8 * GIB < max(told.taken()) <= node_says(m)[1] < 10 * GIB, (max(told.taken()), node_says(m))


def test_a_storm_of_short_processes_stays_under_its_cap(machine):
    m = machine("a100-40gb")
    one = f"for i in 1 2 3 4 5 6 7 8; do {CLIENT} init ctxcreate alloc 1500MiB >/dev/null; done"
    told, _, _ = record(m, "sh", "-c", " & ".join(f"({one})" for _ in range(6)) + "; wait", options=["--memory", "4GiB"])
    assert max(told.taken()) <= 4 * GIB and len(told.of(ENDED)) > 12, max(told.taken()) / GIB


def test_a_killed_process_leaves_what_it_did(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    child = m.start("record", "--force", "--output", path, "--", CLIENT, "init", "ctxcreate", "alloc", "8MiB", "pid", "wait")
    pid = 0
    for line in child.stdout:
        if line.startswith("pid"):
            pid = int("".join(c for c in line if c.isdigit()))
        if line.startswith("ready"):
            break
    assert pid, "the client tells its PID"
    await_allocation(m, path)
    os.kill(pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    told = Recording(path)
    assert [event["bytes"] for event in told.of(ALLOCATED)] == [8 * MIB]
    ended, = told.of(ENDED)
    assert ended["bytes"] == BY_SIGNAL + signal.SIGKILL, ended
    assert "killed by signal 9" in m.fracgpu("report", path)[1]
    # One that exits says so.
    told, _, _ = record(m, CLIENT, "init", "ctxcreate", "alloc", "8MiB")
    assert [event["bytes"] for event in told.of(ENDED)] == [0]


def await_allocation(m, path):
    """Until the recorder has seen the process."""
    wait_until(lambda: os.path.exists(path) and ": 1 allocation," in m.fracgpu("report", path)[1], "it is recorded")


def test_how_a_process_ended_is_told(machine):
    def ended(m, program, status, options=()):
        code = ("import ctypes, os, signal, sys; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0);"
                "context = ctypes.c_void_p(); cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0); address = ctypes.c_uint64();"
                "cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20)); sys.stdin.readline(); " + program)
        path = f"{m.folder}/recording"
        child = m.start("record", "--force", "--output", path, "--", *options, sys.executable, "-c", code)
        await_allocation(m, path)
        print(file=child.stdin, flush=True)
        assert child.wait(60) == status, child.stderr.read()
        event, = Recording(path).of(ENDED)
        return event["bytes"], json.loads(m.fracgpu("report", path, "--json")[1])["processes"][0]

    m = machine("a100-40gb")
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    for options in ((), ("sh", "-c", 'status=0; "$@" || status=$?; exit $status', "sh")):
        how, shown = ended(m, "pass", 0, options)
        assert (how, shown["exited"], shown["end"]) == (EXITED, True, "exited"), (how, shown)
        how, shown = ended(m, "os._exit(3)", 3, options)
        assert how == BY_EXIT_CALL or release < (6, 15) and how == NO_HANDLERS, how
        assert not shown["exited"]
        if how == BY_EXIT_CALL:
            assert shown["end"] == "ended by _exit"
        killed = 128 + signal.SIGTERM if options else -signal.SIGTERM
        how, shown = ended(m, "os.kill(os.getpid(), signal.SIGTERM)", killed, options)
        assert how == BY_SIGNAL + signal.SIGTERM or release < (6, 15) and how == NO_HANDLERS, how
        if how > BY_SIGNAL:
            assert shown["end"] == "killed by signal 15"


def test_who_becomes_another_program_has_not_ended(machine):
    code = """if True:
        import ctypes, os, sys, time
        cuda = ctypes.CDLL("libcuda.so.1")
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        cuda.cuInit(0)
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20))
        if len(sys.argv) > 1:
            os.execv(sys.argv[1], sys.argv[1:])
    """
    m = machine("a100-40gb")
    # Another program that uses the GPU, and one that is there for longer than the recorder looks for.
    for then in ([sys.executable, "-c", code], ["sleep", "0.5"]):
        then[0] = shutil.which(then[0])
        told, _, _ = record(m, sys.executable, "-c", code, *then)
        ends = [event["bytes"] for event in told.of(ENDED)]
        assert ends == [BY_EXEC, EXITED][:len(ends)], (then, ends)
        assert "became another program (exec)" in m.fracgpu("report", f"{m.folder}/recording")[1]


def test_who_cannot_be_recorded_is_named(machine):
    if os.geteuid() != 0:
        pytest.skip("only root may run something as another user")
    m = machine("a100-40gb")
    os.chmod(m.node, 0o666)
    one = f"{CLIENT} init ctxcreate alloc 8MiB"
    if subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "head", "-c1", CLIENT], check=False,
                      stdout=subprocess.DEVNULL).returncode != 0:
        pytest.skip("another user may not see this folder")
    told, _, err = record(m, "sh", "-c", f"{one}; setpriv --reuid=65534 --clear-groups {one}")
    assert len(told.tables["processes"]) == 1
    assert "; 1 process was not recorded: cuda_client (PID " in err, err
    assert "): it is of user 65534, and the recording of user 0; look at it" in err, err
    report = m.fracgpu("report", f"{m.folder}/recording")[1]
    assert report.count("was not recorded: it is of user 65534") == 1, report

    # One in a mount namespace with a /dev/shm of its own waits until it was looked for.
    path = f"{m.folder}/recording"
    inside = (f"mount -t tmpfs none /mnt && mount --bind /dev/shm /mnt && mount -t tmpfs none /dev/shm && "
              f"ln -s /mnt/{os.path.basename(m.node)} {m.node} && exec {one} wait")
    child = m.start("record", "--force", "--output", path, "--", "unshare", "-m", "sh", "-c", inside,
                    extra={"FRACGPU_SIM_NODE": m.node})
    while not child.stdout.readline().startswith("ready"):
        assert child.poll() is None, child.stderr.read()
    wait_until(lambda: "was not recorded: it has a /dev/shm of its own" in m.fracgpu("report", path)[1], "it is found")
    print(file=child.stdin, flush=True)
    assert child.wait(60) == 0
    err = child.stderr.read()
    assert "1 process was not recorded: cuda_client (PID " in err and "it has a /dev/shm of its own" in err, err


def test_a_killed_recorder_leaves_a_file_and_harms_nobody(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    child = m.start("record", "--force", "--output", path, "--", CLIENT, "init", "ctxcreate", "alloc", "8MiB", "wait",
                    "storm", "1", "7", str(64 * MIB), "meminfo")
    for line in child.stdout:
        if line.startswith("ready"):
            break
    wait_until(lambda: os.path.getsize(path) > 0 and len(Recording(path).of(ALLOCATED)) == 1, "the file has it")
    child.kill()
    print(file=child.stdin, flush=True)  # the client goes on, with nobody to take out what it tells
    rest = child.stdout.read()
    assert "meminfo rc=0" in rest, rest
    told = Recording(path)
    assert "cut off" in told.tables["damage"] or told.tables["damage"], told.tables
    assert [event["bytes"] for event in told.of(ALLOCATED)][0] == 8 * MIB


def test_what_comes_too_fast_is_counted(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    pairs = "alloc 4MiB free 0 " + "".join(f"alloc 4MiB free {i} " for i in range(1, 10_000))
    child = m.start("record", "--force", "--output", path, "--", CLIENT, "init", "ctxcreate", "wait", *pairs.split(), "wait")

    def until_ready():
        return sum(line.startswith("alloc") for line in iter(child.stdout.readline, "ready\n"))
    until_ready()
    stop(child)  # the recorder, and not what it records
    print(file=child.stdin, flush=True)
    assert until_ready() == 10_000, "nothing waits for the recorder"
    child.send_signal(signal.SIGCONT)
    print(file=child.stdin, flush=True)
    assert child.wait(60) == 0
    told = Recording(path)
    dropped = sum(event["bytes"] for event in told.of(DROPPED))
    kept = len(told.of(ALLOCATED)) + len(told.of(RELEASED))
    assert dropped > 3_000 and kept > 16_000 and dropped + kept >= 20_000, (dropped, kept)
    err = child.stderr.read()
    assert f"{dropped} more came too fast" in err, (dropped, err)
    assert told.tables["damage"] == ""


def test_sums_are_renewed_from_the_ledger_where_events_were_dropped(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    rounds = ["fill 4MiB freeall alloc 512MiB wait", "fill 4MiB freeall fill 4MiB wait", "fill 4MiB freeall fill 4MiB freeall wait"]
    child = m.start("record", "--force", "--output", path, "--", CLIENT, "init", "ctxcreate", "alloc", "1GiB", "wait",
                    *" ".join(rounds).split())

    def until_ready():
        while not (line := child.stdout.readline()).startswith("ready"):
            assert line, "the client ended"
    until_ready()
    for _ in rounds:
        drops = len(Recording(path).of(DROPPED))
        stop(child)  # the recorder: most of the releases are dropped
        print(file=child.stdin, flush=True)
        until_ready()
        child.send_signal(signal.SIGCONT)
        wait_until(lambda: len(Recording(path).of(DROPPED)) > drops, "they are counted")
        wait_until(lambda: Recording(path).taken()[-1] == ledger_says(m), "the sum is renewed")
    print(file=child.stdin, flush=True)
    assert child.wait(60) == 0
    told = Recording(path)
    assert max(told.taken()) <= node_says(m)[1], (max(told.taken()) / GIB, node_says(m)[1] / GIB)
    assert any(event["kind"] == UNKNOWN for event in told.of(LEVEL)), "the allocations that were dropped"
    need, = json.loads(m.fracgpu("advise", "--from", "--json", path)[1])["gpus"]
    assert need["needed_bytes"] <= need["taken_bytes"] <= node_says(m)[1], need


def test_a_running_tenant_can_be_recorded(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    client = m.client("busy", "8GiB", "init ctxcreate alloc 100MiB alloc 4KiB wait alloc 32MiB free 0 free 1 wait")
    recorder = attach(m, "busy", path)
    print(file=client.stdin, flush=True)
    while not client.stdout.readline().startswith("ready"):
        pass
    wait_until(lambda: os.path.exists(path) and Recording(path).of(RELEASED), "it tells")
    recorder.send_signal(signal.SIGINT)
    assert recorder.wait(60) == 0, recorder.stderr.read()
    told = Recording(path)
    assert sorted((event["bytes"], event["stack"] != 0) for event in told.of(ALLOCATED)) == [
        (32 * MIB, True), (100 * MIB, False)], "what was there before was not made by the first call that is recorded"
    assert [event["bytes"] for event in told.of(RELEASED)] == [100 * MIB]
    assert told.of(LEVEL)[0]["kind"] == OVERHEAD and told.of(LEVEL)[0]["taken"] > 0, "its context"
    # The chunk of the small allocation is known by its users.
    assert told.taken()[-1] == ledger_says(m) == told.of(LEVEL)[0]["taken"] + 32 * MIB, told.taken()
    # What was learnt stays with the tenant.
    device, = json.loads(m.fracgpu("status", "--json", m.tenant("busy"))[1])["tenants"][0]["devices"]
    assert device["needed_bytes"] == max(told.taken()), (device, told.taken())
    assert "needed 5" in m.fracgpu("status", m.tenant("busy"))[1]
    page = m.fracgpu("metrics")[1]
    assert f"fracgpu_tenant_needed_bytes{{" in page and str(device["needed_bytes"]) in page, page
    # And once more, by another one.
    recorder = attach(m, "busy", path, "--force")
    print(file=client.stdin, flush=True)
    assert recorder.wait(60) == 0, "the tenant has ended"


def test_what_a_running_program_uses_of_pools_is_needed(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/recording"
    client = m.client("pools", "8GiB", "init ctxcreate pooled 2GiB wait alloc 16MiB wait free 0 synchronize alloc 64MiB wait")
    recorder = attach(m, "pools", path)
    for released in (False, True):
        print(file=client.stdin, flush=True)
        while not (line := client.stdout.readline()).startswith("ready"):
            assert line, client.stderr.read()
        wait_until(lambda: os.path.exists(path) and Recording(path).taken()[-1:] == [ledger_says(m)], "it is told")
        pooled = [[(event["bytes"], event["stack"]) for event in Recording(path).of(kind) if event["kind"] == POOL]
                  for kind in (ALLOCATED, RELEASED)]
        # A release of memory from before is seen once the pool has given it back.
        assert pooled == [[(2 * GIB, 0)], [(2 * GIB, 0)] if released else []], pooled
        need, = json.loads(m.fracgpu("advise", "--from", "--json", path)[1])["gpus"]
        assert need["needed_bytes"] == need["taken_bytes"] == max(Recording(path).taken()) > 2 * GIB, need
    print(file=client.stdin, flush=True)
    assert client.wait(60) == 0 and recorder.wait(60) == 0
    assert "2.0 GiB" in m.fracgpu("report", path)[1].split("pools, used")[0].rpartition("\n")[2]


def test_what_a_running_program_has_of_every_family_is_told(machine):
    families = ["linear", "managed", "vmm", "graphs", "pools", "arrays", "overhead"]
    m = machine("a100-40gb")
    # Those of linear memory are what processes begin at.
    for chosen, threads in [(["linear", family], 1) for family in families] + [(families, 4)]:
        path = f"{m.folder}/recording"
        command, extra = random_calls(chosen, threads, 11)
        client = m.client("random", "20GiB", " ".join(command[1:]), extra, program=RANDOM, until="up")

        def go_on():
            print("go", file=client.stdin, flush=True)
            line = client.stdout.readline()
            assert line.startswith("quiet"), (chosen, line)

        go_on()
        recorder = attach(m, "random", path, "--force")
        for left in (2, 1, 0):
            go_on()
            says = ledger_says(m)
            # What pools and arrays have is charged by more than the driver tells until it is asked again. In the
            # end all is released.
            if left == 0 or not {"pools", "arrays"} & set(chosen):
                wait_until(lambda: Recording(path).taken()[-1:] == [says], f"{chosen} is told as the ledger has it", 20)
        print("go", file=client.stdin, flush=True)
        assert client.wait(60) == 0 and recorder.wait(60) == 0, chosen


def test_a_small_shm_makes_small_rings_and_nobody_vanishes(machine):
    def with_free(m, kib, count):
        """So many processes at once, and so much room in /dev/shm when they begin."""
        path = f"{m.folder}/recording"
        one = f"{CLIENT} init ctxcreate alloc 8MiB wait"
        child = m.start("record", "--force", "--output", path, "--", "sh", "-c",
                        f"read line; exec 3<&0; for i in $(seq {count}); do {one} <&3 & done; wait")
        wait_until(lambda: os.path.exists(path), "it begins")
        used = shutil.disk_usage("/dev/shm").used
        subprocess.run(["mount", "-o", f"remount,size={used // 1024 + kib}k", "/dev/shm"], check=True)
        try:
            print(file=child.stdin, flush=True)
            ready = 0
            while ready < count and (line := child.stdout.readline()):
                ready += line.startswith("ready")
            assert ready == count, "no program is harmed"
            left = shutil.disk_usage("/dev/shm").free
            child.stdin.close()
            assert child.wait(60) == 0
        finally:
            subprocess.run(["mount", "-o", "remount,size=50%", "/dev/shm"], check=True)
        return Recording(path), child.stderr.read(), left
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        own = sum(line.split()[4] == "/dev/shm" for line in mounts) > 1
    if os.geteuid() != 0 or not own:
        pytest.skip("it needs a /dev/shm of its own, which root may make")
    m = machine("a100-40gb")
    # A ring of each would be 16 MiB.
    told, err, left = with_free(m, 8 << 10, 16)
    assert len(told.tables["processes"]) == len(told.of(ALLOCATED)) == 16 and "not recorded" not in err, err
    assert left > 2 << 20, "what programs themselves want of it is left to them"
    told, err, _ = with_free(m, 300, 16)
    recorded = len(told.tables["processes"])
    assert 0 < recorded < 16 and len(told.of(ALLOCATED)) == recorded, recorded
    assert f"{16 - recorded} process" in err and "not recorded: cuda_client (PID " in err, err
    assert "): its ring in /dev/shm had no room" in err, err
    report = m.fracgpu("report", f"{m.folder}/recording", "--top", "99")[1]
    assert report.count("was not recorded: its ring in /dev/shm had no room") == 16 - recorded, report


def test_real_hip_is_recorded(machine):
    m = machine("mi210")
    told, out, err = record(m, HIP_PROGRAM, *"init malloc 100MiB malloc 4KiB managed 8MiB".split())
    if "malloc" not in out:
        pytest.skip("no HIP runtime here")
    asked = {(told.tables["texts"][event["api"]], event["bytes"]) for event in told.of(ALLOCATED)}
    assert {("hipMalloc", 100 * MIB), ("hipMalloc", 4096), ("hipMallocManaged", 8 * MIB)} <= asked, (asked, err)


def test_bad_usage_is_one_line(machine):
    m = machine("a100-40gb")
    def refused(*words, status=125, **more):
        done, out, err = m.fracgpu("record", *words, **more)
        assert done == status and out == "" and one_line(err), (done, out, err)
        return err
    path = f"{m.folder}/r"
    assert "behind --" in refused()
    assert "no such command" in refused("--output", path, "--", "no-such-command", status=127)
    refused("--frames", "513", "--", "true")
    refused("--memory", "lots", "--output", path, "--", "true")
    refused("--output", f"{m.folder}/none/r", "--", "true")
    refused("--output", m.folder, "--", "true")
    assert "no tenant" in refused("--attach", "nobody", "--output", path, status=1)
    refused("--attach", "x", "--output", path, "--", "true", status=1)
    with open(path, "w", encoding="ascii") as file:
        file.write("my only copy\n")
    assert "is there and is not replaced" in refused("--output", path, "--", "true")
    with open(path, encoding="ascii") as file:
        assert file.read() == "my only copy\n"
    _, _, err = m.fracgpu("record", "--output=-x.fgr", "--", CLIENT, "init", "ctxcreate", cwd=m.folder)
    command = err.rpartition("look at it with: fracgpu ")[2].split()
    assert m.fracgpu(*command, cwd=m.folder)[0] == 0, command
    # Nor is an older recording, without being asked or by a recording that is refused.
    older, _, _ = record(m, CLIENT, "init", "ctxcreate", "alloc", "8MiB")
    kept = f"{m.folder}/recording"
    assert "is there and is not replaced" in refused("--output", kept, "--", "true")
    client = m.client("nested", "1GiB", "init ctxcreate alloc 8MiB wait")
    recorder = attach(m, "nested", f"{m.folder}/other")
    assert "is being recorded already" in refused("--force", "--output", kept, "--attach", m.tenant("nested"), status=1)
    print(file=client.stdin, flush=True)
    assert client.wait(60) == 0 and recorder.wait(60) == 0
    assert Recording(kept).events == older.events

    def few_bytes():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    refused("--output", f"{m.folder}/s", "--", "true", preexec_fn=few_bytes)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("fracgpu.recording-record-")]


def test_a_full_disk_stops_the_recording_and_not_the_program(machine):
    m = machine("a100-40gb")
    done, out, err = m.fracgpu("record", "--force", "--output", "/dev/full", "--", CLIENT, "init", "ctxcreate", "meminfo")
    assert (done, "meminfo rc=0" in out) in ((0, True), (125, False)), (done, out, err)
    assert "fracgpu: " in err

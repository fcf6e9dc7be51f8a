"""`fracgpu queue`, end to end on simulated machines."""
import json
import os
import resource
import signal
import struct
import subprocess

from machine import CLAIM_BYTES, CLAIMS_AT, COMMAND, one_line, stop, wait_until


def test_all_run_and_what_failed_is_said(machine):
    m = machine("2xa100-40gb")
    jobs = f"{m.folder}/jobs"
    with open(jobs, "w", encoding="ascii") as file:
        file.write("# two queues\n\nhalf: echo half $CUDA_VISIBLE_DEVICES\nboth : echo both $CUDA_VISIBLE_DEVICES\n"
                   "half: exit 3\nnobody: echo wrong\nhalf:\nhalf: kill -TERM $$\nhalf: cat; echo last")
    status, out, err = m.fracgpu("queue", "--queue", "both=2", "--queue", "half=0.5", jobs, "--json")
    lines = [line for line in out.splitlines() if line.split(" ")[0] in ("half", "both", "last")]
    assert status == 1 and sorted(line.split()[0] for line in lines) == ["both", "half", "last"], out
    assert all(len(line.split()[1].split(",")) == (2 if line.startswith("both") else 1)
               for line in lines if line != "last")
    assert json.loads(out[out.index("{"):]) == {"done": 3, "failed": 2, "not_started": 0, "not_understood": 2}
    for part in ("failed with status 3", "ended by signal 15", "command 6 'nobody: echo wrong' names no queue",
                 "3 done, 2 failed"):
        assert part in err, (part, err)
    assert m.claims() == []


def test_null_separated_and_one_queue(machine):
    m = machine("a100-40gb")
    status, out, err = m.fracgpu("queue", "-0", "--queue", "each=0.125", input="echo 'a\nb'\0 \0each: echo c\0echo d: e")
    assert status == 0 and sorted(out.split()) == ["a", "b", "c", "d:", "e"], (out, err)


def test_as_many_at_once_as_fit_in_order_of_priority(machine):
    m = machine("a100-40gb")
    order = f"{m.folder}/order"
    agent = m.start("queue", "--queue", "first=0.5", "--queue", "second=0.5")
    for name in ("a", "b", "c", "d"):
        queue = "second" if name in "ab" else "first"
        agent.stdin.write(f"{queue}: echo {name} >>{order}; while [ ! -e {m.folder}/go-{name} ]; do sleep 0.01; done\n")
        agent.stdin.flush()
        if name == "b":
            wait_until(lambda: os.path.exists(order) and len(open(order, encoding="ascii").read().split()) == 2,
                       "two run at once")

    def begun(count):
        wait_until(lambda: len(open(order, encoding="ascii").read().split()) == count, f"{count} have begun")
        return open(order, encoding="ascii").read().split()[2:]
    agent.stdin.write("second: true\n")
    agent.stdin.close()
    # Both of the first queue before the other that waits.
    open(f"{m.folder}/go-a", "w", encoding="ascii").close()
    assert begun(3) == ["c"]
    open(f"{m.folder}/go-c", "w", encoding="ascii").close()
    assert begun(4) == ["c", "d"]
    for name in "bd":
        open(f"{m.folder}/go-{name}", "w", encoding="ascii").close()
    assert agent.wait(60) == 0


def busy_agent(m, jobs):
    """An agent with one queue, given these lines, of which the first says "one" and has begun."""
    agent = m.start("queue", "--queue", "all=1")
    agent.stdin.write(jobs)
    agent.stdin.flush()
    assert agent.stdout.readline() == "one\n"
    return agent


def test_terminate_drains_and_again_stops(machine):
    m = machine("a100-40gb")
    agent = busy_agent(m, f"echo one; while [ ! -e {m.folder}/go ]; do sleep 0.01; done; echo end\necho two\n")
    agent.send_signal(signal.SIGTERM)
    while "starting nothing more" not in agent.stderr.readline():
        pass
    assert agent.poll() is None
    open(f"{m.folder}/go", "w", encoding="ascii").close()
    out, err = agent.communicate(timeout=60)
    assert (agent.returncode, out) == (1, "end\n") and "1 done, 0 failed, 1 not started" in err, err

    for extra in (0, 1):  # a second one is passed on, a third one kills
        trap = "trap '' TERM; " if extra else ""
        agent = busy_agent(m, f"{trap}echo one; while :; do sleep 0.01; done\n")
        agent.send_signal(signal.SIGTERM)
        while "starting nothing more" not in agent.stderr.readline():
            pass
        agent.send_signal(signal.SIGINT)  # each signal counts; two of a kind at once would be one
        if extra:
            wait_until(lambda: not pending(agent.pid, signal.SIGINT), "the agent takes the second one")
            agent.send_signal(signal.SIGTERM)
        _, err = agent.communicate(timeout=60)
        assert agent.returncode == 1 and f"ended by signal {9 if extra else 15}" in err, err
    assert m.claims() == []


def pending(pid, number):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("ShdPnd:"):
                return int(line.split()[1], 16) >> (number - 1) & 1
    return 0


def test_a_killed_agent_takes_nothing_along(machine):
    m = machine("a100-40gb")
    agent = busy_agent(m, f"echo one; while [ ! -e {m.folder}/go ]; do sleep 0.01; done; touch {m.folder}/end\necho two\n")
    agent.kill()
    agent.wait()
    assert m.fracgpu("run", "--fraction", "0.125", "--", "true")[0] == 75, "what it started still holds its share"
    open(f"{m.folder}/go", "w", encoding="ascii").close()
    wait_until(lambda: os.path.exists(f"{m.folder}/end"), "the command ends by itself")
    wait_until(lambda: m.fracgpu("run", "--fraction", "1", "--", "true")[0] == 0, "its share is free")


def test_what_is_no_list_of_commands_is_refused(machine):
    m = machine("a100-40gb")
    status, out, err = m.fracgpu("queue", "--queue", "a=1", m.folder)
    assert (status, out) == (1, "") and one_line(err) and "folder" in err, (status, out, err)
    folder = os.open(m.folder, os.O_RDONLY)
    status, out, err = m.fracgpu("queue", "--queue", "a=1", stdin=folder)
    os.close(folder)
    assert (status, out) == (1, "") and one_line(err) and "folder" in err, (status, out, err)
    # Bytes that no command can have are not cut off in silence.
    status, out, err = m.fracgpu("queue", "--queue", "a=1", input="echo one\0 echo two\necho three\n")
    assert (status, out) == (1, "three\n") and "command 1" in err and "NUL" in err and "1 not understood" in err, (status, out, err)
    # Nor are lines longer than the kernel runs, also where no end of a line comes.
    status, out, err = m.fracgpu("queue", "--queue", "a=1", input="echo " + "x" * 200000 + "\necho next\n")
    assert (status, out) == (1, "next\n") and "command 1" in err and "too long" in err, (status, out, err)
    status, out, err = m.fracgpu("queue", "--queue", "a=1", "/dev/zero", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    assert status == 1 and out == "" and "too long" in err and "does not end" in err, (status, out, err)
    status, out, err = m.fracgpu("queue", "-0", "--queue", "a=1", input="x" * 200000 + "\0echo next")
    assert (status, out) == (1, "next\n") and "too long" in err, (status, out, err)


def test_its_status_is_one_that_is_documented(machine):
    m = machine("a100-40gb")
    # Nobody reads what it says, or it cannot be said.
    for stdout, wanted in ((None, 0), ("/dev/full", 1)):
        for _ in range(3):
            read_end, write_end = os.pipe()
            with open(stdout or "/dev/null", "w", encoding="ascii") as out:
                child = subprocess.Popen([COMMAND, "queue", "--queue", "a=1", "--json"], stdin=subprocess.PIPE, stdout=out,
                                         stderr=write_end, env=m.environment, restore_signals=True)
            os.close(write_end)
            os.close(read_end)
            child.communicate(f"touch {m.folder}/done\ntrue\n".encode(), timeout=60)
            assert child.returncode == wanted and os.path.exists(f"{m.folder}/done"), child.returncode
            os.unlink(f"{m.folder}/done")
    # Its commands have the signals as they were.
    status, out, err = m.fracgpu("queue", "--queue", "a=1", input="grep SigIgn /proc/self/status\n")
    assert status == 0 and int(out.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0, (status, out, err)
    for words in (("--priority", "2147483647"), ("--priority", "-2147483648"), ("--priority", "99999999999")):
        status, out, err = m.fracgpu("queue", "--queue", "a=1", "--queue", "b=1", *words, input="a: echo ran\n")
        assert (status, out) == (2, "") and one_line(err), (words, status, out, err)


def said(m):
    """When those that wait last said so, by the published layout."""
    with open(m.claim_table, "rb") as file:
        data = file.read()
    rows = [data[at:at + CLAIM_BYTES] for at in range(CLAIMS_AT, len(data), CLAIM_BYTES)]
    return [struct.unpack_from("<Q", row, 448)[0] for row in rows if struct.unpack_from("<I", row)[0] == 1]


def test_who_is_stopped_does_not_keep_what_others_could_use(machine):
    m = machine("a100-40gb")
    order = f"{m.folder}/order"

    def begun():
        return open(order, encoding="ascii").read().split() if os.path.exists(order) else []
    holder = m.start("run", "--fraction", "1", "--", "sh", "-c", "echo ready; read x")
    assert holder.stdout.readline() == "ready\n"
    first = m.start("run", "--fraction", "1", "--wait", "--priority", "9", "--", "sh", "-c", f"echo first >>{order}; read x")
    assert "waiting" in first.stderr.readline()
    agent = m.start("queue", "--queue", "q=1", "--priority", "8")
    agent.stdin.write(f"echo agent >>{order}\n")
    agent.stdin.close()
    wait_until(lambda: m.claims().count(1) == 2, "both wait")
    for stopped in (first, agent):
        stop(stopped)
    last = m.start("run", "--fraction", "1", "--wait", "--", "sh", "-c", f"echo last >>{order}; read x")
    assert "waiting" in last.stderr.readline()
    holder.communicate("\n", timeout=60)
    wait_until(lambda: begun() == ["last"], "who is awake is served")
    # They have kept their places.
    before = said(m)
    assert len(before) == 2
    for stopped in (first, agent):
        stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: not set(said(m)) & set(before), "both say that they wait")
    last.communicate("\n", timeout=60)
    wait_until(lambda: begun() == ["last", "first"], "then by priority")
    first.communicate("\n", timeout=60)
    wait_until(lambda: begun() == ["last", "first", "agent"], "then the agent")
    assert agent.wait(60) == 0
    assert m.claims() == []


def test_wrong_usage(machine):
    m = machine("a100-40gb")
    for arguments, wanted in ((["--queue", "a=0.3"], 1), (["--queue", "a=2"], 1), (["--queue", "a"], 1),
                              (["--queue", "=1"], 1), (["--queue", "a="], 1), ([], 2),
                              (["--queue", "a=1", "--queue", "a=0.5"], 1), (["--queue", "a=1", "/no/file"], 1),
                              (["--queue", "a=1", "--gpus", "7"], 1)):
        status, out, err = m.fracgpu("queue", *arguments, input="echo ran\n")
        assert (status, out) == (wanted, "") and one_line(err), (arguments, status, out, err)

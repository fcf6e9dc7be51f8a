"""queue_test.py BUILD: `fracgpu queue`, end to end on simulated machines."""
import json
import os
import signal

from machine import Machine, main, one_line, wait_until


def test_all_run_and_what_failed_is_said():
    with Machine("2xa100-40gb") as m:
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


def test_null_separated_and_one_queue():
    with Machine("a100-40gb") as m:
        status, out, err = m.fracgpu("queue", "-0", "--queue", "each=0.125", input="echo 'a\nb'\0 \0each: echo c\0echo d: e")
        assert status == 0 and sorted(out.split()) == ["a", "b", "c", "d:", "e"], (out, err)


def test_as_many_at_once_as_fit_in_order_of_priority():
    with Machine("a100-40gb") as m:
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


def test_terminate_drains_and_again_stops():
    with Machine("a100-40gb") as m:
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


def test_a_killed_agent_takes_nothing_along():
    with Machine("a100-40gb") as m:
        agent = busy_agent(m, f"echo one; while [ ! -e {m.folder}/go ]; do sleep 0.01; done; touch {m.folder}/end\necho two\n")
        agent.kill()
        agent.wait()
        assert m.fracgpu("run", "--fraction", "0.125", "--", "true")[0] == 75, "what it started still holds its share"
        open(f"{m.folder}/go", "w", encoding="ascii").close()
        wait_until(lambda: os.path.exists(f"{m.folder}/end"), "the command ends by itself")
        wait_until(lambda: m.fracgpu("run", "--fraction", "1", "--", "true")[0] == 0, "its share is free")


def test_wrong_usage():
    with Machine("a100-40gb") as m:
        for arguments, wanted in ((["--queue", "a=0.3"], 1), (["--queue", "a=2"], 1), (["--queue", "a"], 1),
                                  (["--queue", "=1"], 1), (["--queue", "a="], 1), ([], 2),
                                  (["--queue", "a=1", "--queue", "a=0.5"], 1), (["--queue", "a=1", "/no/file"], 1),
                                  (["--queue", "a=1", "--gpus", "7"], 1)):
            status, out, err = m.fracgpu("queue", *arguments, input="echo ran\n")
            assert (status, out) == (wanted, "") and one_line(err), (arguments, status, out, err)


main([value for name, value in list(globals().items()) if name.startswith("test_")])

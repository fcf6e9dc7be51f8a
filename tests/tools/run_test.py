"""`fracgpu run`, `limit` and `gc`, end to end on simulated machines."""
import json
import os
import resource
import signal
import subprocess
import time

import pytest

from machine import CLIENT, GIB, HIP_PROGRAM, LIBRARY, one_line, wait_until


def field(text, line, name):
    for each in text.splitlines():
        if each.startswith(line + " "):
            return int(dict(pair.split("=", 1) for pair in each.split() if "=" in pair)[name], 0)
    raise AssertionError(f"no '{line}' with '{name}' in: {text}")


def test_the_command_ends_as_it_would_by_itself(machine):
    m = machine("a100-40gb")
    def run(*command):
        return m.fracgpu("run", "--memory", "1GiB", "--", *command)
    assert run("sh", "-c", "echo out; echo err >&2; exit 7") == (7, "out\n", "err\n")
    assert run("sh", "-c", "kill -USR1 $$")[0] == -signal.SIGUSR1
    assert run("python3", "-c", "import sys; print(sys.argv)", "--memory", "-x")[1] == "['-c', '--memory', '-x']\n"
    status, _, err = run("no-such-command")
    assert status == 127 and one_line(err), err
    status, _, err = run("/no/such/command")
    assert status == 127 and one_line(err), err
    for path in ("/etc/passwd", "/etc"):
        status, _, err = run(path)
        assert status == 126 and one_line(err), err
    script = f"{m.folder}/script"
    with open(script, "w", encoding="ascii") as file:
        file.write("#!/no/such/interpreter\n")
    os.chmod(script, 0o755)
    assert run(script)[0] == 126
    with open(script, "w", encoding="ascii") as file:
        file.write("exit 9\n")
    assert run(script)[0] == 9, "a script without a first line is for the shell"


def test_signals_are_passed_on(machine):
    m = machine("a100-40gb")
    script = "trap 'echo caught; exit 5' TERM; trap 'echo hup' HUP; echo ready; while :; do sleep 0.01; done"
    run = m.start("run", "--memory", "1GiB", "--", "bash", "-c", script)
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGHUP)
    assert run.stdout.readline() == "hup\n"
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 5 and run.stdout.read() == "caught\n"

    # A job of its own, as a shell makes one: the kernel does not stop a job whose session nobody else is in.
    run = m.start("run", "--memory", "1GiB", "--", "sh", "-c", "echo $$; read line; echo $line", process_group=0)
    pid = int(run.stdout.readline())

    def state(process):
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    run.send_signal(signal.SIGTSTP)
    wait_until(lambda: state(pid) == "T" and state(run.pid) == "T", "both stop")
    run.send_signal(signal.SIGCONT)
    wait_until(lambda: state(pid) == "S" and state(run.pid) == "S", "both go on")
    out, _ = run.communicate("on\n", timeout=60)
    assert (run.returncode, out) == (0, "on\n")


def test_what_is_behind_the_command_is_its_own(machine):
    m = machine("a100-40gb")
    for words in (("printf", "%s ", "--memory", "-x", "--help", "--"), ("--", "printf", "%s ", "--memory", "-x", "--help", "--")):
        assert m.fracgpu("run", "--memory", "1GiB", *words) == (0, "--memory -x --help -- ", ""), words
    status, out, err = m.fracgpu("run", "--memory=1GiB", "--tenant", "x", "sh", "-c", "echo $FRACGPU_TENANT; exit 3", "--tenant")
    assert (status, out, err) == (3, "x\n", "")


def test_a_word_that_is_wrong_is_named(machine):
    m = machine("a100-40gb")
    for arguments, expected in (
            (("run", "--memry", "1GiB", "--", "true"), "run has no option --memry (did you mean --memory?)"),
            (("run", "--memory=1GiB", "--wiat=5s", "true"), "run has no option --wiat (did you mean --wait?)"),
            (("run", "--memory", "1GiB", "--zzz", "true"), "run has no option --zzz;"),
            (("statsu",), "fracgpu has no command statsu (did you mean status?)"),
            (("nothing-like-it",), "fracgpu has no command nothing-like-it;"),
            (("cdi", "genrate"), "cdi has no command genrate (did you mean generate?)"),
            (("explain", "--jsno"), "explain has no option --jsno (did you mean --json?)"),
            (("run", "--fraction", "0.5", "--wait", "5s", "--", "true"), "--wait=5s"),
            (("run", "--fraction", "0.5", "--gpus", "", "--", "true"), "--gpus: the value is empty"),
            (("run", "--fraction", "0.5", "--gpus=", "--", "true"), "--gpus: the value is empty"),
            (("run", "--memory", "", "--", "true"), "--memory: the value is empty"),
            (("run", "--memory", "1GiB", "--memory=2GiB", "--", "true"), "--memory is given twice"),
            (("run", "--memory"), "--memory needs a value behind it"),
            (("metrics", "--listen"), "--listen needs a value behind it"),
            (("run", "--memory", "1GiB", "--tenant", "", "--", "true"), "--tenant: the value is empty"),
            (("cdi", "generate", "--fraction", "2", "--output", "-"), "'2' cannot be a device of fracgpu.dev/fraction")):
        status, out, err = m.fracgpu(*arguments)
        assert status not in (0, None) and out == "" and one_line(err) and expected in err, f"{arguments}: {status} {out} {err}"


def test_wrong_usage(machine):
    m = machine("2xa100-40gb")
    for arguments in (["--fraction", "0.3"], ["--fraction", "1.25"], ["--fraction=-0.5"], ["--fraction", "nan"],
                      ["--fraction", "1e-1"], ["--fraction", "0"], ["--fraction", "0=0.5,0=0.25"],
                      ["--fraction", "0.5,0.5"], ["--fraction", "0=0.5,7=0.5"], ["--count", "3"],
                      ["--count", "4"], ["--count", "0"], ["--memory", "8"], ["--memory=-1GiB"],
                      ["--memory", "1GiB,2GiB"], ["--memory", "0=1GiB,0=2GiB"], ["--memory", "lots"],
                      ["--memory", "1GiB", "--gpus", "2"], ["--memory", "1GiB", "--gpus", "1-0"],
                      ["--memory", "1GiB", "--gpus", "GPU-x"], ["--memory", "1=1GiB", "--gpus", "0"],
                      ["--memory", "1GiB", "--fraction", "0.5"], ["--fraction", "1", "--count", "1"],
                      ["--fraction", "1", "--wait=soon"], ["--fraction", "1", "--wait=5"],
                      ["--fraction", "1", "--tenant", "a/b"], ["--fraction", "1", "--priority", "high"],
                      ["--fraction", "1", "--tenant", "x" * 64], [], ["--bogus"]):
        status, out, err = m.fracgpu("run", *arguments, "--", "echo", "ran")
        assert (status, out) == (125, "") and one_line(err), (arguments, status, out, err)
    status, _, err = m.fracgpu("run", "--memory", "1GiB")
    assert status == 125 and one_line(err)
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([f"{os.path.dirname(LIBRARY)}/fracgpu", "run", "--fraction", "1", "--dry-run"],
                              stdout=full, stderr=subprocess.PIPE, env=m.environment, text=True, check=False)
    assert done.returncode == 125 and one_line(done.stderr), done
    environment = {**m.environment, "LD_LIBRARY_PATH": ""}
    done = subprocess.run([f"{os.path.dirname(LIBRARY)}/fracgpu", "run", "--fraction", "1", "--", "true"],
                          capture_output=True, env=environment, text=True, check=False)
    if not os.path.exists("/dev/nvidia0") and not os.path.exists("/sys/class/kfd"):
        assert done.returncode == 125 and "no GPU" in done.stderr and one_line(done.stderr), done
    assert m.claims() == []


def test_caps_hold_on_the_simulated_machine(machine):
    m = machine("2xa100-40gb")
    def totals(*arguments):
        program = "init count retain total " + "device 1 retain total " * 1
        return m.fracgpu("run", *arguments, "--", CLIENT, *program.split())[1]
    out = totals("--memory", "0=1GiB,1=2GiB")
    assert [int(each.rsplit("=", 1)[1]) for each in out.splitlines() if each.startswith("total")] == \
        [GIB, 2 * GIB], out
    assert field(totals("--memory", "3GiB"), "count", "devices") == 2
    out = totals("--memory", "3GiB", "--gpus", "1")
    assert field(out, "count", "devices") == 1 and field(out, "total", "bytes") == 3 * GIB
    out = totals("--fraction", "0.25")
    assert field(out, "count", "devices") == 1 and field(out, "total", "bytes") == 10 * GIB
    assert field(totals("--count", "2"), "count", "devices") == 2
    # A program that undoes the choice gets next to nothing of the other one.
    out = m.fracgpu("run", "--fraction", "0.5", "--", "env", "-u", "CUDA_VISIBLE_DEVICES", CLIENT,
                    *"init count device 1 retain".split())[1]
    assert field(out, "count", "devices") == 2 and field(out, "retain", "rc") == 2, out
    # The sum of all its processes.
    both = f"{CLIENT} init retain alloc 6GiB wait"
    run = m.start("run", "--memory", "10GiB", "--tenant", m.tenant("sum"), "--", "sh", "-c",
                  f"exec 3<&0; {both} <&3 & {both}; wait")
    seen = ""
    while seen.count("ready") < 2:
        seen += run.stdout.readline()
    assert sorted(line.split()[2] for line in seen.splitlines() if line.startswith("alloc")) == ["rc=0", "rc=2"], seen
    assert os.path.exists(m.ledger("sum"))
    run.communicate("\n\n", timeout=60)
    assert not os.path.exists(m.ledger("sum")), "the tenant ends with its last process"


def test_one_name_has_one_cap(machine):
    m = machine("a100-40gb")
    name = m.tenant("one")
    first = m.start("run", "--fraction", "0.5", "--tenant", name, "--", "sh", "-c", "echo ready; read x")
    assert first.stdout.readline() == "ready\n"
    status, _, err = m.fracgpu("run", "--fraction", "0.25", "--tenant", name, "--", "true")
    assert status == 125 and one_line(err) and name in err, err
    second = m.start("run", "--fraction", ".50", "--tenant", name, "--", "sh", "-c", "echo ready; read x")
    assert second.stdout.readline() == "ready\n", "the same caps: part of the tenant"
    first.communicate("\n", timeout=60)
    status, _, _ = m.fracgpu("run", "--fraction", "0.75", "--", "true")
    assert status == 75, "the second still holds the share"
    second.communicate("\n", timeout=60)
    assert m.fracgpu("run", "--fraction", "0.75", "--", "true")[0] == 0
    # Those that were not started by run count too.
    extra = {"LD_PRELOAD": LIBRARY, "FRACGPU_TENANT": name, "FRACGPU_MEMORY_LIMIT": "2GiB"}
    other = subprocess.Popen([CLIENT, "init", "retain", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env={**m.environment, **extra}, text=True)
    m.children.append(other)
    while other.stdout.readline() != "ready\n":
        pass
    status, _, err = m.fracgpu("run", "--memory", "3GiB", "--tenant", name, "--", "true")
    assert status == 125 and one_line(err), err
    assert m.fracgpu("run", "--memory", "2048MiB", "--tenant", name, "--", "true") == (0, "", "")


def test_claims_pack_tight_and_never_exceed_a_gpu(machine):
    m = machine("2xa100-40gb")
    first, second = m.uuids()
    held = []

    def hold(*arguments):
        run = m.start("run", *arguments, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x")
        held.append(run)
        return run.stdout.readline().strip()
    assert hold("--fraction", "0.25") == first
    assert hold("--fraction", "0.875", "--tenant", m.tenant("big")) == second
    assert hold("--fraction", "0.125") == second, "the fullest that still fits"
    assert hold("--fraction", "0.5") == first
    status, out, _ = m.fracgpu("run", "--fraction", "0.25", "--dry-run")
    assert status == 0 and first in out and "0.25" in out and "cap 10.0 GiB" in out, out
    status, out, _ = m.fracgpu("run", "--fraction", "0.25", "--dry-run", "--json")
    plan = json.loads(out)
    assert plan["fits"] and plan["gpus"][0]["key"] == first and plan["gpus"][0]["cap_bytes"] == 10 * GIB
    assert m.claims() == [2] * 4, "a dry run leaves nothing"
    for wish in (["--fraction", "0.5"], ["--count", "1"], ["--fraction", "1=0.125"], ["--fraction", "0=0.25,1=0.125"]):
        status, out, err = m.fracgpu("run", *wish, "--", "echo", "ran")
        assert (status, out) == (75, "") and "no room now" in err and m.tenant("big") in err, (wish, err)
        status, out, _ = m.fracgpu("run", *wish, "--dry-run", "--json")
        assert status == 75 and json.loads(out) == {"fits": False, "gpus": []}
    assert hold("--fraction", "0=0.25") == first
    for run in held:
        run.communicate("\n", timeout=60)
    assert hold("--count", "2") == f"{first},{second}"


def test_a_claim_outlives_run_and_not_its_tree(machine):
    m = machine("a100-40gb")
    def full():
        return m.fracgpu("run", "--fraction", "1", "--dry-run")[0] == 75
    # The tree has the descriptor.
    run = m.start("run", "--fraction", "0.5", "--", "sh", "-c", "echo $$; read x")
    command = int(run.stdout.readline())
    run.kill()
    run.wait()
    assert full()
    os.kill(command, signal.SIGKILL)
    wait_until(lambda: not full(), "the share comes back")
    # The tree has closed it, but uses the GPU.
    run = m.start("run", "--fraction", "0.5", "--tenant", m.tenant("closed"), "--", CLIENT,
                  *"init pid retain closefrom 3 wait".split())
    lines = []
    while not lines or lines[-1] != "ready\n":
        lines.append(run.stdout.readline())
    run.kill()
    run.wait()
    assert full()
    run.stdin.close()
    wait_until(lambda: not full(), "the share comes back")
    # What the command leaves behind still counts, whatever it closed, and run says why it stays.
    run = m.start("run", "--fraction", "0.5", "--", "bash", "-c",
                  "exec 3<&0; (exec 1>&- 2>&- 1000>&-; read x <&3) & exit 3")
    assert "has ended" in run.stderr.readline()
    assert full() and run.poll() is None
    run.stdin.write("\n")
    run.stdin.close()
    assert run.wait(60) == 3 and not full()
    assert m.claims() == []


def test_waiting(machine):
    m = machine("a100-40gb")
    status, _, err = m.fracgpu("run", "--fraction", "1", "--wait=1s", "--", "true")
    assert (status, err) == (0, "")
    holder = m.start("run", "--fraction", "1", "--", "sh", "-c", "echo ready; read x")
    assert holder.stdout.readline() == "ready\n"
    began = time.monotonic()
    status, _, err = m.fracgpu("run", "--fraction", "0.5", "--wait=1s", "--", "true")
    assert status == 75 and time.monotonic() - began >= 0.9 and "still no room" in err, err

    order = f"{m.folder}/order"
    waiters = []
    for name, priority, size in (("old", 0, "1"), ("small", 0, "0.125"), ("urgent", 5, "0.75"), ("low", -1, "0.125")):
        run = m.start("run", "--fraction", size, "--wait", "--priority", str(priority), "--tenant", m.tenant(name),
                      "--", "sh", "-c", f"echo {name} >>{order}; read x")
        assert "waiting for room" in run.stderr.readline()
        waiters.append(run)

    def begun(names):
        def look():
            return os.path.exists(order) and open(order, encoding="ascii").read().split() == names
        wait_until(look, f"{names} have begun")
    assert m.fracgpu("run", "--fraction", "0.125", "--", "true")[0] == 75
    holder.communicate("\n", timeout=60)
    begun(["urgent"])
    # There is room for the small ones, and it is kept for the old big one.
    assert m.fracgpu("run", "--fraction", "0.125", "--", "true")[0] == 75
    begun(["urgent"])
    waiters[2].communicate("\n", timeout=60)
    begun(["urgent", "old"])
    waiters[0].send_signal(signal.SIGKILL)
    waiters[0].stdin.close()
    wait_until(lambda: len(open(order, encoding="ascii").read().split()) == 4, "all are served")
    waiters[1].communicate("\n", timeout=60)
    waiters[3].communicate("\n", timeout=60)
    assert m.claims() == []


def test_limit_changes_a_running_tenant(machine):
    m = machine("2xa100-40gb")
    name = m.tenant("live")
    for arguments in ([name, "1GiB"], ["no/name", "1GiB"], [name, "8"], [name, "-1GiB"]):
        status, _, err = m.fracgpu("limit", *arguments)
        assert status in (1, 2) and one_line(err), err
    run = m.start("run", "--memory", "4GiB", "--tenant", name, "--", CLIENT,
                  *"init retain alloc 2GiB wait alloc 2GiB wait alloc 1GiB total".split())
    while run.stdout.readline() != "ready\n":
        pass
    status, out, _ = m.fracgpu("limit", name, "1GiB", "--json")
    change = json.loads(out)["gpus"]
    assert status == 0 and len(change) == 1 and change[0]["cap_bytes"] == GIB and \
        change[0]["cap_before_bytes"] == 4 * GIB
    run.stdin.write("\n")
    run.stdin.flush()
    assert "rc=2" in run.stdout.readline() and run.stdout.readline() == "ready\n"
    for arguments in ([name, "1GiB", "--gpu", "1"], [name, "1GiB", "--gpu", "9"]):
        status, _, err = m.fracgpu("limit", *arguments)
        assert status == 1 and one_line(err), err
    if os.geteuid() == 0:
        status, _, err = m.fracgpu("limit", name, "2GiB", user=65534)
        assert status == 1 and one_line(err) and "belongs to root" in err, err
    status, out, _ = m.fracgpu("limit", name, "8GiB", "--gpu", m.uuids()[0])
    assert status == 0 and "cap 8.0 GiB, was 1.0 GiB" in out, out
    out, _ = run.communicate("\n", timeout=60)
    assert field(out, "alloc", "rc") == 0 and field(out, "total", "bytes") == 8 * GIB

    # Never above the share that was claimed.
    run = m.start("run", "--fraction", "0.25", "--tenant", name, "--", CLIENT, "init", "retain", "wait")
    while run.stdout.readline() != "ready\n":
        pass
    assert m.fracgpu("limit", name, "5GiB")[0] == 0
    assert m.fracgpu("limit", name, "10GiB")[0] == 0
    status, _, err = m.fracgpu("limit", name, "11GiB")
    assert status == 1 and one_line(err) and "0.25" in err, err
    run.communicate("\n", timeout=60)


def test_limit_respects_the_ceiling_of_the_image(machine):
    if os.geteuid() != 0:
        pytest.skip("only root can make a mount namespace")
    m = machine("a100-40gb")
    name = m.tenant("image")
    image = ("mount -t tmpfs none /etc && mkdir /etc/fracgpu && echo 3GiB > /etc/fracgpu/limit.conf && exec "
             f"{CLIENT} init retain wait total")
    run = m.start("run", "--memory", "2GiB", "--tenant", name, "--", "unshare", "-m", "sh", "-c", image)
    while run.stdout.readline() != "ready\n":
        pass
    assert m.fracgpu("limit", name, "1GiB")[0] == 0
    status, _, err = m.fracgpu("limit", name, "4GiB")
    assert status == 1 and one_line(err) and "ceiling of 3.0 GiB" in err, err
    assert m.fracgpu("limit", name, "3GiB")[0] == 0
    assert field(run.communicate("\n", timeout=60)[0], "total", "bytes") == 3 * GIB


def test_gc_removes_the_dead_alone(machine):
    m = machine("a100-40gb")
    def client(name, *commands):
        extra = {"LD_PRELOAD": LIBRARY, "FRACGPU_TENANT": m.tenant(name), "FRACGPU_MEMORY_LIMIT": "2GiB"}
        child = subprocess.Popen([CLIENT, "init", "retain", *commands], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, env={**m.environment, **extra}, text=True)
        m.children.append(child)
        return child
    alive = client("alive", "wait")
    while alive.stdout.readline() != "ready\n":
        pass
    client("dead").wait(60)
    assert os.path.exists(m.ledger("dead"))
    names = [m.tenant(each) for each in ("alive", "dead", "never")]
    if os.geteuid() == 0:
        status, _, err = m.fracgpu("gc", *names, user=65534)
        assert status == 1 and one_line(err) and "another user" in err and os.path.exists(m.ledger("dead")), err
    status, out, err = m.fracgpu("gc", *names, "--json")
    assert (status, err) == (0, "") and json.loads(out)["removed"] == [m.tenant("dead")], out
    assert os.path.exists(m.ledger("alive")) and not os.path.exists(m.ledger("dead"))
    assert m.fracgpu("gc", "../x")[0] == 1
    # Joining while others tidy up: nobody is refused.
    collector = subprocess.Popen(["sh", "-c", f"while :; do {os.path.dirname(LIBRARY)}/fracgpu gc {m.tenant('busy')}; done"],
                                 stdout=subprocess.DEVNULL, env=m.environment, start_new_session=True)
    try:
        for _ in range(100):
            child = client("busy", "alloc", "1GiB")
            out, _ = child.communicate(timeout=60)
            assert field(out, "alloc", "rc") == 0, out
    finally:
        os.killpg(collector.pid, signal.SIGKILL)
        collector.wait()


def test_amd_partitions_are_gpus(machine):
    m = machine("tiny-cpx")
    status, out, err = m.fracgpu("run", "--fraction", "0.5", "--gpus", "3", "--", "env")
    assert status == 0, err
    seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert seen["ROCR_VISIBLE_DEVICES"] == "3" and seen["HIP_VISIBLE_DEVICES"] == "0", "they share one UUID"
    assert "CUDA_VISIBLE_DEVICES" not in seen and ",AMD-" in seen["FRACGPU_MEMORY_LIMIT"]
    status, out, _ = m.fracgpu("run", "--count", "4", "--dry-run", "--json")
    assert status == 0 and len(json.loads(out)["gpus"]) == 4
    probe = m.fracgpu("run", "--fraction", "0.5", "--gpus", "5", "--", HIP_PROGRAM, "init", "total", "0")
    if "total" not in probe[1]:
        pytest.skip("no HIP runtime")
    assert field(probe[1], "total", "bytes") == 512 << 20, probe


def test_a_launch_on_one_vendors_gpu_sees_no_gpu_of_the_other(machine):
    m = machine("a100-40gb+mi210")
    status, out, _ = m.fracgpu("run", "--fraction", "1", "--gpus", m.uuids()[0], "--", "env")
    seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert seen["CUDA_VISIBLE_DEVICES"] == m.uuids()[0] and seen["ROCR_VISIBLE_DEVICES"] == ""
    status, _, err = m.fracgpu("run", "--fraction", "1", "--gpus", "0", "--", "true")
    assert status == 125 and one_line(err) and "by its own name" in err, err


def test_a_big_host(machine):
    m = machine("16xa100-40gb")
    runs = [m.start("run", "--fraction", "0.125", "--wait", "--tenant", m.tenant(f"t{i}"), "--", "sh", "-c",
                    "echo $CUDA_VISIBLE_DEVICES; read x") for i in range(200)]
    wait_until(lambda: sorted(m.claims()) == [1] * 72 + [2] * 128, "128 hold and 72 wait")
    status, _, err = m.fracgpu("run", "--fraction", "0.125", "--", "true")
    assert status == 75 and len(err.splitlines()) == 18 and "waiting already: 72" in err, err
    gpus = []
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    for run in runs:
        assert run.wait(60) == 0
        gpus.append(run.stdout.readline())
    assert len(set(gpus)) == 16 and m.claims() == []


def test_a_claim_table_wherever_it_is_said_to_be(machine):
    m = machine("a100-40gb")
    for path in (f"{m.folder}/claims", f"{m.folder}/{'c' * 200}"):  # on another file system than /dev/shm as a rule
        extra = {"FRACGPU_BOOK": path}
        assert m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran", extra=extra) == (0, "ran\n", ""), path
        assert os.stat(path).st_mode & 0o777 == 0o666 and not os.path.exists(m.claim_table), path
    assert m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran", extra={"FRACGPU_BOOK": "claims"}, cwd=m.folder) == (0, "ran\n", "")
    assert sorted(os.listdir(m.folder)) == sorted(["claims", "c" * 200]), "a temporary is left"
    # One that is there, and may not be written so far into.
    for limit in (0, 4096):
        status, out, err = m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran", extra={"FRACGPU_BOOK": f"{m.folder}/claims"},
                                     preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert (status, out) == (125, "") and one_line(err) and "File too large" in err, (limit, status, err)
    for path, why in ((f"{m.folder}/nowhere/claims", "No such file"), (f"{m.folder}/{'d/' * 200}c", "name too long")):
        status, out, err = m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran", extra={"FRACGPU_BOOK": path})
        assert (status, out) == (125, "") and one_line(err) and why in err, err


def test_a_hostile_claim_table(machine):
    m = machine("a100-40gb")
    def run():
        return m.fracgpu("run", "--fraction", "0.5", "--", "echo", "ran")
    for content in (b"", b"x" * 100, os.urandom(8192 + 512 * 2048)):
        with open(m.claim_table, "wb") as file:
            file.write(content)
        status, out, err = run()
        assert (status, out) == (125, "") and one_line(err), err
    os.unlink(m.claim_table)
    os.symlink("/etc/passwd", m.claim_table)
    assert run()[0] == 125
    os.unlink(m.claim_table)
    assert run()[0] == 0
    with open(m.claim_table, "rb") as file:
        good = file.read()
    for _ in range(20):
        with open(m.claim_table, "r+b") as file:
            file.seek(64)
            file.write(os.urandom(len(good) - 64))
        status, _, err = run()
        assert status in (0, 75, 125) and all(c == "\n" or " " <= c <= "~" for c in err), (status, err)

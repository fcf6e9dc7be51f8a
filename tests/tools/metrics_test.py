"""`fracgpu metrics`, its table and its dashboard, on simulated machines; Prometheus' own tool, which PROMTOOL names, checks
them too."""
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from machine import BUILD, CLIENT, GIB, HIP_PROGRAM, SHARE_CLIENT, Machine, one_line, wait_until
from made_ledger import ALLOCATIONS_IN_CELL, CELL_AT, SLOTS, live_in

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/metrics")
NEEDED_AT = 4608  # of the first device; see include/fracgpu/ledger_layout.h
PROMTOOL = os.environ.get("PROMTOOL")
SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+]+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')


def parse(text):
    """Strictly: {family: (type, help)} and {(family, labels): value}."""
    families, samples, current = {}, {}, None
    assert text.endswith("\n") and text.isascii() and "# TYPE fracgpu_process_leased_bytes" in text, text
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, told = line[7:].split(" ", 1)
            assert current not in families, f"{current} is there twice"
            families[current] = [None, told]
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == current and kind in ("gauge", "counter"), line
            families[name][0] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == current, f"not a sample of {current}: {line}"
            labels = tuple(sorted(LABEL.findall(match[2] or "")))
            assert len(dict(labels)) == len(labels) and (current, labels) not in samples, f"twice: {line}"
            samples[current, labels] = float(match[3])
    return families, samples


def lint(text):
    if PROMTOOL:
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


class Metrics:
    def __init__(self, text):
        self.families, self.samples = parse(text)
        lint(text)

    def of(self, name, **labels):
        """The values of this metric with at least these labels."""
        return [value for (family, found), value in self.samples.items()
                if family == name and labels.items() <= dict(found).items()]


def metrics(machine, *arguments, extra=None):
    status, out, err = machine.fracgpu("metrics", *arguments, extra=extra)
    assert (status, err) == (0, ""), (status, err)
    return Metrics(out)


def table():
    """METRICS.md: {name: (type, labels, help)}."""
    with open(f"{FOLDER}/METRICS.md", encoding="utf-8") as file:
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([a-z, ]*?) ?\| (.+) \|$", file.read(), re.M)
    return {name: (kind, set(filter(None, labels.split(", "))), told) for name, kind, labels, told in rows}


def until_ready(child):
    while (line := child.stdout.readline()) and line not in ("ready\n", "ready"):
        pass
    assert line, child.stderr.read()


def labels_of(told, name, tenant):
    """Of the only sample of this metric and tenant."""
    found = [labels for family, labels in told.samples if family == name and ("tenant", tenant) in labels]
    assert len(found) == 1, found
    return found[0]


def held(machine, pid):
    """What the node's own books say that the process holds on the first GPU: its contexts, and all."""
    shown = subprocess.run([f"{BUILD}/tests/sim/simnode", "show", machine.node, "--json"], capture_output=True,
                           text=True, check=True).stdout
    device = [p for p in json.loads(shown)["processes"] if p["pid"] == pid][0]["devices"][0]
    return device["context_bytes"], device["context_bytes"] + device["allocation_bytes"]


def test_what_is_told(machine):
    m = machine("2xa100-40gb+h100-80gb-mig")
    first, second, divided = m.uuids()
    name = m.tenant("t")
    program = ["init", "retain", "alloc", "512MiB", "alloc", "100GiB", "wait"]
    inside = m.start("run", "--fraction", "0.5", "--tenant", name, "--", CLIENT, *program)
    outside = subprocess.Popen([CLIENT, "init", "retain", "alloc", "256MiB", "wait"], text=True,
                               env={**m.environment, "CUDA_VISIBLE_DEVICES": first},
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    m.children.append(outside)
    until_ready(inside)
    until_ready(outside)
    waiter = m.start("run", "--count", "2", "--wait", "--tenant", m.tenant("w"), "--", "true")
    wait_until(lambda: metrics(m).of("fracgpu_launches_waiting") == [1], "a launch waits")
    # As a recorder would say it, by the published layout.
    with open(m.ledger("t"), "r+b") as file:
        file.seek(NEEDED_AT)
        file.write(struct.pack("<Q", 300 << 11))
    told = metrics(m)
    inner = int(dict(labels_of(told, "fracgpu_process_used_bytes", name))["pid"])
    contexts, used = held(m, inner)
    on = {"tenant": name, "gpu": first}
    assert told.of("fracgpu_driver_up") == [1]
    assert told.of("fracgpu_gpu_memory_bytes", gpu=second) == [40 * GIB], told.samples
    assert len(told.of("fracgpu_gpu_info", vendor="nvidia")) == 3 and told.of("fracgpu_gpu_info", index="1") == [1]
    instances = [dict(labels) for family, labels in told.samples if family == "fracgpu_mig_instance_info"]
    assert {each["parent"] for each in instances} == {divided} and len(instances) == 4, instances
    assert {each["index"]: each["profile"] for each in instances}["2:0"] == "3g.40gb", instances
    assert all(told.of("fracgpu_gpu_memory_bytes", gpu=each["gpu"])[0] > 9 * GIB for each in instances)
    assert told.of("fracgpu_tenant_cap_bytes", **on) == [20 * GIB], told.samples
    assert told.of("fracgpu_tenant_used_bytes", **on) == [used], told.samples
    assert told.of("fracgpu_tenant_peak_bytes", **on)[0] >= used
    assert told.of("fracgpu_tenant_needed_bytes", **on) == [300 << 20]
    assert told.of("fracgpu_tenant_refusals_total", reason="cap", **on) == [1]
    assert sum(told.of("fracgpu_tenant_refusals_total", tenant=name)) == 1
    assert told.of("fracgpu_tenant_claim_ratio", **on) == [0.5] and told.of("fracgpu_gpu_claimed_ratio") == [0.5]
    assert told.of("fracgpu_tenant_processes", **on, state="alive") == [1]
    who = {"command": "cuda_client", "user": "root", **on}
    assert told.of("fracgpu_process_used_bytes", **who) == [used]
    assert told.of("fracgpu_process_implicit_bytes", **who) == [contexts]
    assert told.of("fracgpu_process_leased_bytes", **who)[0] >= used
    assert told.of("fracgpu_gpu_untracked_processes", gpu=first) == [1]
    assert told.of("fracgpu_gpu_untracked_bytes", gpu=first) == [held(m, outside.pid)[1]], told.samples
    assert not metrics(m, "--no-processes").of("fracgpu_process_used_bytes", **on)

    # The table says the same: of names, types, texts and labels.
    documented = table()
    assert {n: (kind, text) for n, (kind, text) in told.families.items()} == \
           {n: (kind, text) for n, (kind, _, text) in documented.items()}
    seen = {}
    with Machine("mi300x") as amd:
        samples = [*told.samples, *metrics(amd).samples]
    for family, labels in samples:
        assert {label for label, _ in labels} == documented[family][1], (family, labels)
        seen[family] = True
    assert set(seen) == set(documented), f"not shown to be told: {set(documented) - set(seen)}"

    os.kill(inner, signal.SIGKILL)
    for child in (waiter, outside):
        child.kill()
        child.wait()
    inside.wait()
    told = metrics(m)
    assert not told.of("fracgpu_process_used_bytes", **on), "processes that are gone are not told"
    assert told.of("fracgpu_gpu_untracked_processes") == [0, 0, 0]


def allocations(machine, tenant):
    """What is told of the tenant's only process, and that it is not of another day."""
    told = metrics(machine)
    times = told.of("fracgpu_process_allocations_timestamp_seconds", tenant=machine.tenant(tenant))
    assert len(times) == 1 and abs(times[0] - time.time()) < 600, times
    return told.of("fracgpu_process_allocations", tenant=machine.tenant(tenant))[0]


def go_on(child, line="", until="ready"):
    child.stdin.write(line + "\n")
    child.stdin.flush()
    while not (answer := child.stdout.readline()).startswith(until):
        assert answer, child.stderr.read()


def test_allocations(machine):
    m = machine("a100-40gb")
    # A context; three that share a chunk, then others, of which each outgrows the lease.
    child = m.client("t", "8GiB", "init retain wait alloc 4KiB alloc 4KiB alloc 4KiB alloc 256MiB wait "
                                  "managed 256MiB pitch 256MiB 1 16 wait alloc 4KiB alloc 1MiB alloc 100GiB wait "
                                  "free 3 free 5 wait freeall wait release wait")
    assert allocations(m, "t") == 0
    go_on(child)
    assert allocations(m, "t") == 4
    go_on(child)
    assert allocations(m, "t") == 6
    go_on(child)
    assert allocations(m, "t") == 8, "a refusal tells as well"
    go_on(child)
    assert allocations(m, "t") == 6, "more than half of the memory is freed"
    go_on(child)
    assert allocations(m, "t") == 0, "all is freed"
    go_on(child)
    assert allocations(m, "t") == 0, "and the context"
    child.kill()
    child.wait()
    assert not metrics(m).of("fracgpu_process_allocations", tenant=m.tenant("t"))

    # VMM memory counts while it is mapped; what others made does not.
    maker = m.client("v", "8GiB", "export-vmm 2097152", program=SHARE_CLIENT, until="token ")
    user = m.client("v2", "8GiB", "import " + maker.lines[-1].split()[1], program=SHARE_CLIENT, until="open rc=0")
    for child in (maker, user):
        go_on(child, "look", "look rc=2")  # more than there is: a refusal
    assert allocations(m, "v") == 1 and allocations(m, "v2") == 0
    for command in ("alloc 4096", "alloc 4194304", "free"):
        go_on(maker, command, command.split()[0] + " rc=0")
    go_on(maker, "look", "look rc=2")
    assert allocations(m, "v") == 2


def test_allocations_on_amd(machine):
    m = machine("mi210")
    if m.fracgpu("run", "--memory", "1GiB", "--", HIP_PROGRAM, "count")[0] == 3:
        pytest.skip("libamdhip64 is not installed")
    child = m.client("t", "8GiB", "init malloc 64MiB wait malloc 64MiB malloc 64MiB wait freeall wait",
                     program=HIP_PROGRAM)
    first = allocations(m, "t")  # with those that the runtime made for itself
    assert first >= 1
    go_on(child)
    assert allocations(m, "t") == first + 2
    go_on(child)
    assert allocations(m, "t") == first - 1, "all is freed"


def test_amd(machine):
    with Machine("mi300x") as m:
        told = metrics(m)
        assert len(told.of("fracgpu_gpu_memory_bytes")) == 1 and told.of("fracgpu_gpu_info", vendor="amd") == [1]
    m = machine("mi300x+mi300x-cpx-nps4+mi210")
    told = metrics(m)
    whole, divided = (gpu["bus_id"] for gpu in json.loads(m.fracgpu("partition", "--json")[1])["gpus"][:2])
    info = "fracgpu_amd_partition_info"
    assert told.of(info, parent=whole, compute="SPX", memory="NPS1") == [1]
    assert told.of(info, parent=divided, compute="CPX", memory="NPS4") == [1] * 8 and len(told.of(info)) == 9


def test_a_driver_that_hangs(machine):
    m = machine("a100-40gb")
    told = metrics(m, extra={"FRACGPU_SIM_DELAY_US": "nvmlInit_v2=3000000000"})
    assert told.of("fracgpu_driver_up") == [0] and not told.of("fracgpu_gpu_info")


def test_hostile_text(machine):
    def scribbled(name, command):
        data = bytearray(os.path.getsize(m.ledger("real")))
        with open(m.ledger("real"), "rb") as file:
            data[:] = file.read()
        for at in [i for i in range(len(data)) if data.startswith(b"cuda_client\0", i)]:
            data[at:at + 16] = command
        with open(f"/dev/shm/fracgpu-{m.name}-{name}", "wb") as file:
            file.write(data)

    m = machine("a100-40gb")
    child = m.start("run", "--memory", "1GiB", "--tenant", m.tenant("real"), "--", CLIENT, "init", "retain", "wait")
    until_ready(child)
    hostile = b'a"b\\c\n{}=,#\x1b\xff\xc3 '
    scribbled("x", hostile[:16].ljust(16, b"\0"))
    with open(m.ledger("x"), "r+b") as file:
        live_in(file, *range(SLOTS))
        told = metrics(m)
        commands = {dict(labels)["command"] for (family, labels), _ in told.samples.items()
                    if family == "fracgpu_process_used_bytes" and dict(labels)["tenant"] == m.tenant("x")}
        assert commands == {'a\\"b\\\\c?{}=,#??? '}, commands
    # Names that would be the same when cleaned, or steer a terminal.
    before = metrics(m).of("fracgpu_ledgers_unreadable")[0]
    for name in ("n\nn", "n\x1bn", 'n"n', "n\\n"):
        scribbled(name, b"x".ljust(16, b"\0"))
    told = metrics(m)
    assert told.of("fracgpu_ledgers_unreadable")[0] >= before + 4, told.samples
    assert not told.of("fracgpu_tenant_used_bytes", tenant=m.tenant("n?n"))
    # Whatever the words say, they are numbers.
    for word, number in ((2**64 - 1, 2**32 - 1), (1 << 32, 0), (2**32 - 1, None), (0, None)):
        with open(m.ledger("real"), "rb") as file:
            data = bytearray(file.read())
        for slot in range(SLOTS):
            struct.pack_into("<Q", data, CELL_AT + 64 * slot + ALLOCATIONS_IN_CELL, word)
        with open(m.ledger("x"), "r+b") as file:
            file.write(data)
            live_in(file, *range(SLOTS))
            told = metrics(m).of("fracgpu_process_allocations", tenant=m.tenant("x"))
        assert told == ([] if number is None else [number]), (word, told)
    for _ in range(5):
        data = os.urandom(os.path.getsize(m.ledger("real")) - 96)
        with open(m.ledger("x"), "r+b") as file:
            file.seek(96)
            file.write(data)
        metrics(m)


def test_the_file(machine):
    m = machine("a100-40gb")
    path = f"{m.folder}/fracgpu.prom"
    old = os.umask(0o077)
    status, out, err = m.fracgpu("metrics", "--textfile", path)
    os.umask(old)
    assert (status, out, err) == (0, "", "") and os.stat(path).st_mode & 0o777 == 0o644
    with open(path, encoding="ascii") as file:
        assert Metrics(file.read()).of("fracgpu_driver_up") == [1]
        # A reader that has the old file open keeps the old one: it is replaced, not rewritten.
        before = os.fstat(file.fileno()).st_ino
        assert m.fracgpu("metrics", "--textfile", path)[0] == 0
        assert os.stat(path).st_ino != before and os.fstat(file.fileno()).st_nlink == 0
    assert os.listdir(m.folder) == ["fracgpu.prom"], os.listdir(m.folder)
    # Where it may not become so large it stays as it was, and nothing is left beside it.
    size = os.stat(path).st_size
    status, out, err = m.fracgpu("metrics", "--textfile", path,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert status == 1 and out == "" and one_line(err) and "File too large" in err, (status, out, err)
    assert os.listdir(m.folder) == ["fracgpu.prom"] and os.stat(path).st_size == size, os.listdir(m.folder)
    # Whenever it is looked at, it is there and whole.
    looks, wrong, done = [0], [], threading.Event()

    def look():
        while not done.is_set():
            try:
                with open(path, encoding="ascii") as file:
                    parse(file.read())
                looks[0] += 1
            except (OSError, AssertionError) as error:
                wrong.append(str(error)[:200])
    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(10):
        assert m.fracgpu("metrics", "--textfile", path)[0] == 0
    done.set()
    reader.join()
    assert not wrong and looks[0] > 0, wrong[:3]
    os.mkdir(f"{m.folder}/folder.prom")
    for wrong in (f"{m.folder}/no/such.prom", f"{m.folder}/other.txt", f"{m.folder}/folder.prom"):
        status, out, err = m.fracgpu("metrics", "--textfile", wrong)
        assert (status, out) == (1, "") and one_line(err), (wrong, status, err)
    assert sorted(os.listdir(m.folder)) == ["folder.prom", "fracgpu.prom"]
    for wrong in (["--bogus"], ["--textfile"], ["--textfile", ""], ["--listen", "127.0.0.1:0", "--textfile", path]):
        status, out, err = m.fracgpu("metrics", *wrong)
        assert (status, out) == (2, "") and one_line(err), (wrong, status, err)


def ask(url, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_the_server(machine):
    m = machine("a100-40gb")
    server = m.start("metrics", "--listen", "127.0.0.1:0")
    url = re.fullmatch(r"fracgpu: metrics at (http://127\.0\.0\.1:\d+/metrics)\n", server.stderr.readline())[1]
    base = url[:-len("/metrics")]
    port = int(base.rsplit(":", 1)[1])
    status, headers, text = ask(url)
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
    assert Metrics(text).of("fracgpu_driver_up") == [1] and int(headers["Content-Length"]) == len(text)
    assert ask(url, "HEAD")[0] == 200 and ask(url, "HEAD")[2] == "" and ask(url + "?x=1")[0] == 200
    assert ask(base + "/")[0] == 200 and ask(base + "/other")[0] == 404 and ask(url, "POST")[0] == 405

    def raw(data):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as each:
            each.sendall(data)
            return each.makefile("rb").readline()
    for wrong in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"\xff\0\r\n\r\n", b"GET / SPDY/3\r\n\r\n"):
        assert raw(wrong) == b"HTTP/1.1 400 Bad Request\r\n", wrong
    assert b" 400 " in raw(b"GET /" + b"x" * 16500)
    # Who says nothing, says half, or goes away takes nobody's place for ever.
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for each in idle[:10]:
        each.sendall(b"GET /metrics HT")
    for each in idle[10:15]:
        each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(url)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8 and server.poll() is None, answers
    more = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
    assert ask(url)[0] == 200, "those that said nothing are sent away after a while"
    for each in more + idle:
        each.close()
    status, out, err = m.fracgpu("metrics", "--listen", f"127.0.0.1:{port}")
    assert (status, out) == (1, "") and one_line(err) and "in use" in err, err
    server.terminate()
    assert server.wait(30) == -15
    for wrong in ("9400", "localhost:9400", "127.0.0.1", "127.0.0.1:", ":9400", "127.0.0.1:99999", "127.0.0.1:-1",
                  "[::1:9400", "127.0.0.1:x", "300.0.0.1:80"):
        status, out, err = m.fracgpu("metrics", "--listen", wrong)
        assert (status, out) == (1, "") and one_line(err), (wrong, err)


def test_the_dashboard():
    with open(f"{FOLDER}/dashboard.json", encoding="ascii") as file:
        dashboard = json.load(file)
    documented = table()
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    named = set(re.findall(r"fracgpu_\w+", " ".join(expressions + queries)))
    assert expressions and named <= set(documented), f"no such metric: {named - set(documented)}"
    for text in expressions + queries:
        for name, labels in re.findall(r"(fracgpu_\w+)\{([^}]*)\}", text):
            asked = set(re.findall(r"(\w+)=~", labels)) - {"instance"}
            assert asked <= documented[name][1], f"{name} has no label {asked - documented[name][1]}"
        for name in re.findall(r"(fracgpu_\w+)", text):
            if documented[name][0] == "counter" and text in expressions:
                assert re.search(rf"(rate|increase)\({name}", text), f"a counter by itself: {text}"
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__rate_interval", "__all"}
    assert used == variables, (used, variables)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    if PROMTOOL:
        rules = [{"record": f"panel_{i}", "expr": text.replace("$__rate_interval", "5m")}
                 for i, text in enumerate(expressions)]
        path = f"/tmp/fracgpu-rules-{os.getpid()}.yml"
        with open(path, "w", encoding="ascii") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        done = subprocess.run([PROMTOOL, "check", "rules", path], capture_output=True, text=True, check=False)
        os.unlink(path)
        assert done.returncode == 0, done.stdout + done.stderr

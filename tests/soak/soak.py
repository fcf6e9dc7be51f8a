"""soak.py BUILD [--seconds N] [--seed N] [--linger-ms N] [--report FILE]: a machine in a bad hour, and what must hold all along.

Tenants of two users run on a simulated node, whose dead may keep their memory for a while. Processes come, are stopped, go on
and are killed at random, some of them in PID namespaces; caps are raised and lowered while they run; launches claim
fractions of a GPU; /dev/shm fills up and is emptied. INVARIANTS says what must hold; the report, how often each was
looked at. The judge is the node's own accounting, the kernel, and what programs print.

Needs root, for a /dev/shm of its own. A failure names the seed; the order of events depends on the machine, too.
"""
import argparse
import ctypes
import glob
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

MIB, GIB = 1 << 20, 1 << 30
NOBODY = 65534
SHM_BYTES = 256 * MIB
STEP_S = 90  # what any one step may take, on a machine with much other work
# Between two looks at the same standing process there may be buffers of the C library and pages of the heap.
RSS_SLACK = 16 * MIB

LINE = re.compile(r"^fracgpu(\[\d+\])?: ", re.M)  # of the command, and of the library

INVARIANTS = {
    "cap": "the node's high-water mark of no tenant passes its cap, nor grows while the tenant is above a lowered one",
    "charged": "of processes at rest the ledger counts no less than the node does",
    "signals": "no process ends by a signal that was not sent, or with a status that it does not explain",
    "hangs": f"no step takes longer than {STEP_S} s: a program, a command, a phase of a long-lived process",
    "lines": "who was refused memory was told so in a line of its own",
    "output": "the library writes whole lines of printable text, and to stderr alone",
    "results": "calls succeed or are out of memory; nothing else comes back",
    "commands": "a command succeeds, or says in one line why not",
    "descriptors": "long-lived processes have as many descriptors at the end as at the beginning",
    "memory": f"long-lived processes do not grow: at most {RSS_SLACK // MIB} MiB above what the first phases needed",
    "claims": "no claim is left when the launches have ended",
    "left": "nothing is left in /dev/shm at the end, after `fracgpu gc`, but the claim table",
    "room": "when all have ended, the node has all of its memory back, and a newcomer gets its whole cap",
}


class Invariants:
    def __init__(self):
        self.checked = dict.fromkeys(INVARIANTS, 0)
        self.broken = {name: [] for name in INVARIANTS}

    def check(self, name, holds, what):
        """`what` makes the text of a failure."""
        self.checked[name] += 1
        if not holds:
            text = what()
            self.broken[name].append(text)
            print(f"BROKEN {name}: {text}", flush=True)
        return holds


class Tenant:
    """`cap` in bytes; `bound` is what the mark may reach since it was last started again."""

    def __init__(self, name, cap, user=0, device=0):
        self.name, self.cap, self.bound, self.user, self.device, self.first_cap = name, cap, cap, user, device, cap


class Client:
    """A process with its output in files. `kind`: standing, random or launch."""

    def __init__(self, process, tenant, kind, path, patience):
        self.process, self.tenant, self.kind, self.path = process, tenant, kind, path
        self.deadline = time.monotonic() + patience
        self.killed, self.stopped_at, self.waker, self.quiet, self.fds, self.rss = False, None, None, 0, [], []

    def text(self, stream):
        with open(f"{self.path}.{stream}", encoding="utf-8", errors="backslashreplace") as file:
            return file.read()

    def pids(self):
        """Of it and of what it started, the innermost last."""
        found, at = [], 0
        found.append(self.process.pid)
        while at < len(found):
            try:
                with open(f"/proc/{found[at]}/task/{found[at]}/children", encoding="ascii") as file:
                    found += [int(word) for word in file.read().split()]
            except OSError:
                pass
            at += 1
        return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def threads_stand_still(pid):
    try:
        states = [open(path, encoding="ascii").read().rsplit(") ", 1)[1][0] for path in glob.glob(f"/proc/{pid}/task/*/stat")]
    except OSError:
        return False  # one of them has just ended
    return all(state in "TtZX" for state in states)


class Soak:
    def __init__(self, build, seconds, seed, linger_ms):
        self.build, self.seconds, self.chance, self.told = build, seconds, random.Random(seed), Invariants()
        self.counts, self.clients, self.number = {}, [], 0
        self.folder = tempfile.mkdtemp(prefix="soak-")
        os.chmod(self.folder, 0o777)
        self.own_mounts()
        self.node = f"{self.folder}/memory/node"
        # Releases that come with a C library of their own run only by its loader.
        runtimes = [path for path in sorted(glob.glob(f"{build}/parts/hip-*/usr/lib/x86_64-linux-gnu/libamdhip64.so"))
                    if not os.path.exists(os.path.join(os.path.dirname(path), "libc.so.6"))]
        self.environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C", "FRACGPU_SIM_NODE": self.node,
            "LD_LIBRARY_PATH": ":".join([f"{build}/sim", *(os.path.dirname(path) for path in runtimes[-1:])])}
        self.kfd = f"{build}/sim/libsimkfd.so"
        self.simnode("create", self.node, "--profile", "a100-40gb+mi210", "--context-mib", "64", "--linger-ms", str(linger_ms))
        os.chmod(self.node, 0o666)
        self.has_hip = subprocess.run([f"{build}/tests/clients/hip_program", "init"], check=False, capture_output=True,
                                      env={**self.environment, "LD_PRELOAD": self.kfd}).returncode == 0
        standing = [Tenant("standing-root", 4 * GIB), Tenant("standing-user", 3 * GIB, NOBODY)]
        passing = [Tenant("passing-root", 2 * GIB), Tenant("passing-user", 2 * GIB, NOBODY)]
        self.hip = Tenant("passing-hip", GIB, device=1)
        self.launches = [Tenant(f"launch-{i}", 5 * GIB, user) for i, user in enumerate((0, 0, NOBODY, NOBODY))]
        self.standing, self.passing = standing, passing
        self.tenants = {each.name: each for each in [*standing, *passing, self.hip, *self.launches]}

    def own_mounts(self):
        """A /dev/shm that can be filled, and the node beside it, whose pages must not run out."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000) != 0:  # CLONE_NEWNS
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=1777,size={SHM_BYTES}", "tmpfs", "/dev/shm"], check=True)
        os.mkdir(f"{self.folder}/memory")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{self.folder}/memory"], check=True)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def simnode(self, *arguments):
        return subprocess.run([f"{self.build}/tests/sim/simnode", *arguments], check=True, timeout=STEP_S,
                              capture_output=True, text=True).stdout

    def shown(self):
        return json.loads(self.simnode("show", self.node, "--json"))

    def shown_at_rest(self):
        """None where a process was stopped while it held the simulated driver's lock."""
        try:
            done = subprocess.run([f"{self.build}/tests/sim/simnode", "show", self.node, "--json"], check=True, timeout=2,
                                  capture_output=True, text=True)
            return json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            self.count("rests in which the driver itself was held")
            return None

    def fracgpu(self, *arguments, user=0, at_rest=False):
        """Its output, or None when it failed; it says why in a line. `at_rest`: as in `shown_at_rest`."""
        try:
            done = subprocess.run([f"{self.build}/fracgpu", *arguments], capture_output=True, text=True, check=False,
                                  timeout=5 if at_rest else STEP_S, env=self.environment, user=user, group=user,
                                  extra_groups=[])
        except subprocess.TimeoutExpired:
            if at_rest:
                self.count("rests in which the driver itself was held")
                return None
            self.told.check("hangs", False, lambda: f"fracgpu {' '.join(arguments)}")
            return None
        self.told.check("hangs", True, str)
        self.told.check("commands", done.returncode == 0 or done.returncode in (1, 2, 125) and
                        re.fullmatch(r"fracgpu: [^\n]+\n", done.stderr),
                        lambda: f"fracgpu {' '.join(arguments)}: {done.returncode} {done.stderr!r}")
        return done.stdout if done.returncode == 0 else None

    # Of tenants.

    def look_at_marks(self, shown=None):
        shown = shown or self.shown()
        for device in shown["devices"]:
            for name, use in device["tenants"].items():
                tenant = self.tenants.get(name)
                if tenant is not None and tenant.device == device["index"]:
                    self.told.check("cap", use["high_water"] <= tenant.bound, lambda t=tenant, u=use: (
                        f"{t.name}: mark {u['high_water']}, used {u['used']}, cap {t.cap}, bound {t.bound}\n{self.evidence(t)}"))
        return shown

    def evidence(self, tenant):
        try:
            with open(f"{self.folder}/above-{tenant.name}.rows", encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def ledger_use(self, name, alive=False, at_rest=False):
        """Bytes that the tenant's ledger counts; 0 without one, None where it cannot be told."""
        if not os.path.exists(f"/dev/shm/fracgpu-{name}"):
            return 0
        out = self.fracgpu("status", name, "--json", at_rest=at_rest)
        if out is None:
            return None
        devices = [device for tenant in json.loads(out)["tenants"] for device in tenant["devices"]]
        return sum(p["used_bytes"] for d in devices for p in d["processes"] if p["alive"] or not alive)

    def bound_file(self, tenant):
        path = f"{self.folder}/bound-{tenant.name}"
        if not os.path.exists(path):
            self.set_bound(tenant, tenant.bound)
        return path

    def set_bound(self, tenant, bound):
        tenant.bound = bound
        descriptor = os.open(f"{self.folder}/bound-{tenant.name}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.pwrite(descriptor, struct.pack("<Q", bound), 0)
        os.close(descriptor)

    def start_marks_again(self):
        """From now on a mark reaches the cap, or what was in use above it."""
        shown = self.look_at_marks()
        for tenant in self.tenants.values():
            ledger = self.ledger_use(tenant.name) if tenant.bound > tenant.cap else None
            if ledger is not None:
                used = shown["devices"][tenant.device]["tenants"].get(tenant.name, {"used": 0})["used"]
                dead = sum(use["context_bytes"] + use["allocation_bytes"] for process in shown["processes"]
                           if process["tenant"] == tenant.name and process["lingering"] for use in process["devices"])
                self.set_bound(tenant, min(tenant.bound, max(tenant.cap, used, ledger + dead)))
        self.simnode("reset", self.node)

    def change_limit(self):
        tenant = self.chance.choice(self.standing)
        wanted = self.chance.randrange(512 * MIB, 6 * GIB, 2 * MIB)
        self.set_bound(tenant, max(tenant.bound, wanted))
        if self.fracgpu("limit", tenant.name, f"{wanted // MIB}MiB", user=tenant.user) is not None:
            self.count("limits lowered" if wanted < tenant.cap else "limits raised")
            tenant.cap = wanted
            self.start_marks_again()

    # Of processes.

    def start(self, command, tenant, kind, patience=STEP_S, preloads=(), limit=True, **more):
        self.number += 1
        path = f"{self.folder}/{self.number}"
        environment = {**self.environment, "FRACGPU_SIM_TENANT": tenant.name, "LD_PRELOAD": ":".join(preloads)}
        if limit:
            environment |= {"FRACGPU_TENANT": tenant.name, "FRACGPU_MEMORY_LIMIT": f"{tenant.first_cap // MIB}MiB",
                            "LD_PRELOAD": ":".join([f"{self.build}/libfracgpu.so", *preloads])}
        # Whoever passes the bound first writes down who had what.
        evidence = f"{self.folder}/above-{tenant.name}"
        environment["FRACGPU_SIM_WATCH"] = f"{self.bound_file(tenant)}:/dev/shm/fracgpu-{tenant.name}:{evidence}"
        with open(f"{path}.out", "wb") as out, open(f"{path}.err", "wb") as err:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, cwd=self.folder, user=tenant.user,
                                       group=tenant.user, extra_groups=[], **{"stdin": subprocess.DEVNULL, **more})
        client = Client(process, tenant, kind, path, patience)
        self.clients.append(client)
        return client

    def start_standing(self, tenant):
        families = "linear vmm pools arrays graphs overhead".split()
        self.start([f"{self.build}/tests/clients/random_calls", str(self.chance.randrange(2**31)), "2", "1000000", "150",
                    "64", *families], tenant, "standing", stdin=subprocess.PIPE, text=True)

    def storm(self):
        return [f"{self.build}/tests/clients/cuda_client", f"--threads={self.chance.randint(1, 3)}", "init", "retain",
                "storm", f"{self.chance.uniform(0.1, 4):.1f}", str(self.chance.randrange(2**31)), "300MiB"]

    def start_passing(self):
        tenant = self.chance.choice([*self.standing, *self.passing])
        command = self.storm()
        if tenant.user == 0 and self.chance.random() < 0.4:
            # unshare itself must not see that its child was stopped: some versions give up then.
            command = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", '"$@" & exec 2>/dev/null; wait $!', "sh", *command]
            self.count("processes in PID namespaces")
        self.start(command, tenant, "random")
        self.count(f"processes of {'root' if tenant.user == 0 else 'another user'}")

    def start_hip(self):
        words = []
        for _ in range(self.chance.randint(5, 60)):
            words += ["malloc", f"{self.chance.choice((1, 4, 64, 300, 700))}MiB"]
        self.start([f"{self.build}/tests/clients/hip_program", "init", *words], self.hip, "random", preloads=[self.kfd])
        self.count("HIP processes")

    def start_launch(self):
        busy = {client.tenant for client in self.clients if client.kind == "launch"}
        free = [tenant for tenant in self.launches if tenant not in busy]
        if free:
            tenant = self.chance.choice(free)
            # Memory of a launch that was killed is its tenant's until its last process has ended.
            self.start([f"{self.build}/fracgpu", "run", "--fraction=0.125", "--gpus", "0", "--wait", "--tenant", tenant.name,
                        "--", *self.storm()], tenant, "launch", limit=False)
            self.count("launches that claim a fraction")

    def a_victim(self, kinds):
        found = [each for each in self.clients if each.kind in kinds and not each.killed]
        return self.chance.choice(found) if found else None

    def kill_one(self):
        client = self.a_victim(("random", "launch"))
        if client is None:
            return
        client.killed = True
        if client.stopped_at is not None:
            client.waker.cancel()
        # The innermost is the program; what stands around it ends with it. Of a launch, all are killed.
        pids = client.pids()
        signal_all(pids if client.kind == "launch" else pids[-1:], signal.SIGKILL)
        signal_all(pids, signal.SIGCONT)
        client.stopped_at = None
        self.count("kills")

    def stop_one(self):
        client = self.a_victim(("random", "standing"))
        if client is not None and client.stopped_at is None:
            client.stopped_at = time.monotonic()
            signal_all(client.pids()[-1:], signal.SIGSTOP)
            # It may hold a lock of the simulated driver, on which this program waits too: a thread lets it go on.
            client.waker = threading.Timer(self.chance.uniform(0.1, 2), lambda: signal_all(client.pids(), signal.SIGCONT))
            client.waker.start()
            self.count("stops")

    def let_go_on(self, client):
        if client.stopped_at is not None:
            client.waker.cancel()
            client.deadline += time.monotonic() - client.stopped_at
            client.stopped_at = None
            signal_all(client.pids(), signal.SIGCONT)

    def reap(self):
        for client in list(self.clients):
            if client.process.poll() is not None:
                self.clients.remove(client)
                self.judge(client)
            elif client.stopped_at is not None:
                if not client.waker.is_alive():
                    self.let_go_on(client)
            elif not self.told.check("hangs", time.monotonic() < client.deadline,
                                     lambda c=client: f"{c.kind} {c.process.args}: {c.text('out')[-300:]}"):
                client.killed = True
                signal_all(client.pids(), signal.SIGKILL)

    def judge(self, client):
        """By how it ended and what it printed."""
        status, out, err = client.process.returncode, client.text("out"), client.text("err")
        refused = len(re.findall(r"rc=2\b", out)) + sum(map(int, re.findall(r"refused=(\d+)", out)))
        what = f"{client.kind} of {client.tenant.name}: status {status}\n{client.process.args}\n{out[-1000:]}\n{err[-1000:]}"
        # Without room for a context, or with no place at all, a program gives up by itself.
        gives_up = status in (1, 125) and (refused > 0 or LINE.search(err) is not None)
        self.told.check("signals", client.killed or status == 0 or gives_up, lambda: what)
        if not client.killed:
            self.told.check("results", all(rc in ("0", "2") for rc in re.findall(r"^(?!storm)\S.* rc=(\d+)", out, re.M)) or
                            gives_up or re.search("hsa_init refused|GPU allocations are refused", err), lambda: what)
        if refused:
            self.told.check("lines", LINE.search(err) is not None, lambda: what)
        # unshare itself complains where its child, the shell, was killed, before that had begun the program.
        lines = [line for line in err.split("\n") if not (client.killed and line.startswith("unshare: "))]
        self.told.check("output", lines[-1] == "" and all(LINE.match(line) and line.isprintable() for line in lines[:-1]) and
                        not LINE.search(out), lambda: what)
        self.count("processes that were told of a refusal" if refused else "processes that got all they asked for")
        for stream in ("out", "err"):
            os.unlink(f"{client.path}.{stream}")

    def serve_standing(self, client):
        """Lets a process that stands still go on, once it has been looked at."""
        if client.stopped_at is not None:
            return
        lines = client.text("out").split("\n")[:-1]
        if len(lines) <= client.quiet:
            return
        client.quiet = len(lines)
        if lines[-1].startswith("quiet"):
            self.told.check("results", lines[-1].endswith("bad="), lambda: f"{client.tenant.name}: {lines[-1]}")
            client.fds.append(len(os.listdir(f"/proc/{client.process.pid}/fd")))
            with open(f"/proc/{client.process.pid}/statm", encoding="ascii") as file:
                client.rss.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            self.told.check("descriptors", client.fds[-1] <= max(client.fds[:5]), lambda: f"{client.fds}")
            self.told.check("memory", client.rss[-1] <= max(client.rss[:5]) + RSS_SLACK, lambda: f"{client.rss}")
            if self.chance.random() < 0.5:
                self.look_at_rest(client.tenant)
        client.deadline = time.monotonic() + STEP_S
        client.process.stdin.write("\n")
        client.process.stdin.flush()

    def look_at_rest(self, tenant):
        """Stops all of the tenant's processes, and compares."""
        there = [each for each in self.clients if each.tenant is tenant and each.kind != "standing"]
        stopped = there
        # Who was stopped before may be let go on meanwhile.
        if any(each.killed or each.stopped_at is not None for each in there):
            return
        signal_all([pid for each in stopped for pid in each.pids()[-1:]], signal.SIGSTOP)
        begin = time.monotonic()
        # Until it has its context, what a process has is between the driver and the ledger.
        ready = all("retain rc=" in each.text("out") for each in there if each.process.poll() is None)
        while not all(threads_stand_still(pid) for each in there for pid in each.pids()[-1:]):
            if time.monotonic() > begin + 5:
                ready = False
                break
        shown = self.shown_at_rest() if ready else None
        if shown is not None:
            ledger = self.ledger_use(tenant.name, alive=True, at_rest=True)
            node = sum(use["context_bytes"] + use["allocation_bytes"] for process in shown["processes"]
                       if process["tenant"] == tenant.name and not process["lingering"] for use in process["devices"])
            if ledger is not None:
                self.told.check("charged", ledger >= node, lambda: f"{tenant.name}: ledger {ledger}, node {node}")
        for each in stopped:
            each.deadline += time.monotonic() - begin
            signal_all(each.pids(), signal.SIGCONT)

    # Of the machine.

    def fill_shm(self):
        try:
            with open("/dev/shm/filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(MIB))
        except OSError:
            self.count("times that /dev/shm was full")
        self.full_until = time.monotonic() + self.chance.uniform(0.2, 2)

    def empty_shm(self):
        if self.full_until is not None and time.monotonic() > self.full_until:
            os.unlink("/dev/shm/filler")
            self.full_until = None

    def notice_deaths(self):
        """The node counts from when somebody looks how long the memory of the dead stays; a driver, from their death."""
        while not self.over.wait(0.03):
            subprocess.run([f"{self.build}/tests/sim/simnode", "show", self.node], check=False, stdout=subprocess.DEVNULL)

    def run(self):
        self.full_until, self.over = None, threading.Event()
        threading.Thread(target=self.notice_deaths, daemon=True).start()
        for tenant in self.standing:
            self.start_standing(tenant)
        begin = time.monotonic()
        next_full = begin + 5
        while time.monotonic() < begin + self.seconds:
            events = [(self.kill_one, 0.15), (self.stop_one, 0.1), (self.change_limit, 0.05)]
            if len(self.clients) < 12:
                events += [(self.start_passing, 0.5), (self.start_launch, 0.1)]
                events += [(self.start_hip, 0.1)] if self.has_hip else []
            self.chance.choices([event for event, _ in events], [weight for _, weight in events])[0]()
            for client in self.clients:
                if client.kind == "standing" and client.process.poll() is None:
                    self.serve_standing(client)
            if self.chance.random() < 0.1:
                self.look_at_rest(self.chance.choice(self.passing))
            if self.chance.random() < 0.1:
                self.look_at_marks()
            if self.chance.random() < 0.02:
                self.fracgpu(*self.chance.choice((("status",), ("gc",), ("status", "--json"), ("explain", "standing-root"))))
            if self.full_until is None and time.monotonic() > next_full:
                self.fill_shm()
                next_full = time.monotonic() + self.chance.uniform(5, 20)
            self.empty_shm()
            self.reap()
            time.sleep(0.02)
        self.end()

    def end(self):
        self.full_until = self.full_until and 0
        self.empty_shm()
        for client in self.clients:
            self.let_go_on(client)
            client.deadline = time.monotonic() + STEP_S
            if client.kind == "standing":
                client.killed = True
                client.process.kill()
                client.process.stdin.close()
        while self.clients:
            self.reap()
            time.sleep(0.05)
        # Those whose launcher was killed end by themselves; then the driver lets go of what the dead had.
        deadline = time.monotonic() + STEP_S
        while True:
            shown = self.look_at_marks()
            used = sum(device["used"] for device in shown["devices"])
            if used == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.told.check("room", used == 0, lambda: f"{used} bytes, {shown['processes']}")
        for name in (each.name for each in self.passing):
            tenant = self.tenants[name]
            last = self.start([f"{self.build}/tests/clients/cuda_client", "init", "retain", "fill", "64MiB"], tenant, "random")
            last.process.wait(STEP_S)
            whole = (tenant.first_cap - 64 * MIB) // (64 * MIB)
            self.told.check("room", f"count={whole}" in last.text("out"), lambda n=name, c=last: f"{n}: {c.text('out')}")
            self.reap()
        self.fracgpu("gc")
        self.told.check("claims", self.fracgpu("run", "--fraction", "0=1", "--", "true") is not None,
                        lambda: self.fracgpu("status") or "")
        left = sorted(set(os.listdir("/dev/shm")) - {"fracgpu.book"})
        self.told.check("left", not left, lambda: ", ".join(left))

    def close(self):
        self.over.set()
        for client in self.clients:
            signal_all(client.pids(), signal.SIGKILL)
            client.process.wait()
        subprocess.run(["umount", "-l", f"{self.folder}/memory"], check=False)
        shutil.rmtree(self.folder)


def report_of(soak, seed, seconds):
    told = soak.told
    text = [f"# A soak of {seconds:.0f} s, seed {seed}", "", "| what must hold | looked at | broken |", "|---|---|---|"]
    text += [f"| {INVARIANTS[name]} | {told.checked[name]:,} | {len(told.broken[name])} |" for name in INVARIANTS]
    text += ["", "| what happened | times |", "|---|---|"]
    text += [f"| {what} | {times:,} |" for what, times in sorted(soak.counts.items())]
    if not soak.has_hip:
        text += ["", "Not tried: HIP, for no runtime of AMD's was found."]
    for name, failures in told.broken.items():
        for failure in failures[:5]:
            text += ["", f"**{name}**", "```", failure, "```"]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--report", help="write the report there, as Markdown; it is printed in any case")
    parser.add_argument("--linger-ms", type=int, default=0, help="how long the memory of the dead stays theirs")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: needs root, for a /dev/shm of its own")
        sys.exit(77)
    print("seed", options.seed, flush=True)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    begin = time.monotonic()
    try:
        soak = Soak(os.path.abspath(options.build), options.seconds, options.seed, options.linger_ms)
    except (OSError, subprocess.CalledProcessError) as reason:
        print("skipped: no /dev/shm of its own can be made:", reason)
        sys.exit(77)
    try:
        soak.run()
    finally:
        text = report_of(soak, options.seed, time.monotonic() - begin)
        soak.close()
        print(text)
        if options.report:
            with open(options.report, "w", encoding="utf-8") as file:
                file.write(text)
    never = [name for name, times in soak.told.checked.items() if times == 0]
    broken = [name for name, failures in soak.told.broken.items() if failures]
    sys.exit(f"FAILED: broken {broken}, never looked at {never}" if broken or never else 0)


main()

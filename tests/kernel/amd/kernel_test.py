"""AMD's own runtimes of one release, which AMD_RELEASE names, on the simulated kernel driver.

First without the library, which judges the judge; then under caps. KFD's own count decides: its peak is never above the cap,
and what a bare card of the cap's size gives is granted.
"""
import json
import os
import random
import signal
import sys
import tempfile

import pytest

from rig import BUILD, GIB, HERE, MIB, SECONDS, STACKS, Hang, Machine, Program, Stack, field, wait_until

RELEASE = os.environ.get("AMD_RELEASE", "6.4.3")
STACK = STACKS[RELEASE]
CARD = 8192  # MiB


@pytest.fixture(autouse=True, scope="module")
def needs_stack():
    STACK.command("")


def only(release):
    return pytest.mark.skipif(RELEASE != release, reason=f"for release {release}")


def hip(machine, words, cap=None, **more):
    return machine.start(STACK, "hip_program", "init " + words, cap=cap, **more)


def hsa(machine, words, cap=None, **more):
    return machine.start(STACK, "hsa_program", "init " + words, cap=cap, **more)


def client(machine, words, cap=None):
    """hip_client, which takes its calls from its input."""
    program = machine.start(STACK, "hip_client", [f"libamdhip64.so.{6 if STACK.at_least_six else 5}"], cap=cap)
    program.go_on("\n".join(["init", *words]))
    return program.finish()


def same(what, is_, must):
    assert is_ == must, f"{what}: {is_}, and not {must}"


def at_most(what, is_, most):
    assert is_ <= most, f"{what}: {is_ / MIB:.1f} MiB, {(is_ - most) / MIB:.3f} above {most / MIB:.0f}"


def results(lines):
    return [field(line, "rc") for line in lines]


def answer_to(program, words):
    """What a program that waits answers to one more command."""
    program.go_on(f"{words} wait")
    return program.until_ready()[-1]


def vram(machine, program):
    return next((p["vram"][0] for p in machine.counts()["processes"] if p["pid"] == program.pid), 0)


def ledger(machine):
    """What the library believes that the tenant holds."""
    out = machine.start(STACKS["5.2.3"], f"{BUILD}/fracgpu", "status --json judged").finish()
    return json.loads("".join(out.lines))["tenants"][0]["devices"][0]["used_bytes"]


def nothing_is_left(machine):
    counts = machine.counts()
    same("processes", counts["processes"], [])
    same("bytes of nobody", [card["used"] for card in counts["cards"]], [0] * len(counts["cards"]))


# The judge: without the library.

def test_agents_are_listed():
    with Machine(CARD, cards=2) as machine:
        outcome = hsa(machine, "agents").finish()
        agents = outcome.of("agent")
        same("kinds", [field(line, "type") for line in agents], [0, 1, 1])
        assert all("gfx90a" in line and field(line, "units") == 104 and field(line, "pool") == CARD * MIB
                   for line in agents[1:]), outcome


def test_allocations_are_counted_and_freed():
    with Machine(CARD) as machine:
        program = hip(machine, "malloc 100MiB wait freeall wait")
        program.until_ready()
        before = vram(machine, program)
        assert 100 * MIB <= before < 110 * MIB, before
        program.go_on()
        program.until_ready()
        # In between the runtime takes some pages for its own ends.
        assert before - vram(machine, program) > 99 * MIB
        same("status", program.finish().status, 0)
        nothing_is_left(machine)


def test_a_full_card_refuses():
    with Machine(1024) as machine:
        fills = hip(machine, "fill 1MiB freeall fill 1MiB").finish().of("fill")
        same("out of memory", [field(line, "rc") for line in fills], [2, 2])
        assert all(1000 <= field(line, "count") <= 1016 for line in fills), fills
        at_most("peak", machine.peak(), 1024 * MIB - 8 * MIB)


def test_streams_copy_and_wait():
    with Machine(CARD) as machine:
        calls = ["malloc 1048576", "roundtrip 0 1048576", "stream-create", "stream-event 1", "stream-malloc 1 4194304",
                 "stream-memset 1 2", "stream-sync 1", "stream-free 1 2", "stream-sync 1", "device-sync"]
        if STACK.at_least_six:
            calls.append("stream-destroy 1")  # in 5.2 it spins for ever after asynchronous calls
        outcome = client(machine, calls)
        same("results", [line.split()[0] for line in outcome.lines], ["0"] * (1 + len(calls)))
        same("bytes that came back", outcome.lines[2], "0 1")


def test_modules_take_their_memory():
    with Machine(CARD) as machine:
        before = hip(machine, "malloc 1MiB wait")
        before.until_ready()
        with_module = hip(machine, "malloc 1MiB module 64MiB wait freeall wait")
        with_module.until_ready()
        assert vram(machine, with_module) - vram(machine, before) >= 64 * MIB
        loaded = vram(machine, with_module)
        with_module.go_on()
        with_module.until_ready()
        # In between the runtime takes some pages for its own ends.
        assert loaded - vram(machine, with_module) > 63 * MIB


@only("6.4.3")
def test_virtual_memory():
    with Machine(CARD) as machine:
        program = hip(machine, "vmm 64MiB wait freeall wait")
        same("results", results(program.until_ready()), [0, 0])
        at_64 = machine.used()
        assert at_64 >= 64 * MIB
        program.go_on()
        program.until_ready()
        same("freed", at_64 - machine.used(), 64 * MIB)


def test_an_importer_keeps_what_its_exporter_frees():
    with Machine(CARD) as machine:
        exporter = hip(machine, "malloc 64MiB export 0 wait freeall wait")
        handle = exporter.until_ready()[-1].split("handle=")[1]
        importer = hip(machine, f"open {handle} wait freeall wait")
        same("opened", results(importer.until_ready()), [0, 0])

        def of_neither():
            return machine.used() - vram(machine, exporter) - vram(machine, importer)
        same("counted for its exporter", of_neither(), 0)
        exporter.go_on()
        exporter.until_ready()
        same("while it is mapped elsewhere", of_neither(), 64 * MIB)
        importer.go_on()
        importer.until_ready()
        same("after both have let go", of_neither(), 0)


def test_two_processes_share_a_card():
    with Machine(1024) as machine:
        first = hip(machine, "malloc 600MiB wait")
        same("first", results(first.until_ready()), [0, 0])
        same("second", results(hip(machine, "malloc 600MiB malloc 300MiB").finish().lines), [0, 2, 0])


def test_the_memory_of_the_killed_is_free():
    with Machine(1024) as machine:
        for signal_number in (signal.SIGKILL, signal.SIGKILL):
            program = hip(machine, "malloc 900MiB wait")
            same("allocated", results(program.until_ready()), [0, 0])
            program.process.send_signal(signal_number)
            program.process.wait(30)
            nothing_is_left(machine)


def test_kills_at_any_moment_leave_true_books():
    randomly = random.Random(39)
    with Machine(CARD) as machine:
        for _ in range(12):
            program = hip(machine, " ".join(["malloc 1MiB malloc 20MiB free 0 freeall"] * 2000))
            for _ in range(randomly.randrange(1, 200)):
                program.line()
            program.kill()
        nothing_is_left(machine)
        same("the next", results(hip(machine, "malloc 8000MiB").finish().lines), [0, 0])


def test_hostile_ioctls():
    with Machine(1024) as machine:
        machine.takes_unknown_ioctls = True
        for seed in range(3):
            outcome = machine.run(STACK, sys.executable, ["-B", f"{HERE}/hostile.py", str(seed), "3000"])
            same("status", (outcome.status, outcome.errors.count("Traceback")), (0, 0))
            assert field(outcome.lines[-1], "refused") > 3000, outcome.lines
            assert "(0x" in outcome.errors and "bytes) is not simulated" in outcome.errors, outcome.errors[-500:]
        nothing_is_left(machine)
        at_most("peak", machine.peak(), GIB)
        same("a program after them", results(hip(machine, "malloc 900MiB").finish().lines), [0, 0])


def test_what_hangs_is_ended_and_named():
    with Machine(CARD) as machine:
        program = hip(machine, "malloc 1MiB wait")
        program.until_ready()
        try:
            program.line(seconds=0.2)
        except Hang as told:
            assert f"process {program.pid} waited last for event" in str(told), told
        else:
            raise AssertionError("it did not end")
        nothing_is_left(machine)


@only("5.2.3")  # it takes 10 s, and no release matters to it
def test_a_half_dead_kernel_ends_its_programs():
    with Machine(CARD) as machine:
        program = hip(machine, "malloc 1MiB wait malloc 64MiB", extra={"SIMULATED_KFD_LOCK_SECONDS": "2"})
        program.until_ready()
        holder = machine.hold()
        program.go_on()
        outcome = program.finish()
        same("status", outcome.status, -signal.SIGABRT)
        assert f"process {holder.pid} has locked the accounting for 2 s" in outcome.errors, outcome
        holder.kill()
        holder.wait(30)
        nothing_is_left(machine)


# Under a cap. What a bare card of that size gives is what must be granted.

CAP = 512
LARGE = CAP * MIB
KEPT = 8  # MiB of a card that KFD keeps for page tables
BARE = CAP + KEPT  # programs can have CAP of it
AT_START = 0 if STACK.at_least_six else 2 * MIB  # what HIP takes when it starts


def compare(scene, cap=CAP):
    """What `scene(machine, cap)` returns under a cap, and without the library on a card of that size."""
    returned = []
    for card, limit in ((cap + KEPT, None), (CARD, f"{cap}MiB")):
        with Machine(card) as machine:
            returned.append(scene(machine, limit))
            at_most("peak", machine.peak(), cap * MIB)
    bare, capped = returned
    return capped, bare


def at_least_as_bare(scene):
    granted, bare = compare(scene)
    assert granted >= bare, f"{granted} granted, and {bare} by a card of that size"


def same_as_bare(start, words, cap=CAP):
    """A program's answers, which must be the same on both. The last is its status if it failed."""
    def scene(machine, limit):
        outcome = start(machine, words, cap=limit).finish()
        failure = [] if outcome.status == 0 else [f"status {outcome.status}"]
        return [line.split(" ptr=")[0] for line in outcome.lines] + failure
    capped, bare = compare(scene, cap)
    same("answers under a cap, and on a card of that size", capped, bare)
    return bare


def fill(way, card, cap=None):
    """How many were granted, and the peak by KFD."""
    with Machine(card) as machine:
        outcome = hip(machine, f"fillwith {way}", cap=cap).finish()
        same(f"status of {way} ({outcome})", outcome.status, 0)
        nothing_is_left(machine)
        return field(outcome.of("fillwith")[-1], "count"), machine.peak()


# Release 5.2 has no fine-grained memory on this card.
@pytest.mark.parametrize("way", [
    "malloc 1MiB", "malloc 3MiB", "malloc 100KiB", "malloc 64MiB", "async 1MiB", "async 24MiB", "module 1MiB", "module 24MiB",
    *(("flags 3MiB", "vmm 2MiB", "vmm 24MiB") if STACK.at_least_six else ())])
def test_fill_with(way):
    bare, _ = fill(way, BARE)
    granted, peak = fill(way, CARD, cap=f"{CAP}MiB")
    at_most(f"peak of {way}", peak, LARGE)
    assert granted >= bare, f"{way}: {granted} granted, and {bare} by a card of that size"


# Each card has a cap of its own.
@pytest.mark.parametrize("way", ["malloc 1MiB", "malloc 100KiB", "async 1MiB", *(("vmm 2MiB",) if STACK.at_least_six else ())])
def test_fill_of_two_cards(way):
    words = f"device 1 fillwith {way} device 0 fillwith {way}"
    answers = []
    for card, cap in ((BARE, None), (CARD, f"{CAP}MiB")):
        with Machine(card, cards=2) as machine:
            outcome = hip(machine, words, cap=cap).finish()
            same(f"status of {outcome}", outcome.status, 0)
            answers.append([field(line, "count") for line in outcome.of("fillwith")])
            peaks = [machine.peak(number) for number in range(2)]
            nothing_is_left(machine)
    for number, peak in enumerate(peaks):
        at_most(f"peak of card {number}", peak, LARGE)
        assert peak > LARGE - 32 * MIB, f"card {number} was not filled: {peak / MIB} MiB"
    bare, capped = answers
    assert all(here >= there for here, there in zip(capped, bare)), f"{capped} granted, and {bare} by cards of that size"


def test_two_cards_with_two_caps():
    with Machine(CARD, cards=2) as machine:
        outcome = hip(machine, "device 1 total 1 fill 1MiB device 0 total 0 fill 1MiB", cap=f"0={CAP}MiB,1={CAP // 2}MiB").finish()
        same("sizes", [field(line, "bytes") for line in outcome.of("total")], [LARGE // 2, LARGE])
        for number, cap in enumerate((LARGE, LARGE // 2)):
            at_most(f"peak of card {number}", machine.peak(number), cap)
            assert machine.peak(number) > cap - 32 * MIB, f"card {number} was not filled"


def test_fill_with_a_mix():
    # The frees leave holes in the middle of blocks.
    randomly = random.Random(1)
    sizes = ["4KiB", "100KiB", "1MiB", "1500KiB", "3MiB", "17MiB"]
    words = " ".join([*(f"malloc {size}" for size in randomly.choices(sizes, k=300)),
                      *(f"free {number}" for number in randomly.sample(range(150), 50)),
                      *(f"malloc {size}" for size in randomly.choices(sizes[:4], k=400))])
    granted = []
    for card, cap in ((BARE, None), (CARD, f"{CAP}MiB")):
        with Machine(card) as machine:
            outcome = hip(machine, words, cap=cap).finish()
            granted.append(sum(int(line.split()[1]) for line in outcome.of("malloc") if "rc=0" in line))
            at_most("peak", machine.peak(), LARGE)
            nothing_is_left(machine)
    assert granted[1] >= granted[0], f"{granted[1] / MIB:.1f} MiB granted, and {granted[0] / MIB:.1f} by a card of that size"


def test_fill_with_managed_memory():
    # It is the host's until a kernel touches it, so that a bare card gives more; the cap counts it.
    with Machine(CARD) as machine:
        outcome = hip(machine, "fillwith managed 1MiB", cap=f"{CAP}MiB").finish()
        same("granted", field(outcome.of("fillwith")[0], "count") * MIB, LARGE - AT_START)
        same("peak", machine.peak(), AT_START)


# A prefetch is not refused. What it moves is charged, and is not given to others.
def test_prefetched_memory_is_charged():
    with Machine(CARD) as machine:
        program = hsa(machine, "prefetch 200MiB prefetch 200MiB wait alloc 1MiB alloc 90MiB alloc 30MiB wait", cap=f"{CAP}MiB")
        program.until_ready()
        machine.wait_for_use(400 * MIB)
        program.go_on()
        same("results", results(program.until_ready()), [0, 0, 4104])
        same("the ledger", ledger(machine), machine.used())
        at_most("peak", machine.peak(), LARGE)


def test_fill_after_an_import():
    def scene(machine, cap):
        exporter = hip(machine, "malloc 200MiB export 0 wait", cap=cap)
        handle = exporter.until_ready()[-1].split("handle=")[1]
        importer = hip(machine, f"open {handle} fill 1MiB wait", cap=cap)
        return field(importer.until_ready()[-1], "count")
    at_least_as_bare(scene)


def test_two_processes_of_a_tenant_fill():
    def scene(machine, cap):
        both = [hip(machine, "wait fill 1MiB wait", cap=cap) for _ in range(2)]
        for program in both:
            program.until_ready()
        for program in both:
            program.go_on()
        return sum(field(program.until_ready()[-1], "count") for program in both)
    at_least_as_bare(scene)


def test_the_cap_is_free_after_a_kill():
    with Machine(CARD) as machine:
        for _ in range(3):
            program = hip(machine, "malloc 350MiB wait", cap=f"{CAP}MiB")
            same("the next", results(program.until_ready()), [0, 0])
            program.kill()
            nothing_is_left(machine)
        at_most("peak", machine.peak(), LARGE)


# What the runtime takes for itself. The comments say what ROCr does; see its public source, and README.md.

# ROCr makes a queue for its own copies when the first code is made ready, or by the first fill: with a save area and,
# since 6, 140 MiB of scratch.
FULL = " ".join(["alloc 20MiB"] * 26 + ["alloc 1MiB"] * 20)


@pytest.mark.parametrize("start, words, result", [
    pytest.param(hsa, f"{FULL} fillmemory 0", 4104, id="the runtimes own queue"),
    pytest.param(hsa, f"{FULL} code 1MiB", 4104, id="the first code"),
    pytest.param(hsa, "alloc 508MiB fillmemory 0", 0, id="the runtimes own queue with little room"),
    pytest.param(hsa, "alloc 508MiB code 1MiB", 0, id="the first code with little room"),
    pytest.param(hsa, "alloc 448MiB fillmemory 0", 0, id="the runtimes own queue with room for scratch"),
    pytest.param(hsa, "alloc 448MiB code 1MiB", 0, id="the first code with room for scratch"),
    pytest.param(hip, "fill 1MiB free 0 free 1 free 2 free 3 module 1MiB", 0, id="the first module")])
def test_a_full_cap_holds_with(start, words, result):
    same("the last result", results(same_as_bare(start, words)[-1:]), [result])


def test_the_runtimes_own_queue_beside_another_process():
    with Machine(CARD) as machine:
        first = hsa(machine, "alloc 4MiB wait fillmemory 0 wait", cap="1GiB")
        first.until_ready()
        second = hip(machine, "fill 1MiB wait", cap="1GiB")
        second.until_ready()
        first.go_on()
        first.until_ready()
        at_most("peak of both", machine.peak(), GIB)


TRACE = {"SIMULATED_KFD_TRACE": "1"}


def test_a_refused_queue_leaves_nothing():
    with Machine(CARD) as machine:
        program = hsa(machine, "alloc 510MiB alloc 2MiB wait queue wait free 0 wait queue wait", cap=f"{CAP}MiB", extra=TRACE)
        same("results", results(program.until_ready()), [0] * 3)
        before = machine.used()
        same("the cap is full", before, LARGE)
        program.go_on()
        same("a queue", results(program.until_ready()), [4104])
        same("queues that KFD was asked for", machine.errors(program).count("AMDKFD_IOC_CREATE_QUEUE"), 0)
        same("KFD's count", machine.used(), before)
        same("the ledger", ledger(machine), before)
        program.go_on()
        program.until_ready()
        program.go_on()
        same("a queue, with room", results(program.until_ready()), [0])
        assert machine.errors(program).count("AMDKFD_IOC_CREATE_QUEUE: 0") > 0
        at_most("peak", machine.peak(), LARGE)


# libhsakmt unmaps the save area of a queue that KFD refuses, or that has ended.
def test_a_save_area_is_given_back_when_it_is_unmapped():
    for calls, refused in (("queue wait destroy 1 wait", ""), ("queue wait", "AMDKFD_IOC_CREATE_QUEUE")):
        with Machine(CARD) as machine:
            program = hsa(machine, f"alloc 100MiB wait {calls}", cap="1GiB", extra={"SIMULATED_KFD_REFUSES": refused})
            for _ in range(calls.count("wait") + 1):
                lines = program.until_ready()
                same(f"the ledger after {lines}", ledger(machine), machine.used())
                program.go_on()


# A filter of system calls may keep the library from standing between the runtime and KFD.
def test_queues_stay_within_the_cap_where_the_kernel_driver_cannot_be_watched():
    extra = {"SIMULATED_KFD_REFUSES": "mprotect"}
    with Machine(CARD) as machine:
        outcome = hsa(machine, "alloc 400MiB alloc 40MiB queue queue", cap=f"{CAP}MiB", extra=extra | TRACE).finish()
        at_most("peak", machine.peak(), LARGE)
        same("results", results(outcome.lines), [0, 0, 0, 4104, 4104])
        same("queues that KFD was asked for", outcome.errors.count("AMDKFD_IOC_CREATE_QUEUE"), 0)
        same("lines about it", outcome.errors.count("calls to the kernel driver are not watched"), 1)
    with Machine(CARD) as machine:
        same("results", results(hsa(machine, "alloc 40MiB queue queue", cap=f"{CAP}MiB", extra=extra).finish().lines), [0] * 4)


# Where a card has no room KFD leaves a queue's save area in the host's memory. ROCr reserves scratch by what the kernel says is
# available, which is the card's. It keeps an empty block of 2 MiB, and gives it back when it finds no other memory.
@pytest.mark.parametrize("start, words", [
    pytest.param(hsa, "alloc 380MiB queue", id="a queue"),
    pytest.param(hsa, "alloc 400MiB alloc 60MiB queue", id="a queue with little room"),
    pytest.param(hsa, "alloc 400MiB alloc 80MiB alloc 20MiB queue", id="a queue without room"),
    pytest.param(hip, "malloc 300MiB stream module 1MiB async 4MiB", id="a stream"),
    pytest.param(hip, "malloc 300MiB malloc 160MiB stream module 1MiB async 4MiB", id="a stream with little room"),
    *(pytest.param(hip, f"fill 1MiB free 0 free 1 {way}", id=f"a kept block: {way}") for way in (
        "malloc 2MiB", "malloc 1900KiB", "hsa 0 2MiB", "async 1MiB", "array 700 700", "module 1MiB",
        *(["inpool 1 1MiB"] if STACK.at_least_six else [])))])
def test_as_on_a_card_of_that_size(start, words):
    same_as_bare(start, words)


# Release 5.2.3 has only HIP's own count.
def test_what_is_available_is_what_the_cap_has_left():
    with Machine(CARD) as machine:
        other = hip(machine, "malloc 64MiB wait", cap=f"{CAP}MiB")
        other.until_ready()
        program = hip(machine, "malloc 100MiB meminfo available 1 wait malloc 200MiB meminfo available 1 wait", cap=f"{CAP}MiB")
        for _ in range(2):
            lines = program.until_ready()
            left = LARGE - machine.used()
            same("by HIP", field(lines[-2], "free"), left)
            if STACK.at_least_six:
                same("by ROCr", field(lines[-1], "bytes"), left)
            program.go_on()


# If ROCr gets no scratch memory, it requests less. It keeps the scratch of queues that have ended, until it finds no other memory.
# A thread of it takes large scratch back after the kernel; a second kernel of the queue begins when it has.
@pytest.mark.parametrize("words", [
    pytest.param("queue dispatch 0 16384 alloc 1MiB", id="less than a kernel wants"),
    pytest.param("alloc 600MiB queue dispatch 1 4096", id="beside memory"),
    pytest.param("queue dispatch 0 4096 dispatch 0 0 " + "alloc 20MiB " * 52, id="of a queue in use"),
    pytest.param("queue dispatch 0 4096 destroy 0 queue dispatch 0 8192", id="of two queues")])
def test_dynamic_scratch_is_as_on_a_card_of_that_size(words):
    lines = same_as_bare(hsa, words, cap=1024)
    assert all(field(line, "rc") == 0 for line in lines if line.startswith("dispatch ")), lines


@pytest.mark.parametrize("words", [
    pytest.param("alloc 20MiB " * 44, id="memory"), pytest.param("alloc 800MiB", id="a large piece"),
    pytest.param("code 800MiB", id="code"), *([pytest.param("create 800MiB", id="a handle")] if STACK.at_least_six else [])])
def test_scratch_that_is_kept_is_free_for(words):
    lines = same_as_bare(hsa, f"queue dispatch 0 4096 destroy 0 {words}", cap=1024)
    same("refused", [line for line in lines if field(line, "rc") != 0], [])


def test_the_ledger_follows_dynamic_scratch():
    with Machine(CARD) as machine:
        program = hsa(machine, "queue dispatch 0 4096 wait destroy 0 wait alloc 800MiB wait", cap="1GiB")
        same("results", results(program.until_ready()), [0] * 3)
        assert machine.used() > 800 * MIB, machine.used()
        for _ in range(2):
            same("the ledger", ledger(machine), machine.used())
            program.go_on()
            same("the next result", results(program.until_ready()), [0])
        same("the ledger, at the end", ledger(machine), machine.used())
        at_most("peak", machine.peak(), GIB)


def test_memory_of_an_import_is_counted_when_its_exporter_frees_first():
    with Machine(CARD) as machine:
        exporter = hip(machine, "malloc 256MiB export 0 wait free 0 fill 1MiB wait", cap=f"{CAP}MiB")
        handle = exporter.until_ready()[-1].split("handle=")[1]
        importer = hip(machine, f"open {handle} wait", cap=f"{CAP}MiB")
        importer.until_ready()
        exporter.go_on()
        exporter.until_ready()
        at_most("peak", machine.peak(), LARGE)


# The exporter frees first and then does nothing. Once the importer lets go too, KFD frees the memory, and it must be granted
# to others.
# Memory of 2 MiB fills a block of the runtime's, which it may keep when the memory was exported and is freed. ROCr 6.4.3 never
# gives a block back that another allocation lay in when memory in it was exported.
@pytest.mark.parametrize("size", ["1MiB", "2MiB"])
@pytest.mark.parametrize("first", ["importer", "exporter", "neither"])
def test_a_block_that_was_exported_is_counted(size, first):
    with Machine(CARD) as machine:
        exporter = hip(machine, f"malloc {size} malloc {size} export 0 wait free 0 wait malloc {size} wait free 1 wait", cap=f"{CAP}MiB")
        handle = exporter.until_ready()[-1].split("handle=")[1]
        importer = hip(machine, f"open {handle} wait freeall wait", cap=f"{CAP}MiB")
        importer.until_ready()
        order = {"importer": [importer] + [exporter] * 3, "exporter": [exporter, importer] + [exporter] * 2, "neither": [exporter] * 3}
        for program in order[first]:
            program.go_on()
            program.until_ready()
            at_most("KFD's count", machine.used(), ledger(machine))
        # What the importer has closed is free when room is short.
        same("more than the cap", field(answer_to(exporter, f"malloc {2 * CAP}MiB"), "rc"), 2)
        if first != "neither":
            same("the ledger", ledger(machine), machine.used())


def close(importer):
    importer.go_on()
    importer.until_ready()


def exporter_and_importer_of_freed_memory(machine):
    """Of 256 MiB, which the importer frees at its next command."""
    exporter = hip(machine, "malloc 256MiB export 0 wait free 0 wait", cap=f"{CAP}MiB")
    handle = exporter.until_ready()[-1].split("handle=")[1]
    importer = hip(machine, f"open {handle} wait freeall wait", cap=f"{CAP}MiB")
    importer.until_ready()
    exporter.go_on()
    exporter.until_ready()
    return exporter, importer


def expect_the_rest_is_granted(machine):
    free = LARGE - machine.used()
    pieces = (free - AT_START) // (16 * MIB)
    granted = hip(machine, "malloc 16MiB " * pieces, cap=f"{CAP}MiB").finish().lines[1:]
    at_most("peak", machine.peak(), LARGE)
    same(f"refused of {pieces} pieces of 16 MiB where KFD has {free / MIB:.0f} MiB free", results(granted).count(2), 0)


@pytest.mark.parametrize("let_go", [Program.kill, close], ids=["is killed", "has closed it"])
def test_memory_is_free_after_its_importer(let_go):
    with Machine(CARD) as machine:
        _, importer = exporter_and_importer_of_freed_memory(machine)
        let_go(importer)
        expect_the_rest_is_granted(machine)


# KFD's counts of living processes show that the dead importer's memory is free.
@pytest.mark.parametrize("let_go", [Program.kill, close], ids=["is killed", "has closed it"])
def test_memory_is_shown_free_after_its_importer(let_go):
    with Machine(CARD) as machine:
        _, importer = exporter_and_importer_of_freed_memory(machine)
        let_go(importer)
        reader = hip(machine, "wait", cap=f"{CAP}MiB")
        reader.until_ready()
        left = LARGE - machine.used()
        same("shown free", field(answer_to(reader, "meminfo"), "free"), left)
        same("the ledger", ledger(machine), machine.used())


# Of two exports that their owner frees or dies with, the importer has the smaller one.
@pytest.mark.parametrize("dies", [False, True], ids=["freed", "dies"])
def test_memory_is_free_beside_an_import(dies):
    with Machine(CARD) as machine:
        exporter = hip(machine, "malloc 256MiB malloc 64MiB export 0 export 1 wait free 0 wait", cap=f"{CAP}MiB")
        handle = exporter.until_ready()[-1].split("handle=")[1]
        importer = hip(machine, f"open {handle} wait", cap=f"{CAP}MiB")
        importer.until_ready()
        if dies:
            exporter.kill()
        else:
            exporter.go_on()
            exporter.until_ready()
        expect_the_rest_is_granted(machine)


EXPORTS = pytest.mark.parametrize("export, free", [("alloc 200MiB descriptor 0", "free 0"),
                                                   ("create 200MiB handledescriptor 0", "release 0")], ids=["pool", "handle"])


@only("6.4.3")  # 5.2.3 has no exports by descriptor
@EXPORTS
def test_memory_that_only_a_descriptor_holds(export, free):
    with Machine(CARD) as machine:
        program = hsa(machine, f"{export} {free} wait alloc 300MiB alloc 20MiB wait closedescriptor 1 alloc 200MiB wait",
                      cap=f"{CAP}MiB")
        program.until_ready()
        same("KFD's count", machine.used(), 200 * MIB)
        same("the ledger", ledger(machine), machine.used())
        program.go_on()
        same("results", results(program.until_ready()), [0, 4104])
        program.go_on()
        same("results", results(program.until_ready()), [0, 0])
        same("the ledger", ledger(machine), machine.used())
        at_most("peak", machine.peak(), LARGE)


@only("6.4.3")
@EXPORTS
@pytest.mark.parametrize("is_killed", [False, True])
def test_memory_that_an_importer_has_from_a_descriptor(export, free, is_killed):
    with Machine(CARD) as machine:
        exporter = hsa(machine, f"{export} wait closedescriptor 1 {free} wait alloc 200MiB alloc 200MiB wait", cap=f"{CAP}MiB")
        line = exporter.until_ready()[-1]
        importer = hsa(machine, f"takedescriptor {field(line, 'pid')} {field(line, 'fd')} map 0 closedescriptor 0 wait unmap 1 wait",
                       cap=f"{CAP}MiB")
        same("results", results(importer.until_ready()), [0] * 4)
        if is_killed:
            exporter.kill()
        else:
            exporter.go_on()
            exporter.until_ready()
        same("KFD's count", machine.used(), 200 * MIB)
        other = hsa(machine, "alloc 300MiB alloc 20MiB", cap=f"{CAP}MiB").finish()
        same("of another", results(other.lines), [0, 0, 4104])
        importer.go_on()
        importer.until_ready()
        if is_killed:
            other = hsa(machine, "alloc 300MiB alloc 200MiB", cap=f"{CAP}MiB").finish()
            same("of another", results(other.lines), [0, 0, 0])
        else:
            exporter.go_on()
            same("results", results(exporter.until_ready()), [0, 0])
        at_most("peak", machine.peak(), LARGE)


# It makes a workspace of 32 MiB, and loads its code when it is first used.
@only("6.4.3")
@pytest.mark.campaign("it fetches 280 MB")
def test_rocblas_runs_as_on_a_card_of_that_size():
    stack = Stack(RELEASE, beside="rocblas-6.4.4")
    for fill in ("0", "256", "819", "964"):
        answers = []
        for card, cap in ((1024 + 8, None), (CARD, "1GiB")):
            with Machine(card) as machine:
                outcome = machine.run(stack, "rocblas_program", fill, cap=cap)
                same(f"status of {outcome}", outcome.status, 0)
                answers.append(outcome.lines)
                at_most("peak", machine.peak(), GIB)
        same(f"answers under a cap after {fill} MiB", answers[1], answers[0])


def test_the_message_of_a_refusal_counts_what_was_granted():
    with Machine(CARD) as machine:
        program = hip(machine, "malloc 200MiB malloc 200MiB wait malloc 200MiB wait", cap=f"{CAP}MiB")
        same("results", results(program.until_ready()), [0] * 3)
        used = f"{machine.used() / MIB:.1f} MiB"
        program.go_on()
        same("the last", results(program.until_ready()), [2])
        messages = [line for line in machine.errors(program).splitlines() if line.startswith("fracgpu[")]
        same("messages", len(messages), 1)
        assert messages[0].startswith(f"fracgpu[{program.pid}]: warn: hipMalloc refused on AMD-"), messages
        assert f"asked 200.0 MiB, in use {used} of cap {CAP}.0 MiB; pid {program.pid} (" in messages[0], messages
        assert messages[0].endswith(f") holds the most, {used}"), messages


@only("6.4.3")  # 5.2.3 grants it
def test_the_message_of_the_runtimes_own_refusal():
    # HIP 6 gives no single allocation so much of a card of 512 MiB.
    with Machine(CARD) as machine:
        outcome = hip(machine, "malloc 500MiB", cap=f"{CAP}MiB").finish()
        same("result", results(outcome.of("malloc")), [2])
        assert "hipMalloc refused on AMD-" in outcome.errors, outcome
        assert outcome.errors.rstrip().endswith(
            f"the runtime is out of memory by its own count, in use 0 bytes of cap {CAP}.0 MiB"), outcome
    with Machine(CAP) as machine:
        same("on a card of that size", results(hip(machine, "malloc 500MiB").finish().of("malloc")), [2])


def test_an_application_sees_a_card_of_the_caps_size():
    with Machine(CARD) as machine:
        outcome = hip(machine, "total 0 malloc 100MiB meminfo hsainfo 0", cap=f"{CAP}MiB").finish()
        same("sizes", [field(outcome.of("total")[0], "bytes"), field(outcome.of("meminfo")[0], "total"),
                       field(outcome.of("hsainfo")[0], "size")], [LARGE] * 3)


FAMILIES = ["linear", "pools linear", "arrays linear", *(("hsa linear", "vmem linear") if STACK.at_least_six else ())]
# HIP 5.2 hangs in programs that use pools and create streams, also without the library.
ALL_FAMILIES = "linear pools arrays kernels modules" + (" streams hsa vmem sharing" if STACK.at_least_six else "")


# Random calls of these families, of several processes, at a cap that is too small for them but for their queues. While all stand
# still the ledger equals KFD's count. Each process is refused a request first: the library reads what modules and queues left when
# room is short. Returns how many were refused.
def random_calls(families, seed, processes=2, threads=2, moves=400, mib=1024):
    refused = 0
    with Machine(CARD) as machine, tempfile.NamedTemporaryFile() as board:
        programs = [machine.start(STACK, "random_hip", f"{seed + i} {threads} 2 {moves} 96 {families}", cap=f"{mib}MiB",
                                  extra={"RANDOM_CALLS_BOARD": board.name}) for i in range(processes)]
        lines = [program.line() for program in programs]
        assert all(line is not None and line.startswith("up ") for line in lines), [p.finish() for p in programs]
        for _ in range(3):
            for program in programs:
                program.go_on()
            lines = [program.line() for program in programs]
            assert all(line is not None and line.endswith("bad=") for line in lines), (lines, [p.finish() for p in programs])
            refused = sum(field(line, "refused") for line in lines)
            for program in programs:
                program.go_on("look")
            same("answers", [program.line() for program in programs], ["looked"] * processes)
            counts = machine.counts()["cards"][0]
            at_most(f"peak of {families}, seed {seed}", counts["peak"], mib * MIB)
            same("the ledger", ledger(machine), counts["used"])
        for program in programs:
            same("status", program.finish().status, 0)
        nothing_is_left(machine)
    return refused


@pytest.mark.parametrize("families", FAMILIES)
def test_random_calls_of(families):
    refused = [random_calls(families, seed) for seed in (1, 11)]
    assert sum(refused) > 0, "the cap was never reached"


# One thread each: imports of descriptors by two threads of ROCr sometimes fail, also without the library.
def test_random_calls_of_all_families():
    assert random_calls(ALL_FAMILIES, 21, processes=3, threads=1, moves=100) > 0, "the cap was never reached"


@pytest.mark.campaign("it takes minutes")
@pytest.mark.parametrize("seed", [31, 32, 33])
def test_random_calls_of_all_families_by_eight_processes(seed):
    assert random_calls(ALL_FAMILIES, seed, processes=8, threads=1, moves=700, mib=4096) > 0, "the cap was never reached"


ALLOCATIONS = ["malloc 4KiB", "malloc 1500KiB", "malloc 3MiB", "malloc 17MiB", "malloc 40MiB", "async 1MiB", "async 24MiB",
               "array 700 700", "pitch 5000 900", "hsa 0 1MiB", "hsa 0 33MiB", "module 2MiB",
               *(["inpool 1 1MiB", "flags 3MiB", "vmm 2MiB", "vmm 24MiB"] if STACK.at_least_six else [])]
WARM_UP = "stream module 1KiB async 1MiB free 2"  # what the runtime takes with its first queue, code and pool


# What KFD counts for each of ALLOCATIONS without the library. Small ones may need a block.
def sizes_by_kfd():
    sizes = {}
    with Machine(CARD) as machine:
        program = hip(machine, f"{WARM_UP} wait")
        program.until_ready()
        for words in ALLOCATIONS:
            before = machine.used()
            same(words, field(answer_to(program, words), "rc"), 0)
            sizes[words] = max(machine.used() - before, 2 * MIB)
    return sizes


# One process and one thread, so that KFD's count stands still at each refusal.
def test_no_random_call_is_refused_that_fits():
    sizes, wrong, refused = sizes_by_kfd(), [], 0
    randomly = random.Random(50)
    with Machine(CARD) as machine:
        program = hip(machine, f"{WARM_UP} wait", cap=f"{CAP}MiB")
        program.until_ready()
        held, made = [], 3
        for _ in range(1000):
            if held and randomly.random() < (0.3 if len(held) < 60 else 0.6):
                number = held.pop(randomly.randrange(len(held)))
                same("freed", field(answer_to(program, f"free {number}"), "rc"), 0)
                continue
            words = randomly.choice(ALLOCATIONS)
            line = answer_to(program, words)
            if field(line, "rc") == 0 and "ptr=(nil)" not in line:
                held.append(made)
                made += 1
                continue
            refused += 1
            free = LARGE - machine.used()
            if sizes[words] <= free:
                wrong.append(f"{line} takes {sizes[words]} of {free} free")
        at_most("peak", machine.peak(), LARGE)
        same("the ledger", ledger(machine), machine.used())
    print(f"{refused} calls were refused")
    assert refused > 100, "the cap was hardly reached"
    same("refused though they fit", wrong, [])


# The runtime keeps an empty block. KFD's count falls when the module goes, and shows that of no block.
def test_a_kept_block_is_known_after_a_module_has_gone():
    with Machine(CARD) as machine:
        program = hip(machine, f"{WARM_UP} wait", cap=f"{CAP}MiB")
        program.until_ready()
        for words in ("malloc 1500KiB", "free 3", "module 2MiB", "free 4", "malloc 1500KiB"):
            same(words, field(answer_to(program, words), "rc"), 0)
            same(f"the ledger after {words}", ledger(machine), machine.used())


# What pools keep depends on when streams are done.
def test_a_wide_cap_changes_nothing():
    for families in ("linear", "arrays"):
        answers = []
        for cap in (None, "7GiB"):
            with Machine(CARD) as machine:
                program = machine.start(STACK, "random_hip", f"5 1 2 300 96 {families}", cap=cap)
                program.line()
                for _ in range(3):
                    program.go_on()
                    line = program.line()
                    answers.append((cap, field(line, "done"), field(line, "refused"), machine.used()))
        same(f"calls of {families}", [answer[1:] for answer in answers[3:]], [answer[1:] for answer in answers[:3]])


def test_kills_at_a_full_cap():
    randomly = random.Random(40)
    with Machine(CARD) as machine:
        living = []
        for _ in range(24):
            living.append(hip(machine, " ".join(["malloc 5MiB malloc 40MiB malloc 170MiB free 0 freeall"] * 3000), cap=f"{CAP}MiB"))
            if len(living) > 3:
                victim = living.pop(randomly.randrange(len(living)))
                for _ in range(randomly.randrange(1, 60)):
                    victim.line()
                victim.kill()
        for program in living:
            program.kill()
        assert machine.peak() > LARGE - 64 * MIB, "the cap was never near"
        at_most("peak", machine.peak(), LARGE)
        nothing_is_left(machine)
        granted = field(hip(machine, "fillwith malloc 1MiB", cap=f"{CAP}MiB").finish().of("fillwith")[0], "count")
    same("then granted, and of a fresh card", granted, fill("malloc 1MiB", BARE)[0])

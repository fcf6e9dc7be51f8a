#!/usr/bin/env python3
"""Runs every benchmark with and without the library preloaded, in alternation, and prints one table.

Each benchmark runs several times as a pair A B, B A, A B, ... so that whatever else the machine does
meets both alike; the table has medians, and "added" is the median of the pairs' differences. The
driver is the simulated one of the build directory, or with --real the machine's own. Nothing here
fails because of a time; it fails when a benchmark cannot run.
"""

import argparse
import glob
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

TENANT = f"bench-{os.getpid()}"
# What a benchmark may add, by its name. How cost grows with processes is said below the table.
TARGETS = [
    (r"^(alloc_free|replace)/", "+60 ns"),
    (r"^at_once/alloc_free", "+60 ns"),
    (r"^memory_info", "+20 ns"),
    (r"^at_once/memory_info_own_node", "+20 ns"),
    (r"^launch_(kernel|graph/kernel)", "+0 ns"),
    (r"^hip_malloc_free/", "+100 ns"),
    (r"^process_start/(no_cap|capped)", "+150 us"),
    (r"^first_call/.*:8/", "+1 ms"),
    (r"^first_call/.*:64/", "+5 ms"),
]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--build", type=pathlib.Path, default=here.parent / "build", metavar="DIR")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only these benchmarks")
    parser.add_argument("--repetitions", type=int, default=9, help="pairs of each benchmark")
    parser.add_argument("--min-time", type=float, default=0.2, help="seconds of each run")
    parser.add_argument("--quick", action="store_true", help="3 pairs of 0.05 s each")
    parser.add_argument("--smoke", action="store_true", help="one short pair: does it run at all?")
    parser.add_argument("--limit", default="90%", help="FRACGPU_MEMORY_LIMIT; 'none' sets no cap")
    parser.add_argument("--real", action="store_true", help="use the machine's own driver")
    chosen = parser.parse_args()
    if chosen.quick or chosen.smoke:
        chosen.repetitions, chosen.min_time = (3, 0.05) if chosen.quick else (1, 0.001)
    return chosen


class Runner:
    def __init__(self, chosen, scratch):
        self.chosen = chosen
        self.scratch = pathlib.Path(scratch)
        self.runs = 0

    def program(self, name):
        return self.chosen.build / "bench" / ("hip_calls" if name.startswith("hip_") else "driver_calls")

    def environment(self, preload, amd):
        kept = {k: v for k, v in os.environ.items()
                if k != "LD_PRELOAD" and not k.startswith("FRACGPU_")}
        if not self.chosen.real:
            # A new node each time: nothing is left of an earlier run. NVIDIA's has 240 GiB, so
            # that a hundred thousand allocations of 2 MiB fit.
            self.runs += 1
            node = self.scratch / f"node{self.runs}"
            profile = ["mi210"] if amd else ["h200", "--total-mib", str(240 << 10)]
            subprocess.run([self.chosen.build / "tests/sim/simnode", "create", node, "--profile",
                            *profile], check=True)
            kept["FRACGPU_SIM_NODE"] = str(node)
            kept["LD_LIBRARY_PATH"] = str(self.chosen.build / "sim")
        preloaded = []
        if preload:
            preloaded.append(str(self.chosen.build / "libfracgpu.so"))
            kept["FRACGPU_TENANT"] = TENANT
            if self.chosen.limit != "none":
                kept["FRACGPU_MEMORY_LIMIT"] = self.chosen.limit
        if amd and not self.chosen.real:
            preloaded.append(str(self.chosen.build / "sim/libsimkfd.so"))
        if preloaded:
            kept["LD_PRELOAD"] = ":".join(preloaded)
        return kept

    def names(self):
        listed = []
        for amd, first in ((False, ""), (True, "hip_")):
            listed += subprocess.run([self.program(first), "--benchmark_list_tests"], check=True,
                                     env=self.environment(False, amd), text=True,
                                     stdout=subprocess.PIPE).stdout.split()
        return [name for name in listed if re.search(self.chosen.filter, name)]

    def measure(self, name, preload):
        """The figures of one run, or a text that says why there are none."""
        command = [self.program(name), f"--benchmark_filter=^{re.escape(name)}$",
                   f"--benchmark_min_time={self.chosen.min_time}", "--benchmark_format=json"]
        environment = self.environment(preload, name.startswith("hip_"))
        done = subprocess.run(command, env=environment, text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if not self.chosen.real:
            subprocess.run([self.chosen.build / "tests/sim/simnode", "remove",
                            environment["FRACGPU_SIM_NODE"]], check=True)
        if done.returncode != 0:
            sys.exit(f"{name} failed ({done.returncode}):\n{done.stderr}")
        result = json.loads(done.stdout)["benchmarks"][0]
        if result.get("error_occurred"):
            return result["error_message"]
        # CPU time is blind to what else runs, but says nothing of a child or a crowd.
        if "ns_per_op" in result:
            time = result["ns_per_op"]
        else:
            time = result["real_time" if name.endswith("/real_time") else "cpu_time"]
        return {"time": time, "p50": result.get("p50_ns", 0), "p99": result.get("p99_ns", 0)}


def amount(ns):
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= 10 * size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.1f} ns"


def machine():
    cpu = platform.machine()
    for line in open("/proc/cpuinfo", encoding="utf-8", errors="replace"):
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return (f"{len(os.sched_getaffinity(0))} cores, {cpu}, Linux {platform.release()}, "
            f"load {os.getloadavg()[0]:.2f}")


def table_row(cells):
    name, *rest = cells
    print(f"{name:<40}" + "".join(f"{cell:>11}" for cell in rest), flush=True)


def compare(runner, name):
    """One row of the table; the medians (without, with), or None where it cannot run."""
    pairs = []
    for repetition in range(runner.chosen.repetitions):
        order = [False, True] if repetition % 2 == 0 else [True, False]
        results = {preload: runner.measure(name, preload) for preload in order}
        for result in results.values():
            if isinstance(result, str):
                print(f"{name:<40} skipped: {result}", flush=True)
                if runner.chosen.real:
                    return None
                sys.exit(1)
        pairs.append((results[False], results[True]))

    def median(which, figure):
        return statistics.median(pair[which][figure] for pair in pairs)

    plain, shimmed = median(0, "time"), median(1, "time")
    added = statistics.median(b["time"] - a["time"] for a, b in pairs)
    target = next((text for pattern, text in TARGETS if re.search(pattern, name)), "")
    shown = re.sub(r"/(real|manual)_time$", "", name)
    table_row([shown, amount(plain), amount(shimmed), amount(added), f"{shimmed / plain:.2f}",
               target, amount(median(0, "p50")), amount(median(1, "p50")),
               amount(median(0, "p99")), amount(median(1, "p99"))])
    return plain, shimmed, added


def say_scaling(results):
    # Of memory_info on one node the simulated driver's own cost grows with the processes.
    for kind in ("alloc_free", "memory_info_own_node"):
        at = {n: results.get(f"at_once/{kind}/processes:{n}/manual_time") for n in (1, 64)}
        if at[1] and at[64]:
            print(f"{kind}: 64 processes cost {at[64][1] / at[1][1]:.2f} times what one does, per "
                  f"core and operation (without the library {at[64][0] / at[1][0]:.2f}; target 2)")


def main():
    chosen = options()
    chosen.build = chosen.build.resolve()
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="fracgpu-bench-", dir=shared) as scratch:
        runner = Runner(chosen, scratch)
        driver = "the machine's driver" if chosen.real else "simulated driver"
        print(f"{machine()}\n{driver}, limit {chosen.limit}, medians of {chosen.repetitions} pairs "
              f"of {chosen.min_time} s\n")
        table_row(["benchmark", "without", "with", "added", "ratio", "target",
                   "p50 wo", "p50 with", "p99 wo", "p99 with"])
        try:
            results = {name: compare(runner, name) for name in runner.names()}
        finally:
            for ledger in glob.glob(f"/dev/shm/fracgpu-{TENANT}*"):
                os.unlink(ledger)
        print("\nTimes are per operation; of at_once per operation and core; percentiles are of "
              "single calls\nand hold two readings of the clock.")
        say_scaling(results)
        print(machine())


if __name__ == "__main__":
    main()

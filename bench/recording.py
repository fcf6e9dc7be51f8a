#!/usr/bin/env python3
"""recording.py BUILD [--smoke]: what a call costs more while it is recorded.

Runs recorded_calls under a cap alone, recorded without call stacks, and recorded with them, in turns, and prints the
medians for a pair of calls and what each record of the two adds.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
SMOKE = "--smoke" in sys.argv
ROUNDS = 1 if SMOKE else 5
WAYS = {"not recorded": None, "recorded": 0, "with stacks": 128}


def run(way, frames, environment, folder):
    command = [f"{BUILD}/bench/recorded_calls", "--benchmark_format=json"] + (["--benchmark_filter=2MiB.*0"] if SMOKE else [])
    if frames is None:
        environment = {**environment, "FRACGPU_MEMORY_LIMIT": "100%", "LD_PRELOAD": f"{BUILD}/libfracgpu.so"}
    else:
        command = [f"{BUILD}/fracgpu", "record", "--force", "--frames", str(frames), "--output", f"{folder}/r", "--", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    if "came too fast" in done.stderr:
        print(f"{way}: {done.stderr.strip()}", file=sys.stderr)
    return {row["name"].split("/iterations")[0]: row["real_time"] for row in json.loads(done.stdout)["benchmarks"]}


def main():
    node = f"/dev/shm/simnode-recording-{os.getpid()}"
    subprocess.run([f"{BUILD}/tests/sim/simnode", "create", node, "--profile", "a100-40gb"], check=True)
    environment = {"PATH": os.environ["PATH"], "FRACGPU_SIM_NODE": node, "LD_LIBRARY_PATH": f"{BUILD}/sim"}
    times = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(ROUNDS):
                for way, frames in WAYS.items():
                    for name, time_ns in run(way, frames, environment, folder).items():
                        times.setdefault(name, {}).setdefault(way, []).append(time_ns)
    finally:
        subprocess.run([f"{BUILD}/tests/sim/simnode", "remove", node], check=False)
    print(f"{'a pair, ns':24}" + "".join(f"{way:>14}" for way in WAYS) + f"{'a record':>12}{'its stack':>12}")
    for name, ways in times.items():
        bare, told, walked = (statistics.median(ways[way]) for way in WAYS)
        print(f"{name:24}{bare:14.0f}{told:14.0f}{walked:14.0f}{(told - bare) / 2:12.0f}{walked - told:12.0f}")


main()

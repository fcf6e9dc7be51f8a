"""fracgpu report, on recordings that write_recording makes. What they hold is known here by
itself: nothing of the command's own arithmetic is used."""
import json
import os
import re
import subprocess
import tempfile
import unittest

from machine import BUILD, COMMAND

WRITER = f"{BUILD}/tests/tools/write_recording"
MIB = 1 << 20


def report(*words, locale="C.UTF-8", **more):
    environment = dict(os.environ, LC_ALL=locale, TZ="UTC")
    environment.pop("DEBUGINFOD_URLS", None)
    return subprocess.run([COMMAND, "report", *words], env=environment, capture_output=True, text=True, timeout=60,
                          check=False, **more)


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.story, cls.larger = (f"{cls.folder.name}/{name}.rec" for name in ("story", "larger"))
        cls.lowered = f"{cls.folder.name}/lowered.rec"
        for name in ("story", "larger", "lowered"):
            subprocess.run([WRITER, f"{cls.folder.name}/{name}.rec", name], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def told(self, *words):
        done = report(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def refused(self, *words, status=1):
        done = report(*words)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_text_tells_everything(self):
        text = self.told(self.story)
        for line in [
                r"python train.py --layers 24\n",
                r"51\.000 s on node7, began on 2023-11-14 at 22:13:20: 13 allocations, 11 releases",
                r"GPU 0 \(Made-up 80GB\)\n  peak 628\.0 MiB at 30\.000 s, cap 1000\.0 MiB",
                r"596\.0 MiB of it were needed: pools could have given back 32\.0 MiB",
                r"300\.0 MiB +48%  .*  linear\n",
                r"96\.0 MiB +15%  .*  pools, used\n",
                r"32\.0 MiB +5%  .*  pools, unused\n",
                r"200\.0 MiB +32%  .*  contexts and runtime\n",
                r"300\.0 MiB +48% +1  make_weights",
                r"96\.0 MiB +15% +1  gradients",
                r"GPU 1 \(Made-up 80GB\)\n  peak 50\.0 MiB at 41\.000 s\n",
                r"Not released at the end: 350\.0 MiB in 2 allocations",
                r"10 +0\.196 +1000\.0 MiB +500 ms +100\.0 MiB  activations",
                r"128\.0 MiB +0 bytes +128\.0 MiB +35\.000 s +128\.0 MiB  python \(PID 4711\)",
                r"Refused: 1 request\n  At 40\.000 s, python \(PID 4711\) asked GPU 0 .* for 600\.0 MiB by cuMemAlloc_v2",
                r"It came from make_weights",
                r"a cap of 1228MiB: 228\.0 MiB more",
                r"trimming its own pools .*: they held 128\.0 MiB unused(?!, which)",
                r"a request of at most 372\.0 MiB",
                r"3 events missing",
        ]:
            self.assertRegex(text, line)
        self.assertNotIn("\033", text, "a process may be called whatever it wants")
        self.assertNotIn("evil\n", text)

    def test_a_peak_has_its_own_cap_and_remarks_are_never_cut(self):
        text = self.told(self.lowered)
        self.assertRegex(text, r"peak 500\.0 MiB at 0 s, cap 1000\.0 MiB; the last cap was 200\.0 MiB\n.* 50%\n")
        gpu, = json.loads(self.told(self.lowered, "--json"))["devices"]
        self.assertEqual((gpu["cap_at_peak"], gpu["cap"]), (1000 * MIB, 200 * MIB))
        self.assertIn("other (PID 5) was not recorded: why", text)
        self.assertRegex(text, r"It came from app\+0x3\.\n(.|\n)*Functions without a name: install debugging symbols")
        self.assertNotIn("Functions without a name", self.told(self.story))
        self.assertEqual(text.count("cuCtxCreate_v2"), 10)
        self.assertIn("Showing the first 10 of 12; use --top for more.", text)

    def test_text_fits_a_terminal_without_utf8(self):
        done = report(self.story, locale="C")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.isascii())

    def test_json_has_the_same_numbers(self):
        told = json.loads(self.told(self.story, "--json"))
        self.assertEqual(told, json.loads(self.told(self.story, "--format", "json")))
        gpu = told["devices"][0]
        self.assertEqual(gpu["key"], "GPU-aaaa")
        self.assertEqual(gpu["taken"], {"bytes": 628 * MIB, "time_ns": 30 * 10**9})
        self.assertEqual(gpu["peak"]["by_kind"], {"linear": 300 * MIB, "pool": 96 * MIB, "reserved": 32 * MIB,
                                                  "overhead": 200 * MIB})
        self.assertEqual(sum(part["taken"] for part in gpu["peak"]["parts"]), 628 * MIB)
        self.assertEqual(gpu["at_end"], {"taken": 628 * MIB, "live": 300 * MIB, "needed": 500 * MIB})
        self.assertEqual(max(point["sums"]["taken"] for point in gpu["timeline"]), 628 * MIB)
        functions = {each["stack"]: each["functions"] for each in told["stacks"]}
        left = [site for site in told["call_sites"] if site["left_bytes"] and site["device"] == 0]
        self.assertEqual([functions[site["stack"]] for site in left], [["main", "build", "make_weights"]])
        evil = told["processes"][1]
        self.assertEqual((evil["command"], evil["ended_ns"], evil["exited"], evil["end"]),
                         ("evil\n\033[31m;<script>", 50 * 10**9, False, "ended without exit handlers (_exit or a signal)"))
        refusal = told["refusals"][0]
        self.assertEqual((refusal["asked"], refusal["held"], refusal["reason"]), (600 * MIB, 628 * MIB, "cap"))

    def test_call_sites_behind_layers_are_told_apart(self):
        path = f"{self.folder.name}/wrapped.rec"
        subprocess.run([WRITER, path, "wrapped"], check=True)

        def sites(*words):
            left = self.told(path, *words).split("Not released at the end")[1].split("\n\n")[0].splitlines()[2:]
            return [re.split(r" {2,}", line.strip(), maxsplit=3)[3] for line in left]
        self.assertEqual(sites(), [
            "ask_driver < ... < weights < train < main", "ask_driver < ... < batch < step < train",
            "model (train.py) < <module> (train.py)", "cache (train.py) < <module> (train.py)",
            "ask_driver < ... < index < train < main"])
        self.assertEqual(sites("--frames", "1")[1], "ask_driver < ... < batch")
        self.assertEqual(sites("--frames", "0"), ["ask_driver", "model (train.py)", "cache (train.py)"])
        self.assertEqual(sites("--by", "function"), sites("--frames", "0"))
        self.assertEqual(sites("--by", "module")[0], "libmodel.so")
        self.assertEqual(sites("--by", "stack")[1],
                         "ask_driver < take_segment < find_block < new_storage < tensor < batch < step < train < main")
        # Of Python without names, its interpreter, and not the call by which it was left.
        self.assertIn(" 1  run_interpreter\n", self.told(self.lowered))
        # In the page too, and where two recordings are compared.
        self.told(path, "--html", f"{self.folder.name}/wrapped.html")
        with open(f"{self.folder.name}/wrapped.html", encoding="utf-8") as file:
            self.assertIn("ask_driver < ... < batch < step < train", file.read().replace("\\u003c", "<"))
        self.assertIn("ask_driver < ... < batch < step < train", self.told(self.story, path))

    def test_each_event_is_a_line(self):
        events = [json.loads(line) for line in self.told(self.story, "--format", "ndjson").splitlines()]
        self.assertEqual(sum(event["event"] == "allocated" for event in events), 13)
        self.assertEqual(sum(event["event"] == "released" for event in events), 11)
        first = next(event for event in events if event["event"] == "allocated")
        self.assertEqual(first, {
            "event": "allocated", "time_ns": 2 * 10**9, "pid": 4711, "command": "python", "device": "GPU-aaaa",
            "api": "cuMemAlloc_v2", "kind": "linear", "address": 0x1000, "bytes": 300 * MIB, "taken_bytes": 300 * MIB,
            "stack": ["main", "build", "make_weights"]})
        refused, = [event for event in events if event["event"] == "refused"]
        self.assertEqual((refused["bytes"], refused["cap_bytes"], refused["held_bytes"]), (600 * MIB, 1000 * MIB, 628 * MIB))
        self.assertIn("ndjson", self.refused(self.story, "--format", "ndjson", "--device", "0", status=2))

    def test_collapsed_stacks_are_turned_round_and_compared(self):
        lines = self.told(self.story, "--format", "collapsed", "--of", "leaks", "--reversed").splitlines()
        self.assertIn(f"GPU 0 (Made-up 80GB);python (PID 4711);make_weights;build;main {300 * MIB}", lines)
        both = self.told(self.story, self.larger, "--format", "collapsed", "--of", "leaks").splitlines()
        self.assertIn(f"GPU 0 (Made-up 80GB);python;main;build;make_weights {300 * MIB} {600 * MIB}", both)
        self.assertIn("--format collapsed", self.refused(self.story, "--reversed", status=2))
        # What lived for no other allocation.
        temporary = self.told(self.story, "--format", "collapsed", "--of", "temporary").splitlines()
        self.assertEqual(temporary, [f"GPU 0 (Made-up 80GB);python (PID 4711);main;train_step;activations {1000 * MIB}",
                                     f"GPU 0 (Made-up 80GB);python (PID 4711);main;train_step;gradients {96 * MIB}"])

    def test_collapsed_stacks_add_up(self):
        def lines(*words):
            found = {}
            for line in self.told(self.story, "--format", "collapsed", *words).splitlines():
                stack, _, number = line.rpartition(" ")
                found[stack] = int(number)
            return found
        peak = lines("--device", "0")
        self.assertEqual(sum(peak.values()), 628 * MIB)
        self.assertEqual(peak["python (PID 4711);main;build;make_weights"], 300 * MIB)
        self.assertEqual(peak["python (PID 4711);(pools, unused)"], 32 * MIB)
        self.assertEqual(sum(lines("--of", "leaks").values()), 350 * MIB)
        allocated = lines("--of", "allocated")
        self.assertEqual(sum(allocated.values()), (300 + 1000 + 96 + 50) * MIB)
        self.assertEqual(len([stack for stack in allocated if "evil" in stack]), 1)
        self.assertTrue(all(stack.startswith("GPU ") for stack in allocated), "of several GPUs each is named")

    def test_perfetto_trace_has_counters_and_refusals(self):
        trace = json.loads(self.told(self.story, "--format", "perfetto"))["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
        counters = {}
        for event in trace:
            self.assertTrue({"ph", "pid", "tid", "name", "ts"} <= event.keys(), event)
            if event["ph"] == "C":
                counters.setdefault((names[event["pid"]], event["name"]), []).append(event["args"]["bytes"])
        self.assertEqual(max(counters["GPU 0 (Made-up 80GB)", "taken"]), 628 * MIB)
        self.assertEqual(set(counters["GPU 0 (Made-up 80GB)", "cap"]), {1000 * MIB})
        self.assertEqual(max(counters["python (PID 4711)", "GPU 0 (Made-up 80GB)"]), 628 * MIB)
        instants = [event for event in trace if event["ph"] == "i" and event["name"] == "refused"]
        self.assertEqual([(event["ts"], event["args"]["asked"]) for event in instants], [(40e6, 600 * MIB)])

    def test_choices(self):
        gpu1 = json.loads(self.told(self.story, "--json", "--device", "GPU-bb"))
        self.assertEqual([device["key"] for device in gpu1["devices"]], ["GPU-bbbb"])
        python = json.loads(self.told(self.story, "--json", "--process", "python"))
        self.assertEqual({use["process"] for use in python["uses"]}, {0})
        self.assertEqual(python, json.loads(self.told(self.story, "--json", "--process", "4711")))
        one = self.told(self.story, "--top", "1")
        self.assertIn("make_weights", one)
        self.assertNotIn("gradients", one)
        self.assertIn("there are: GPU 0", self.refused(self.story, "--device", "9"))
        self.assertIn("python (PID 4711)", self.refused(self.story, "--process", "ruby"))

    def test_two_recordings_are_compared(self):
        text = self.told(self.story, self.larger)
        self.assertRegex(text, r"628\.0 MiB +928\.0 MiB +\+300\.0 MiB  peak\n")
        self.assertRegex(text, r"Not released at the end\n +300\.0 MiB +600\.0 MiB +\+300\.0 MiB  make_weights")
        self.assertRegex(text, r"Number of allocations: no change")
        told = json.loads(self.told(self.larger, self.story, "--json"))
        self.assertEqual(told["left"], [{"call_site": "make_weights < build < main", "before": 600 * MIB, "after": 300 * MIB}])
        # Each GPU with itself, and with another one if it has no other.
        gpus = {gpu["name"]: gpu["taken"] for gpu in json.loads(self.told(self.story, self.lowered, "--json"))["devices"]}
        self.assertEqual(gpus, {"GPU 0 (Made-up 80GB)": {"before": 628 * MIB, "after": 0},
                                "GPU 1 (Made-up 80GB)": {"before": 50 * MIB, "after": 500 * MIB}})
        wrapped = f"{self.folder.name}/other.rec"
        subprocess.run([WRITER, wrapped, "wrapped"], check=True)
        self.assertRegex(self.told(wrapped, self.lowered),
                         r"GPU 0, then GPU 1 \(Made-up 80GB\)\n +620\.0 MiB +500\.0 MiB +-120\.0 MiB  peak\n")
        self.assertIn("compared as text, json or collapsed", self.refused(self.story, self.larger, "--format", "perfetto", status=2))

    def test_damage_is_told_after_what_precedes_it(self):
        large = f"{self.folder.name}/large.rec"
        subprocess.run([WRITER, large, "50000"], check=True)
        with open(large, "rb") as file:
            whole = file.read()
        with open(large, "wb") as file:
            file.write(whole[:len(whole) * 2 // 3])
        done = report(large)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"peak \d+\.\d GiB at")
        self.assertRegex(done.stderr, r"^fracgpu: '.*' was cut off at byte \d+, .*\n$")
        with open(large, "wb") as file:
            file.write(whole[:len(whole) // 2] + b"?" * 9 + whole[len(whole) // 2 + 9:])
        done = report(large, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is damaged at byte", json.loads(done.stdout)["recording"]["damage"])
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_what_is_no_recording_is_refused(self):
        folder = self.folder.name
        with open(f"{folder}/text", "w", encoding="utf-8") as file:
            file.write("not a recording at all")
        self.assertIn("is no recording", self.refused(f"{folder}/text"))
        self.assertIn("No such file", self.refused(f"{folder}/none"))
        self.assertRegex(self.refused(folder), "is a folder of user .*, and not a file; name a file")
        os.mkfifo(f"{folder}/fifo")
        self.assertIn("a FIFO", self.refused(f"{folder}/fifo"))
        self.assertIn("did you mean json", self.refused(self.story, "--format", "jsn", status=2))
        self.assertIn("--of", self.refused(self.story, "--of", "all", status=2))
        for words in ([], ["--json"], ["--html", f"{folder}/page.html"]):
            self.assertIn("--format collapsed", self.refused(self.story, "--of", "leaks", *words, status=2))
        self.assertFalse(os.path.exists(f"{folder}/page.html"))
        self.assertIn("FILE", self.refused(status=2))
        for words in (["--top", "9", "--json"], ["--top", "9", "--html", f"{folder}/page.html"], ["--by", "module", "--json"],
                      ["--frames", "2", "--format", "collapsed"], ["--frames", "2", "--by", "function"],
                      ["--top", "9", "--format", "ndjson"], ["--python", "--format", "perfetto"],
                      ["--symbols", folder, "--format", "perfetto"], ["--symbols", f"{folder}/none"], [""]):
            self.refused(self.story, *words, status=2)
        for words in (["--by", "module", "--html", f"{folder}/by.html"], ["--top", "9", "--by", "module", self.larger, "--json"]):
            self.told(self.story, *words)
        self.assertIn("--top", self.refused(self.story, "--top", "0", status=2))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([COMMAND, "report", self.story], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "fracgpu: cannot write to standard output\n"))

    def test_a_span_is_told_by_itself(self):
        text = self.told(self.story, "--from", "9.5s", "--to", "15.2s")
        self.assertIn("Of this is told what happened from 9.500 s to 15.200 s.", text)
        self.assertRegex(text, r"peak 600\.0 MiB at 10\.000 s")
        self.assertRegex(text, r"There at the end of the span: 400\.0 MiB in 2 allocations")
        self.assertRegex(text, r"\n +6 +1\.05 +600\.0 MiB +\d.* activations")
        self.assertNotIn("Refused", text)
        for end, told in (("999.6ms", "1.000 s"), ("999.4ms", "999 ms"), ("0.9996ms", "1 ms")):
            self.assertIn(f"from 0 s to {told}.", self.told(self.story, "--to", end))
        span = json.loads(self.told(self.story, "--from", "9500ms", "--to", "15.2s", "--json"))
        self.assertEqual((span["recording"]["from_ns"], span["recording"]["duration_ns"]), (9_500_000_000, 15_200_000_000))
        self.assertEqual(span["recording"]["allocations"], 6)
        gpu, = span["devices"]
        self.assertEqual(gpu["taken"], {"bytes": 600 * MIB, "time_ns": 10 * 10**9})
        self.assertEqual(gpu["at_end"]["taken"], 600 * MIB)
        self.assertGreaterEqual(min(point["time_ns"] for point in gpu["timeline"]), 9_500_000_000)
        allocated = {site["allocated_bytes"] for site in span["call_sites"]}
        self.assertEqual(allocated, {0, 600 * MIB})
        lines = self.told(self.story, "--from", "9.5s", "--to", "15.2s", "--device", "0", "--format", "collapsed").splitlines()
        self.assertEqual(sorted(int(line.split()[-1]) // MIB for line in lines), [100, 200, 300])
        # From a moment to the end, up to one, and of what has gone before.
        self.assertEqual(json.loads(self.told(self.story, "--from", "39s", "--json"))["recording"]["refusals"], 1)
        begin = json.loads(self.told(self.story, "--to", "5s", "--json"))
        self.assertEqual(begin["devices"][0]["taken"]["bytes"], 500 * MIB)
        self.assertEqual(begin["recording"]["allocations"], 1)
        late = json.loads(self.told(self.story, "--from", "50.5s", "--json"))
        self.assertEqual([use["process"] for use in late["uses"]], [0], "the other one had ended")
        self.told(self.story, "--from", "9.5s", "--to", "15.2s", "--html", f"{self.folder.name}/span.html")

    def test_a_span_that_is_none_is_one_line(self):
        for words in (["--from", "10"], ["--from", "ten"], ["--to", "1.2.3s"], ["--from", "-1s"], ["--to", "5 s"],
                      ["--from", "999999999999h"],
                      ["--from", "20s", "--to", "10s"], ["--to", "0s"], ["--from", "1s", "--format", "ndjson"]):
            self.refused(self.story, *words, status=2)
        self.assertIn("accepted: --from 10s, 1.5s, 250ms, 2m, 1h", self.refused(self.story, "--from", "ten", status=2))
        self.assertIn("--to 10s is not later than --from 20s",
                      self.refused(self.story, "--from", "20s", "--to", "10s", status=2))
        self.assertIn("the recording ends at 51.000 s: there is nothing from 0:02:00 on",
                      self.refused(self.story, "--from", "2m"))

    def test_threads_are_told(self):
        path = f"{self.folder.name}/threads.rec"
        subprocess.run([WRITER, path, "5000"], check=True)
        told = json.loads(self.told(path, "--json"))
        events = [json.loads(line) for line in self.told(path, "--format", "ndjson").splitlines()]
        expected = {}
        for event in events:
            if event["event"] in ("allocated", "released"):
                sums = expected.setdefault(event["thread"], [0, 0, 0, 0])
                at = 0 if event["event"] == "allocated" else 2
                sums[at] += 1
                sums[at + 1] += event["bytes"]
        self.assertGreater(len(expected), 1)
        self.assertEqual({each["thread"]: [each[key] for key in ("allocations", "allocated_bytes", "releases", "released_bytes")]
                          for each in told["threads"]}, expected)
        order = [each["allocated_bytes"] for each in told["threads"]]
        self.assertEqual(order, sorted(order, reverse=True))
        text = self.told(path)
        self.assertIn("\nThreads\n", text)
        for thread in expected:
            self.assertRegex(text.split("\nThreads\n")[1], rf" {thread}  ")
        self.assertNotIn(", on GPU", text.split("\nThreads\n")[1], "there is one")
        self.assertIn(" (PID 4711), on GPU 0", self.told(self.story).split("\nThreads\n")[1], "there are two")
        self.assertNotIn("\nThreads\n", self.told(f"{self.folder.name}/story.rec", "--device", "1"), "there is one")
        self.told(path, "--html", f"{self.folder.name}/threads.html")
        with open(f"{self.folder.name}/threads.html", encoding="utf-8") as file:
            self.assertIn('"threads":[{', file.read())

    def test_python_alone(self):
        path = f"{self.folder.name}/python.rec"
        subprocess.run([WRITER, path, "wrapped"], check=True)
        os.makedirs(f"{self.folder.name}/copy/srv")
        with open(f"{self.folder.name}/copy/srv/train.py", "w", encoding="utf-8") as file:
            file.write("import x\n\n\nclass Model:\n    def model(self):\n        pass\n\n\ndef model():\n"
                       "    def cache():\n        pass\n    return cache\n\n\nasync def cache(\n        x):\n    pass\n")
        lines = self.told(path, "--python", "--format", "collapsed").splitlines()
        self.assertEqual(sorted(lines), sorted([
            f"wrapped (PID 4711);(not from Python) {490 * MIB}",
            f"wrapped (PID 4711);<module> (train.py);model (train.py) {90 * MIB}",
            f"wrapped (PID 4711);<module> (train.py);cache (train.py) {40 * MIB}"]))
        lined = self.told(path, "--python", "--format", "collapsed", "--symbols", f"{self.folder.name}/copy")
        self.assertIn(f";<module> (train.py);model (train.py:9) {90 * MIB}", lined)
        self.assertIn(f";<module> (train.py);cache (train.py:15) {40 * MIB}", lined)
        self.assertIn("model (train.py) < <module> (train.py)", self.told(path, "--python"))
        self.assertIn("names no function of Python", self.refused(self.story, "--python"))
        self.refused(path, "--python", "--format", "ndjson", status=2)

    def test_help_names_the_formats(self):
        text = self.told("--help")
        self.assertTrue(re.search(r"Examples:", text) and re.search(r"Exit status:", text))
        for word in ["text", "json", "collapsed", "perfetto", "--device", "--process", "--top", "OTHER"]:
            self.assertIn(word, text)

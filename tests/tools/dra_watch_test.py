"""The driver for Kubernetes keeps what it publishes and only the claims that there are, before an
API server that misbehaves.

The server is a stand-in: a real one does not end its watches when a test wants it. On a real one
tests/containers/claims_test.py deletes slices.
"""
import http.server
import json
import os
import queue
import shutil
import subprocess
import threading
import urllib.parse

import pytest

from machine import BUILD, COMMAND, LIBRARY, Machine, wait_until

DRIVER = f"{BUILD}/fracgpu-dra"
pytestmark = pytest.mark.skipif(not os.path.exists(DRIVER), reason="fracgpu-dra is not built: containers/packages.sh node")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/"


class Api(http.server.ThreadingHTTPServer):
    """Keeps slices. What its watches do is said one by one; one of which nothing is said stays."""

    daemon_threads = True

    def __init__(self, *watches):
        super().__init__(("127.0.0.1", 0), Handler)
        self.slices, self.made, self.watches, self.streams, self.asked = {}, 0, list(watches), [], []
        self.claims = {}  # what is answered to a question for one, by its name
        self.guard = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def change(self, name, what):
        with self.guard:
            kind = "DELETED" if what is None else "MODIFIED" if name in self.slices else "ADDED"
            if what is None:
                what = self.slices.pop(name)
            else:
                self.made += 1
                what["metadata"] |= {"name": name, "resourceVersion": str(self.made)}
                self.slices[name] = what
            for stream in self.streams:
                stream.put({"type": kind, "object": what})
        return what

    def lose(self):
        """All slices, without an event."""
        with self.guard:
            self.slices.clear()

    def cut(self):
        """Every watch that stands."""
        with self.guard:
            for stream in self.streams:
                stream.put(None)
            self.streams = []


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def answer(self, status, what):
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self):
        path, _, query = self.path.partition("?")
        query = urllib.parse.parse_qs(query)
        if path.startswith(CLAIMS):
            return self.answer(*self.server.claims[path.removeprefix(CLAIMS)])
        if path != SLICES:
            return self.answer(200, {"metadata": {"name": "n", "uid": "node-uid"}})
        assert query["fieldSelector"] == ["spec.driver=fracgpu.dev,spec.nodeName=n"], query
        if "watch" not in query:
            with self.server.guard:
                return self.answer(200, {"items": list(self.server.slices.values())})
        with self.server.guard:
            what = self.server.watches.pop(0) if self.server.watches else None
            self.server.asked.append(query)
        if what is not None:
            return self.answer(*what)
        self.send_response(200)
        self.end_headers()
        stream = queue.Queue()
        with self.server.guard:
            self.server.streams.append(stream)
        while (event := stream.get()) is not None:
            self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()

    def do_POST(self):
        self.answer(201, self.server.change(f"fracgpu-{self.server.made}", self.body()))

    def do_PUT(self):
        self.answer(200, self.server.change(self.path.rpartition("/")[2], self.body()))

    def do_DELETE(self):
        self.answer(200, self.server.change(self.path.rpartition("/")[2], None))


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


class Running:
    """The driver, which looks at the GPUs once an hour: what it notices, it was told; or as often as the test wants."""

    def __init__(self, machine, api, interval=3600):
        files = f"{machine.folder}/files"
        os.makedirs(files)
        os.chmod(machine.folder, 0o755)
        for program in (LIBRARY, COMMAND):
            shutil.copy(program, files)
        with open(f"{machine.folder}/kubeconfig", "w", encoding="ascii") as file:
            json.dump({"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                       "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{api.server_port}"}}],
                       "users": [{"name": "u", "user": {"token": "t"}}]}, file)
        self.log = open(f"{machine.folder}/log", "w+", encoding="utf-8")
        self.child = subprocess.Popen(
            [DRIVER, "dra", "--node-name", "n", "--interval", str(interval), "--kubeconfig", f"{machine.folder}/kubeconfig",
             "--files", files, *(f"--{name}-dir={machine.folder}/{name}" for name in ("kubelet", "cdi", "run"))],
            env=machine.environment, stderr=self.log)
        machine.children.append(self.child)

    def said(self):
        self.log.seek(0)
        return self.log.read()


def test_slices_that_are_lost_are_published_again():
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    # A gap, no JSON, an error: after each of them it must ask again.
    api = Api((500, {"kind": "Status", "message": "etcd is away"}), (200, json.dumps(gone).encode() + b"\n"), (200, b"what?\n"))
    with Machine("a100-40gb") as machine:
        driver = Running(machine, api)
        wait_until(lambda: api.streams and api.slices, "the fourth watch stands")
        said = driver.said()
        for line in ("etcd is away", "ends the watch of slices: too old resource version", "is no JSON"):
            assert line in said, said
        assert all("resourceVersion" not in query for query in api.asked), api.asked
        (name,) = api.slices
        api.change(name, None)
        wait_until(lambda: api.slices, "a slice that was deleted is there again")
        # Somebody else writes into it.
        (name, there), = api.slices.items()
        changed = json.loads(json.dumps(there))
        changed["spec"]["devices"][0]["capacity"]["memory"]["value"] = "80Gi"
        api.change(name, changed)
        wait_until(lambda: api.slices[name]["spec"]["devices"][0]["capacity"]["memory"]["value"] == "40Gi", "it is repaired")
        # Nobody tells of what happens while no watch stands.
        api.lose()
        api.cut()
        wait_until(lambda: api.slices, "it looks when a new watch stands")
        driver.child.terminate()
        assert driver.child.wait(60) == 0, driver.said()


def test_claims_that_kubelet_forgot_are_removed():
    api = Api()
    api.claims = {"there": (200, {"metadata": {"uid": "1"}}), "gone": (404, {"kind": "Status", "message": "not found"}),
                  "another": (200, {"metadata": {"uid": "new"}}), "unknown": (500, {"kind": "Status", "message": "etcd is away"}),
                  "strange": (200, {})}
    names = {"1": "there", "2": "gone", "3": "another", "4": "unknown", "5": "strange"}
    with Machine("a100-40gb") as machine:
        for uid, name in names.items():
            write(f"{machine.folder}/run/claims/{uid}/name", f"a/{name}\n")
            write(f"{machine.folder}/run/claims/{uid}/limit.conf", "1GiB\n")
            write(f"{machine.folder}/cdi/fracgpu.dev-claim-{uid}.json", "{}")
        os.makedirs(f"{machine.folder}/run/claims/6")  # whoever made it was killed
        write(f"{machine.folder}/run/claims/7/name", "of nobody\n")
        driver = Running(machine, api, interval=1)
        here = f"{machine.folder}/run/claims"
        wait_until(lambda: driver.said().count("does not say whose") > 1, "all were judged twice")
        assert sorted(os.listdir(here)) == ["1", "4", "5", "7"], driver.said()
        assert sorted(os.listdir(f"{machine.folder}/cdi")) == [f"fracgpu.dev-claim-{uid}.json" for uid in "145"]
        assert "etcd is away" in driver.said()
        api.claims["unknown"] = api.claims["gone"]
        wait_until(lambda: not os.path.exists(f"{here}/4"), "it goes on asking")

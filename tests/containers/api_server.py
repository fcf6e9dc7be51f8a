"""A real Kubernetes control plane for tests: kube-apiserver with etcd on loopback, without nodes and without root.

kube-apiserver comes from the folder that FRACGPU_KUBERNETES names, or from shared/kubernetes beside the checkout: the
program itself, or an archive that holds it, as the server archive of a release. etcd and kubectl come from Debian.
Everything that is started ends with the test, also where that is killed.
"""
import atexit
import ctypes
import fcntl
import glob
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest

from rig import BUILD, SOURCE, finished, part, wait_until

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
KUBERNETES = f"{SOURCE}/containers/kubernetes"


def programs():
    """The folder with kube-apiserver and what was found beside it; skips where there is none."""
    given = os.environ.get("FRACGPU_KUBERNETES")
    folder = os.path.abspath(given or os.path.join(SOURCE, "..", "shared", "kubernetes"))
    for place in (folder, f"{folder}/bin"):
        if os.access(f"{place}/kube-apiserver", os.X_OK):
            return place
    archives = sorted(glob.glob(f"{folder}/kubernetes*.tar.*"))
    if not archives:
        raise unittest.SkipTest(f"no kube-apiserver and no kubernetes*.tar.* in {folder}" if given else
                                "no kube-apiserver: set FRACGPU_KUBERNETES to a folder with it or a release's server archive")
    where = f"{BUILD}/parts/{os.path.basename(archives[-1]).partition('.tar')[0]}"
    os.makedirs(where, exist_ok=True)
    with open(f"{where}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(f"{where}/unpacked"):
            fresh = tempfile.mkdtemp(dir=where)
            wanted = [f"*{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")]
            _, _, err = finished(["tar", "-C", fresh, "-xf", archives[-1], "--wildcards", *wanted])
            if not glob.glob(f"{fresh}/**/kube-apiserver", recursive=True):
                shutil.rmtree(fresh)
                raise unittest.SkipTest(f"no kube-apiserver in {os.path.basename(archives[-1])}: {err.strip().splitlines()[0]}")
            os.rename(fresh, f"{where}/unpacked")
    return os.path.dirname(glob.glob(f"{where}/unpacked/**/kube-apiserver", recursive=True)[0])


def free_ports(count):
    """Ports of loopback that nobody listens on now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class ApiServer:
    """A cluster of no nodes, whose namespace `default` pods can be made in. `send` speaks to it as its administrator."""

    address, wanted_port = "127.0.0.1", None  # to listen on; None: any that is free

    def __init__(self, *flags):
        self.programs = programs()
        self.etcd, self.kubectl_program = f"{part('etcd-3.5')}/usr/bin/etcd", f"{part('kubectl-1.36')}/usr/bin/kubectl"
        if shutil.which("openssl") is None:
            raise unittest.SkipTest("openssl is not on this machine")
        self.folder = tempfile.mkdtemp()
        self.children = []
        atexit.register(self.end)
        self.keys()
        # Another program may take a port between the question and the start.
        for attempt in range(3):
            if self.start(flags, attempt):
                break
        else:
            raise AssertionError(f"the API server does not start: {self.log('kube-apiserver')[-2000:]}")
        self.version = self.send("GET", "/version")[1]["gitVersion"]
        status, said = self.send("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        assert status == 201, said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for child in reversed(self.children):
            child.terminate()
        for child in reversed(self.children):
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.children = []
        shutil.rmtree(self.folder, ignore_errors=True)

    def keys(self):
        made = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2", "-subj", "/CN=127.0.0.1"]
        status, _, err = finished(["openssl", "req", "-x509", *made, "-addext", "subjectAltName=IP:127.0.0.1,IP:10.0.0.1",
                                   "-keyout", f"{self.folder}/key", "-out", f"{self.folder}/certificate"])
        assert status == 0, err
        with open(f"{self.folder}/tokens", "w", encoding="ascii") as file:
            file.write("admin,admin,admin,system:masters\n")

    def child(self, name, *arguments):
        with open(f"{self.folder}/{name}.log", "wb") as log:
            self.children.append(subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)))
        return self.children[-1]

    def log(self, name):
        with open(f"{self.folder}/{name}.log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def start(self, flags, attempt):
        client, peer, port = free_ports(3)
        self.port = self.wanted_port or port
        store, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        started = [self.child("etcd", self.etcd, "--data-dir", f"{self.folder}/data-{attempt}", "--unsafe-no-fsync",
                              "--listen-client-urls", store, "--advertise-client-urls", store,
                              "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
                              "--initial-cluster", f"default={peers}"),
                   self.child("kube-apiserver", f"{self.programs}/kube-apiserver", "--etcd-servers", store, "--bind-address", self.address,
                              "--advertise-address", "127.0.0.1", "--secure-port", str(self.port),
                              "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.0.0.0/24",
                              "--tls-cert-file", f"{self.folder}/certificate", "--tls-private-key-file", f"{self.folder}/key",
                              "--service-account-issuer", "https://kubernetes.default.svc",
                              "--service-account-key-file", f"{self.folder}/certificate",
                              "--service-account-signing-key-file", f"{self.folder}/key",
                              "--token-auth-file", f"{self.folder}/tokens", "--authorization-mode", "RBAC",
                              "--allow-privileged=true", *flags)]

        def ready():
            if any(each.poll() is not None for each in started):
                return True
            try:
                return self.send("GET", "/readyz")[0] == 200
            except (OSError, http.client.HTTPException):
                return False

        wait_until(ready, "the API server answers")
        if all(each.poll() is None for each in started):
            return True
        self.stop_all(started)
        return False

    def stop_all(self, started):
        for each in started:
            each.kill()
            each.wait()
            self.children.remove(each)

    def send(self, method, path, content=None, kind="application/json"):
        """One request: status, and what came back as an object or text."""
        context = ssl.create_default_context(cafile=f"{self.folder}/certificate")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            # As kubectl writes it. Of an opaque configuration that is written otherwise the server (1.36) says that it was
            # changed, when something else in that status is.
            connection.request(method, path, None if content is None else json.dumps(content, sort_keys=True, separators=(",", ":")),
                               {"Authorization": "Bearer admin", "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def kubeconfig(self):
        path = f"{self.folder}/kubeconfig"
        if os.path.exists(path):
            return path  # a program may be reading it
        with open(path, "w", encoding="ascii") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                       "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{self.port}",
                                                              "certificate-authority": f"{self.folder}/certificate"}}],
                       "users": [{"name": "u", "user": {"token": "admin"}}],
                       "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}, file)
        return path

    def kubectl(self, *arguments):
        """Runs kubectl at the top of the tree, as the pages do: status, stdout, stderr."""
        return finished([self.kubectl_program, "--kubeconfig", self.kubeconfig(), *arguments], cwd=SOURCE,
                        env={**os.environ, "HOME": self.folder})

    def make(self, what, really=False):
        """Makes an object by its kind, or tries to: status, and the object or what the server says."""
        path, name = PATHS[what["kind"]]
        namespace = what["metadata"].get("namespace", "default")
        status, said = self.send("POST", f"/{path}/namespaces/{namespace}/{name}{'' if really else '?dryRun=All'}", what)
        return status, said if status == 201 else said["message"]

    def apply(self, overlay):
        """Applies an overlay of containers/kubernetes and waits until its policies are in force."""
        status, out, err = self.kubectl("apply", "-k", f"{KUBERNETES}/{overlay}")
        assert status == 0, f"{out} {err}"
        self.wait_for_policies()

    def wait_for_policies(self):
        """Until all three are in force, which is some time after they were made."""
        capped, wrong = pod({"fracgpu.dev/memory": "8GiB"}), pod({"fracgpu.dev/unknown": "x"})
        open_to = pod({"fracgpu.dev/memory": "8GiB"}, env=[{"name": "FRACGPU_TENANT", "value": "x"}])

        def in_force():
            status, made = self.make(capped)
            return (status == 201 and "env" in made["spec"]["containers"][0] and
                    self.make(wrong)[0] != 201 and self.make(open_to)[0] != 201)

        wait_until(in_force, "the policies are in force")

    def run(self, name, *arguments):
        """Starts another program of the release with the administrator's rights; skips where it is not there."""
        if not os.access(f"{self.programs}/{name}", os.X_OK):
            raise unittest.SkipTest(f"no {name} beside kube-apiserver")
        return self.child(name, f"{self.programs}/{name}", "--kubeconfig", self.kubeconfig(), *arguments)

    def loop(self, name, *arguments):
        """Starts the controllers' or the scheduler's loop."""
        config = self.kubeconfig()
        return self.run(name, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config, "--bind-address",
                        "127.0.0.1", "--secure-port", str(free_ports(1)[0]), "--leader-elect=false",
                        "--cert-dir", f"{self.folder}/{name}", *arguments)

    def controllers(self, *names):
        # What pods trust the API server by.
        return self.loop("kube-controller-manager", "--controllers", ",".join(names), "--root-ca-file",
                         f"{self.folder}/certificate")


PATHS = {"Pod": ("api/v1", "pods"), "Deployment": ("apis/apps/v1", "deployments"), "Job": ("apis/batch/v1", "jobs"),
         "StatefulSet": ("apis/apps/v1", "statefulsets"), "CronJob": ("apis/batch/v1", "cronjobs")}


def pod(labels=None, annotations=None, spec=None, **container):
    """A pod of one container."""
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": labels or {}, "annotations": annotations or {}},
            "spec": {"containers": [{"name": "a", "image": "x", **container}], **(spec or {})}}

"""A real node for tests: kubelet and containerd on an API server of its own, apart from this machine.

The tests that call `apart` run again in namespaces of their own for mounts, network and processes, in which /etc and /var/lib
are copies, and /run and /dev/shm empty. So kubelet's settings of the kernel, the networks of pods and whatever is installed on
the node are gone with the test, however it ends. What is left are control groups, which the caller removes.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from api_server import LIBC, PR_SET_PDEATHSIG, ApiServer, programs
from rig import BUILD, CLIENT, HSA, PODMAN, SOURCE, STORAGE, binaries, build, debian, finished, output, part, wait_until

MARK = "FRACGPU_TEST_NODE"
# kubelet sets these, and goes on where they are so already.
SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
APP, NODE_IMAGE, PAUSE = "docker.io/library/app:1", "docker.io/library/fracgpu:node", "docker.io/library/pause:1"


def apart(run_again):
    """Runs the tests again apart from the machine, where it does nothing."""
    if os.environ.get(MARK):
        return
    for name in ("kubelet", "kube-scheduler", "kube-controller-manager"):
        if not os.access(f"{programs()}/{name}", os.X_OK):
            raise unittest.SkipTest(f"no {name} beside kube-apiserver")
    for name in ("etcd-3.5", "kubectl-1.36", "containerd-2"):
        part(name)  # there is no network inside
    folder = tempfile.mkdtemp(dir=STORAGE)
    try:
        images(folder)
        layers = " && ".join(f"mkdir -p {folder}/upper{path} {folder}/work{path} && mount -t overlay -o lowerdir={path},"
                             f"upperdir={folder}/upper{path},workdir={folder}/work{path} overlay {path}"
                             for path in ("/etc", "/var/lib"))
        settings = " && ".join(f"echo {value} >{folder}/{name.replace('/', '-')} && mount --bind "
                               f"{folder}/{name.replace('/', '-')} /proc/sys/{name}" for name, value in SETTINGS.items())
        script = (f"{layers} && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && {settings} && "
                  'ip link set lo up && mount --make-rshared / && exec "$@"')
        run_again("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
                  "sh", "-c", script, "sh", env={**os.environ, MARK: folder, "TMPDIR": folder},
                  preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    finally:
        for group in glob.glob(f"/sys/fs/cgroup/{os.path.basename(folder)}") + glob.glob(
                f"/sys/fs/cgroup/*/{os.path.basename(folder)}"):
            subprocess.run(["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def images(folder):
    """What pods are made of: a client over the simulated GPU, the node's image, and what holds a pod's namespaces."""
    context = f"{folder}/context"
    shutil.copytree(f"{BUILD}/sim", f"{context}/sim")
    shutil.copy(CLIENT, f"{context}/client")
    shutil.copy(HSA, f"{context}/hsa_program")
    # For examples that ask PyTorch how much memory there is.
    with open(f"{context}/python", "w", encoding="ascii") as file:
        os.chmod(file.fileno(), 0o755)
        file.write("#!/bin/sh\nexec /client init retain meminfo\n")
    with open(f"{context}/pause.c", "w", encoding="ascii") as file:
        file.write("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    output(["cc", "-static", "-o", f"{context}/pause", f"{context}/pause.c"])
    for name, text in (("app", f"FROM {debian()}\nCOPY sim /sim\nCOPY client hsa_program /\nCOPY python /usr/bin/python\n"
                               "ENV LD_LIBRARY_PATH=/sim FRACGPU_SIM_NODE=/node\n"),
                       ("pause", "FROM scratch\nCOPY pause /pause\nENTRYPOINT [\"/pause\"]\n")):
        with open(f"{context}/{name}.Dockerfile", "w", encoding="ascii") as file:
            file.write(text)
    for image, dockerfile, options, more in (
            (APP, f"{context}/app.Dockerfile", [], {}), (PAUSE, f"{context}/pause.Dockerfile", [], {}),
            (NODE_IMAGE, f"{SOURCE}/containers/Dockerfile", ["--target=node", *binaries()], {"BUILDER": debian()})):
        where = context if dockerfile.startswith(context) else SOURCE
        status, said = build(image, dockerfile, *options, context=where, **more)
        assert status == 0, said
        archive = f"{folder}/{os.path.basename(image).partition(':')[0]}.tar"
        output([*PODMAN, "save", "--quiet", "--format", "oci-archive", "-o", archive, image])


class Node(ApiServer):
    """A cluster of one node, on which pods run. They reach the API server where pods of any cluster do."""

    address, wanted_port = "0.0.0.0", 443

    def __init__(self):
        folder = os.environ[MARK]
        output(["ip", "address", "add", "10.0.0.1/32", "dev", "lo"])
        super().__init__()
        self.node = folder
        parts = f"{part('containerd-2')}/usr"
        os.environ["PATH"] = f"{parts}/bin:{os.environ['PATH']}"
        os.makedirs(f"{folder}/net")
        with open(f"{folder}/net/10-pods.conflist", "w", encoding="ascii") as file:
            json.dump({"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": {
                "type": "host-local", "ranges": [[{"subnet": "10.254.77.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}, file)
        with open(f"{folder}/containerd.toml", "w", encoding="ascii") as file:
            file.write(f"""version = 3
root = "{folder}/containerd"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{parts}/lib/cni"]
  conf_dir = "{folder}/net"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
""")
        self.child("containerd", "containerd", "--config", f"{folder}/containerd.toml")
        wait_until(lambda: finished(["ctr", "version"])[0] == 0, "containerd answers")
        for archive in glob.glob(f"{folder}/*.tar"):
            output(["ctr", "-n", "k8s.io", "images", "import", archive])
        with open(f"{folder}/kubelet.json", "w", encoding="ascii") as file:
            json.dump({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                       "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "cgroupDriver": "cgroupfs",
                       "cgroupRoot": f"/{os.path.basename(folder)}", "cgroupsPerQOS": False, "enforceNodeAllocatable": [],
                       "failCgroupV1": False, "failSwapOn": False, "authentication": {
                           "anonymous": {"enabled": False}, "webhook": {"enabled": False}},
                       "authorization": {"mode": "AlwaysAllow"}, "readOnlyPort": 0, "healthzPort": 0,
                       "podLogsDir": f"{folder}/logs", "localStorageCapacityIsolation": False,
                       "imageGCHighThresholdPercent": 100, "resolvConf": "",
                       "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "1Mi"}}, file)
        self.kubelet = self.start_kubelet()
        self.loop("kube-scheduler")
        self.controllers("*")
        self.wait_for_node()

    def start_kubelet(self):
        return self.run("kubelet", "--config", f"{self.node}/kubelet.json", "--hostname-override", "node", "--node-labels",
                        "fracgpu.dev/node=true")

    def restart_kubelet(self, meanwhile=lambda: None):
        """As by a kill of the kernel's. The pods stay; what kubelet had in mind is gone."""
        self.stop_all([self.kubelet])
        meanwhile()
        self.kubelet = self.start_kubelet()
        self.wait_for_node()

    def wait_for_node(self):
        ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}"
        try:
            wait_until(lambda: self.kubectl("get", "nodes", "-o", ready)[1] == "True", "the node is ready")
        except AssertionError:
            print(self.log("kubelet")[-2000:])
            raise

    def logs(self, pod, container, namespace="default", start=0):
        """What a container has written so far, since its start of that number."""
        found = glob.glob(f"{self.node}/logs/{namespace}_{pod}_*/{container}/{start}.log")
        if not found:
            return ""
        with open(found[0], encoding="utf-8") as file:
            return "".join(line.split(" ", 3)[3] for line in file)

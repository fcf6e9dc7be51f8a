"""A cluster for tests of the driver for claims: a real kubelet and scheduler, over simulated GPUs.

The cluster is set up by the page's own commands. GPUs come into containers by CDI devices of the vendors' names, as
the vendors' toolkits write them; the driver sees it by two mounts that are patched in, and is otherwise as it is shipped.
"""
import functools
import glob
import json
import os
import re
import shlex

from kubelet import APP, Node
from rig import BUILD, Machine, blocks, output, wait_until

PYTORCH = "docker.io/pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
TEAM = "team"
CLIENT = "/client init retain meminfo"
KFD = "/sim/libsimkfd.so"
PATIENCE_S = 240  # a restart is put off by kubelet for up to a minute


class Cluster(Node):
    """With simulated GPUs: two of 40 GiB, one in MIG mode, one of AMD's in eight partitions; and whatever the page installs."""

    def __init__(self):
        self.machine = Machine("2xa100-40gb+h100-80gb-mig+mi300x-cpx-nps4")
        self.uuid = self.machine.uuids()[0]
        status, out, err = self.machine.fracgpu("dra", "--node-name", "node", "--dry-run")
        assert status == 0, err
        devices = [device["attributes"] for device in json.loads(out)["items"][0]["spec"]["devices"]]
        uuids = [each["uuid"]["string"] for each in devices if each["vendor"]["string"] == "nvidia"]
        self.instance = next(uuid for uuid in uuids if uuid.startswith("MIG-"))
        # NVIDIA's bring in the whole machine, so that what a claim does not name is there, too. Programs take a whole GPU.
        self.vendor_devices("nvidia", {uuid: [f"CUDA_VISIBLE_DEVICES={uuid if uuid.startswith('GPU-') else self.uuid}"]
                                       for uuid in uuids})
        # AMD's bring in KFD, and the one render node.
        parts = [i for i, device in enumerate(self.shown()) if device["vendor"] == "amd"]
        self.vendor_devices("amd", {str(i): [f"LD_PRELOAD={KFD}", "FRACGPU_SIM_HIDDEN=" + ",".join(
            str(other) for other in parts if other != part)] for i, part in enumerate(parts)})
        self.names = set()
        super().__init__()
        output(["ctr", "-n", "k8s.io", "images", "tag", APP, PYTORCH])
        self.follow()

    def vendor_devices(self, vendor, environments):
        # Beside the node lies what it shows of /sys.
        mounts = [{"hostPath": f"{self.machine.node}{end}", "containerPath": f"/node{end}", "options": ["rw", "bind"]}
                  for end in ("", ".sys")]
        os.makedirs("/etc/cdi", exist_ok=True)
        with open(f"/etc/cdi/{vendor}.json", "w", encoding="ascii") as file:
            json.dump({"cdiVersion": "0.5.0", "kind": f"{vendor}.com/gpu", "devices": [
                {"name": name, "containerEdits": {"mounts": mounts, "env": env}} for name, env in environments.items()]}, file)

    def shown(self):
        """The simulated GPUs with their own accounts."""
        return json.loads(output([f"{BUILD}/tests/sim/simnode", "show", self.machine.node, "--json"]))["devices"]

    def follow(self):
        """Does what the page says, word by word; the image was built by its first line already."""
        (block,) = blocks("In Kubernetes by claims")
        for line in block.splitlines():
            if line.startswith("docker build"):
                assert "--target node -t fracgpu:node" in line, line
                continue
            status, out, err = self.kubectl(*shlex.split(line)[1:])
            assert status == 0, f"{line}: {out} {err}\n{self.trouble()}"
            if " -k " in line:
                self.simulate()

    def simulate(self):
        """Lets the driver see the simulated GPU."""
        volumes = {"sim": f"{BUILD}/sim", "node": self.machine.node, "node.sys": f"{self.machine.node}.sys"}
        patch = {"spec": {"template": {"spec": {
            "volumes": [{"name": name.replace(".", "-"), "hostPath": {"path": path}} for name, path in volumes.items()],
            "containers": [{
                "name": "driver", "volumeMounts": [{"name": name.replace(".", "-"), "mountPath": f"/{name}"} for name in volumes],
                "env": [{"name": "LD_LIBRARY_PATH", "value": "/sim"}, {"name": "LD_PRELOAD", "value": KFD},
                        {"name": "FRACGPU_SIM_NODE", "value": "/node"}]}]}}}}
        status, out, err = self.kubectl("-n", "fracgpu", "patch", "daemonset", "fracgpu-dra", "--patch", json.dumps(patch))
        assert status == 0, f"{out} {err}"
        self.wait_for_driver()

    def wait_for_driver(self):
        def ready():
            status = self.send("GET", "/apis/apps/v1/namespaces/fracgpu/daemonsets/fracgpu-dra")[1]["status"]
            return status.get("updatedNumberScheduled") == 1 and status.get("numberReady") == 1
        try:
            wait_until(ready, "the driver is ready", PATIENCE_S)
        except AssertionError:
            print(self.trouble())
            raise

    def trouble(self):
        """What helps to find out why something does not run."""
        said = self.kubectl("describe", "pods", "-A")[1][-6000:]
        for name in ("kube-controller-manager", "kube-scheduler", "kubelet"):
            said += f"\n{name}\n{self.log(name)[-1500:]}"
        for path in glob.glob(f"{self.node}/logs/fracgpu_fracgpu-dra-*/*/*.log"):
            with open(path, encoding="utf-8") as file:
                said += f"\n{path}\n{file.read()[-3000:]}"
        return said

    def make_here(self, path, what):
        status, said = self.send("POST", f"/{path}", what)
        assert status == 201, said

    def claim(self, name, gpu=None, mig=None, amd=None, config=None, template=False):
        """Makes a claim for so much of the first GPU, a MIG instance and a partition of AMD's, or a template for such."""
        asked = {"gpu": ("gpu", "gpu", gpu), "mig": ("partition", "mig", mig), "amd": ("partition", "partition", amd)}
        known = "device.attributes['fracgpu.dev']"
        first = f" && {known}.uuid == '{self.uuid}'"
        requests = [{"name": request, "exactly": {
            "deviceClassName": f"{device_class}.fracgpu.dev", "capacity": {"requests": {"memory": amount}},
            "selectors": [{"cel": {"expression": f"{known}.type == '{kind}'{first if kind == 'gpu' else ''}"}}]}}
                    for request, (device_class, kind, amount) in asked.items() if amount]
        spec = {"devices": {"requests": requests, **({"config": config} if config else {})}}
        kind = "ResourceClaimTemplate" if template else "ResourceClaim"
        self.make_here(f"apis/resource.k8s.io/v1/namespaces/{TEAM}/{kind.lower()}s", {
            "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"spec": spec} if template else spec})

    @staticmethod
    def pod_spec(*commands, claim=None, template=None, init=(), sidecars=(), **more):
        """A pod as namespaces at "restricted" take it, with a container for each command."""
        def containers(start, all_commands, **others):
            return [{"name": f"{start}{i}", "image": APP, "command": ["sh", "-c", command], "securityContext": RESTRICTED,
                     "resources": {"claims": [{"name": "gpu"}]}, **others, **more.get("container", {})}
                    for i, command in enumerate(all_commands)]
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        return {"containers": containers("c", commands),
                "initContainers": containers("s", sidecars, restartPolicy="Always") + containers("i", init),
                "restartPolicy": more.get("restart", "Never"), "terminationGracePeriodSeconds": 0,
                "volumes": more.get("volumes", []),
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "resourceClaims": [{"name": "gpu", **source}]}

    def pod(self, name, *commands, **more):
        """Makes a pod of a name that none had before: what that one wrote would be taken for what this one writes."""
        assert name not in self.names, name
        self.names.add(name)
        self.make_here(f"api/v1/namespaces/{TEAM}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                                                          "spec": self.pod_spec(*commands, **more)})

    def pods_of(self, app):
        """The names of the pods of a Deployment or a Job."""
        found = self.send("GET", f"/api/v1/namespaces/{TEAM}/pods?labelSelector=app%3D{app}")[1]["items"]
        return [each["metadata"]["name"] for each in found]

    def devices_of(self, claim):
        """What the claim's status says of its devices."""
        return self.send("GET", f"/apis/resource.k8s.io/v1/namespaces/{TEAM}/resourceclaims/{claim}")[1]["status"].get("devices", [])

    def phase(self, name):
        return self.send("GET", f"/api/v1/namespaces/{TEAM}/pods/{name}")[1]["status"]["phase"]

    def told(self, name, pattern, container="c0"):
        """Waits until the container has written that."""
        try:
            wait_until(lambda: re.search(pattern, self.logs(name, container, TEAM)), f"{name} writes {pattern}", PATIENCE_S)
        except AssertionError:
            print(self.logs(name, container, TEAM), self.trouble())
            raise
        return re.search(pattern, self.logs(name, container, TEAM))

    def total(self, name, container="c0"):
        return int(self.told(name, r"total=(\d+)", container).group(1))

    def event(self, name, pattern, kind="Pod"):
        """Waits for an event about a pod, or what `kind` is; it reads "type reason message"."""
        def happened():
            events = self.send("GET", f"/api/v1/namespaces/{TEAM}/events")[1]["items"]
            return any((each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name) and
                       re.search(pattern, f"{each['type']} {each['reason']} {each.get('message', '')}") for each in events)
        try:
            wait_until(happened, f"an event of {name} says {pattern}", PATIENCE_S)
        except AssertionError:
            print(self.trouble())
            raise

    def delete(self, *pods):
        for name in pods:
            self.send("DELETE", f"/api/v1/namespaces/{TEAM}/pods/{name}")
        wait_until(lambda: all(self.send("GET", f"/api/v1/namespaces/{TEAM}/pods/{name}")[0] == 404 for name in pods),
                   f"{pods} are gone", PATIENCE_S)

    def drivers(self):
        """PIDs of the driver's process."""
        return self.processes(lambda program, words: program.endswith("/fracgpu-dra") and b"dra" in words)

    @staticmethod
    def processes(wanted):
        """PIDs of those whose program and arguments are wanted."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    words = file.read().split(b"\0")
                program = os.readlink(path.replace("cmdline", "exe"))
            except OSError:
                continue
            if wanted(program, words):
                found.append(int(path.split("/")[2]))
        return found

    def high_water(self):
        return sum(each["high_water"] for each in self.shown()[0]["tenants"].values())


@functools.lru_cache
def cluster():
    return Cluster()


def left():
    """What is on the node for claims."""
    return (os.listdir("/run/fracgpu/claims") + glob.glob("/var/run/cdi/fracgpu.dev-claim-*") +
            glob.glob("/dev/shm/fracgpu-claim-*"))


def nothing_is_left():
    try:
        wait_until(lambda: not left(), "nothing is left on the node", PATIENCE_S)
    except AssertionError:
        print(left(), cluster().trouble())
        raise

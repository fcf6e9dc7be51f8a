"""claims_test.py BUILD: the driver for claims on a real kubelet and scheduler, over a simulated GPU.

The cluster is set up by the page's own commands. The GPU comes into containers by a CDI device of the vendor's name, as
the vendor's toolkit writes them; the driver sees it by two mounts that are patched in, and is otherwise as it is shipped.
"""
import functools
import glob
import json
import os
import re
import shlex
import signal
import sys
import urllib.request

from api_server import KUBERNETES, Skipped
from kubelet import APP, Node, apart
from rig import BUILD, DRIVER, GIB, Machine, blocks, main, needs, output, wait_until

PYTORCH = "docker.io/pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
TEAM = "team"
CLIENT = "/client init retain meminfo"
PATIENCE_S = 240  # a restart is put off by kubelet for up to a minute


class Cluster(Node):
    """With a simulated GPU of 40 GiB and one in MIG mode, and whatever the page installs."""

    def __init__(self, folder):
        self.machine = Machine("a100-40gb+h100-80gb-mig")
        self.uuid = self.machine.uuids()[0]
        status, out, err = self.machine.fracgpu("dra", "--node-name", "node", "--dry-run")
        assert status == 0, err
        self.uuids = [device["attributes"]["uuid"]["string"] for device in json.loads(out)["items"][0]["spec"]["devices"]]
        self.instance = next(uuid for uuid in self.uuids if uuid.startswith("MIG-"))
        # Each brings in the whole machine, so that what a claim does not name is there, too. Programs take the whole GPU.
        edits = {"mounts": [{"hostPath": self.machine.node, "containerPath": "/node", "options": ["rw", "bind"]}],
                 "env": [f"CUDA_VISIBLE_DEVICES={self.uuid}"]}
        os.makedirs("/etc/cdi", exist_ok=True)
        with open("/etc/cdi/nvidia.json", "w", encoding="ascii") as file:
            json.dump({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
                       "devices": [{"name": uuid, "containerEdits": edits} for uuid in self.uuids]}, file)
        super().__init__(folder)
        output(["ctr", "-n", "k8s.io", "images", "tag", APP, PYTORCH])
        self.follow()

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
        volumes = {"sim": f"{BUILD}/sim", "node": self.machine.node}
        patch = {"spec": {"template": {"spec": {
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in volumes.items()],
            "containers": [{
                "name": "driver", "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in volumes],
                "env": [{"name": "LD_LIBRARY_PATH", "value": "/sim"}, {"name": "FRACGPU_SIM_NODE", "value": "/node"}]}]}}}}
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

    def claim(self, name, memory, config=None, template=False, part=None):
        """Makes a claim for so much of a GPU, and perhaps of an instance, or a template for such."""
        asked = {"gpu": memory, **({"partition": part} if part else {})}
        requests = [{"name": kind, "exactly": {"deviceClassName": f"{kind}.fracgpu.dev",
                                               "capacity": {"requests": {"memory": amount}}}}
                    for kind, amount in asked.items()]
        spec = {"devices": {"requests": requests, **({"config": config} if config else {})}}
        kind = "ResourceClaimTemplate" if template else "ResourceClaim"
        self.make_here(f"apis/resource.k8s.io/v1/namespaces/{TEAM}/{kind.lower()}s", {
            "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"spec": spec} if template else spec})

    def pod(self, name, *commands, claim=None, template=None, init=(), **more):
        """Makes a pod as namespaces at "restricted" take them, with a container for each command."""
        def containers(start, all_commands):
            return [{"name": f"{start}{i}", "image": APP, "command": ["sh", "-c", command], "securityContext": RESTRICTED,
                     "resources": {"claims": [{"name": "gpu"}]}, **more.get("container", {})}
                    for i, command in enumerate(all_commands)]
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        self.make_here(f"api/v1/namespaces/{TEAM}/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
                "containers": containers("c", commands), "initContainers": containers("i", init),
                "restartPolicy": more.get("restart", "Never"), "terminationGracePeriodSeconds": 0, "volumes": more.get("volumes", []),
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "resourceClaims": [{"name": "gpu", **source}]}})

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

    def event(self, name, pattern):
        """Waits for an event about a pod."""
        def happened():
            events = self.send("GET", f"/api/v1/namespaces/{TEAM}/events")[1]["items"]
            return any(each["involvedObject"]["name"] == name and re.search(pattern, each.get("message", ""))
                       for each in events)
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
        used = json.loads(output([f"{BUILD}/tests/sim/simnode", "show", self.machine.node, "--json"]))["devices"][0]
        return sum(each["high_water"] for each in used["tenants"].values())


@functools.lru_cache
def cluster():
    return Cluster(FOLDER)


def left():
    """What is on the node for claims."""
    return (os.listdir("/run/fracgpu/claims") + glob.glob("/var/run/cdi/fracgpu.dev-claim-*") +
            glob.glob("/dev/shm/fracgpu-claim-*"))


def nothing_is_left():
    try:
        wait_until(lambda: not left(), "nothing is left on the node")
    except AssertionError:
        print(left(), cluster().trouble())
        raise


def test_the_page_leads_to_a_capped_pod():
    # Its last line waits for the pod.
    assert cluster().total("train", "train") == 4 * GIB
    slices = cluster().send("GET", "/apis/resource.k8s.io/v1/resourceslices")[1]["items"]
    (devices,) = [each["spec"]["devices"] for each in slices]
    (device,) = [each for each in devices if each["attributes"]["type"] == {"string": "gpu"}]
    assert len(devices) == 5, devices
    assert device["attributes"]["uuid"] == {"string": cluster().uuid}, device
    assert device["attributes"]["productName"]["string"].startswith("NVIDIA A100"), device
    assert slices[0]["metadata"]["ownerReferences"][0]["kind"] == "Node", slices
    cluster().delete("train")
    nothing_is_left()


def test_the_scheduler_counts_memory():
    each = cluster()
    for memory in (10, 30):
        each.claim(f"t{memory}", f"{memory}Gi", template=True)
    each.pod("first", f"{CLIENT}; exec sleep 600", template="t30")
    assert each.total("first") == 30 * GIB
    each.pod("second", CLIENT, template="t30")
    each.event("second", "cannot allocate all claims|insufficient|unschedulable")
    each.pod("small", CLIENT, template="t10")
    assert each.total("small") == 10 * GIB
    assert each.phase("second") == "Pending"
    each.delete("first")
    assert each.total("second") == 30 * GIB
    each.delete("second", "small")
    nothing_is_left()


def test_nothing_inside_changes_the_cap():
    each = cluster()
    each.claim("t4", "4Gi", template=True)
    lies = [{"name": "FRACGPU_MEMORY_LIMIT", "value": "80GiB"}, {"name": "FRACGPU_TENANT", "value": "another"}]
    each.pod("export", f"export FRACGPU_MEMORY_LIMIT=80GiB FRACGPU_TENANT=mine; {CLIENT} fill 256MiB", template="t4",
             container={"env": lies})
    assert each.total("export") == 4 * GIB
    each.told("export", "fill 268435456 rc=2")
    names = {"etc": "/etc/fracgpu", "shm": "/dev/shm", "pre": "/etc/ld.so.preload"}
    each.make_here(f"api/v1/namespaces/{TEAM}/configmaps", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"},
        "data": {"limit.conf": "80GiB", "ld.so.preload": "", "tenant": "another"}})
    each.pod("mounts", f"{CLIENT} fill 256MiB; cat /etc/fracgpu/tenant", template="t4", volumes=[
        {"name": "etc", "configMap": {"name": "own"}}, {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "pre", "configMap": {"name": "own", "items": [{"key": "ld.so.preload", "path": "ld.so.preload"}]}}],
             container={"volumeMounts": [{"name": name, "mountPath": path, **(
                 {"subPath": "ld.so.preload"} if name == "pre" else {})} for name, path in names.items()]})
    assert each.total("mounts") == 4 * GIB
    each.told("mounts", "fill 268435456 rc=2")
    each.told("mounts", "claim-")
    each.delete("export", "mounts")
    nothing_is_left()


def test_pods_of_one_claim_share_one_cap():
    each = cluster()
    each.claim("shared", "8Gi")
    each.pod("one", "sleep 600 | /client init retain meminfo alloc 5GiB wait", claim="shared")
    each.told("one", "ready")
    before = each.high_water()
    each.pod("two", "/client init retain meminfo fill 256MiB", claim="shared")
    assert (each.total("one"), each.total("two")) == (8 * GIB, 8 * GIB)
    each.told("two", "fill 268435456 rc=2")
    assert each.high_water() - before < 3 * GIB
    # The node's own command sees them, whichever pod they are in.
    (ledger,) = glob.glob("/dev/shm/fracgpu-claim-*")
    status, out, err = each.machine.fracgpu("status", "--all", "--json")
    assert status == 0, err
    (tenant,) = [one for one in json.loads(out)["tenants"] if one["tenant"] == os.path.basename(ledger)[8:]]
    assert tenant, out
    each.delete("one", "two")
    nothing_is_left()


def test_containers_of_a_pod_share_one_cap():
    each = cluster()
    each.claim("t8", "8Gi", template=True)
    each.pod("many", "sleep 600 | /client init retain alloc 5GiB wait >/dev/shm/said",
             "until grep -q ready /dev/shm/said; do sleep 0.1; done; /client init retain fill 256MiB meminfo",
             init=[CLIENT], template="t8")
    assert each.total("many", "i0") == 8 * GIB
    assert each.total("many", "c1") == 8 * GIB
    each.told("many", "fill 268435456 rc=2", "c1")
    each.delete("many")
    nothing_is_left()


def test_a_claim_of_several_devices_has_a_cap_on_each_and_nothing_elsewhere():
    each = cluster()
    each.claim("both", "4Gi", part="2Gi")
    named = r"sed -n 's/^\([GM][PI][UG]-[^=]*\)=.*/\1/p' /etc/fracgpu/limit.conf"
    each.pod("both", f"for d in $({named}); do CUDA_VISIBLE_DEVICES=$d {CLIENT} fill 256MiB; done; echo end", claim="both")
    each.told("both", "end")
    said = each.logs("both", "c0", TEAM)
    assert sorted(map(int, re.findall(r"total=(\d+)", said))) == [2 * GIB, 4 * GIB], said
    each.pod("other", f"CUDA_VISIBLE_DEVICES={each.instance} /client init retain; echo end", template="t4")
    each.told("other", r"retain rc=2(.|\n)*end")
    each.delete("both", "other")
    nothing_is_left()


def test_many_pods_at_once():
    each = cluster()
    each.claim("t1", "1Gi", template=True)
    names = [f"many{i}" for i in range(20)]
    for name in names:
        each.pod(name, CLIENT, template="t1")
    assert {each.total(name) for name in names} == {GIB}
    each.delete(*names)
    nothing_is_left()
    (pod,) = each.send("GET", "/api/v1/namespaces/fracgpu/pods")[1]["items"]

    def page(path):
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9411/{path}", timeout=60) as answer:
            return answer.read().decode()
    assert page("readyz") == "ok\n"
    metrics = dict(re.findall(r"^fracgpu_dra_(\w+) (\d+)$", page("metrics"), re.MULTILINE))
    assert metrics["claims"] == "0" and metrics["devices"] == "5" and int(metrics["prepared_total"]) >= 20, metrics


def test_kubelet_may_be_killed():
    each = cluster()
    each.claim("stays", "8Gi")
    each.pod("stays", "sleep 600 | /client init retain alloc 5GiB wait", claim="stays")
    each.told("stays", "ready")
    each.restart_kubelet()
    each.pod("joins", f"{CLIENT} fill 256MiB", claim="stays")
    assert each.total("joins") == 8 * GIB
    assert int(each.told("joins", r"free=(\d+)").group(1)) < 3 * GIB
    each.delete("stays", "joins")
    nothing_is_left()


def test_a_node_that_starts_anew_prepares_its_claims_again():
    each = cluster()
    each.pod("stays", f"{CLIENT}; exec sleep 601", template="t4", restart="Always")
    assert each.total("stays") == 4 * GIB

    def lose_all():
        """What a node loses that is started anew: every process of a pod, and what lies in memory."""
        for pid in each.processes(lambda program, words: program == "/pause" or words[:2] == [b"sleep", b"601"]):
            os.kill(pid, signal.SIGKILL)
        for pid in each.drivers():
            os.kill(pid, signal.SIGKILL)
        for path in (*glob.glob("/run/fracgpu/claims/*/*"), *glob.glob("/var/run/cdi/fracgpu.dev-claim-*"),
                     *glob.glob("/dev/shm/fracgpu-claim-*")):
            os.unlink(path)
        for path in glob.glob("/run/fracgpu/claims/*"):
            os.rmdir(path)
    each.restart_kubelet(meanwhile=lose_all)
    wait_until(lambda: re.search(rf"total={4 * GIB}\b", each.logs("stays", "c0", TEAM, start=1)), "the next one is capped",
               PATIENCE_S)
    each.delete("stays")
    nothing_is_left()


def test_slices_that_are_lost_come_again():
    each = cluster()

    def slices():
        return each.send("GET", "/apis/resource.k8s.io/v1/resourceslices")[1]["items"]
    before = slices()
    status, said = each.send("DELETE", "/apis/resource.k8s.io/v1/resourceslices")
    assert status == 200, said
    wait_until(slices, "the driver publishes again", PATIENCE_S)
    assert [one["spec"]["devices"] for one in slices()] == [one["spec"]["devices"] for one in before]


def test_without_the_driver_no_pod_starts_and_none_is_uncapped():
    each = cluster()
    each.pod("before", f"{CLIENT}; exec sleep 600", template="t4")
    assert each.total("before") == 4 * GIB
    # Ended as by the kernel, and started again by kubelet: what was prepared stays.
    (pid,) = each.drivers()
    os.kill(pid, signal.SIGKILL)
    each.pod("meanwhile", CLIENT, template="t4")
    assert each.total("meanwhile") == 4 * GIB
    # Away for as long as nobody brings it back; pods end in the meantime.
    status, out, err = each.kubectl("-n", "fracgpu", "delete", "daemonset", "fracgpu-dra", "--wait")
    assert status == 0, f"{out} {err}"
    wait_until(lambda: not each.drivers(), "the driver is gone")
    each.pod("waits", CLIENT, template="t4")
    each.event("waits", "fracgpu.dev")
    assert not each.logs("waits", "c0", TEAM) and each.phase("waits") == "Pending"
    each.send("DELETE", f"/api/v1/namespaces/{TEAM}/pods/before")
    status, out, err = each.kubectl("apply", "-k", f"{KUBERNETES}/dra")
    assert status == 0, f"{out} {err}"
    each.simulate()
    assert each.total("waits") == 4 * GIB
    each.delete("before", "meanwhile", "waits")
    nothing_is_left()


def test_bad_claims_are_refused_with_a_reason():
    each = cluster()
    each.claim("zero", "0")
    each.claim("much", "400Gi")
    each.claim("opaque", "4Gi", [{"opaque": {"driver": "fracgpu.dev", "parameters": {"apiVersion": "x/v1", "kind": "X"}}}])
    for name in ("zero", "much", "opaque"):
        each.pod(name, CLIENT, claim=name)
    each.event("zero", "request 'gpu' asks for '0' of memory; write an amount as 4Gi")
    each.event("much", "cannot allocate all claims|insufficient")
    each.event("opaque", "the claim has an opaque configuration for fracgpu.dev, which understands none")
    each.delete("zero", "much", "opaque")
    nothing_is_left()


def test_an_extended_resource_is_a_whole_gpu():
    each = cluster()
    each.make_here(f"api/v1/namespaces/{TEAM}/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {
            "restartPolicy": "Never", "securityContext": {"runAsNonRoot": True, "runAsUser": 1000,
                                                          "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c0", "image": APP, "command": CLIENT.split(), "securityContext": RESTRICTED,
                            "resources": {"limits": {"fracgpu.dev/gpu": "1"}}}]}})
    assert each.total("plain") > 39 * GIB
    each.delete("plain")
    nothing_is_left()


needs()
if not os.path.exists(DRIVER):
    print("skipped: fracgpu-dra is not built here (containers/packages.sh node)")
    sys.exit(77)
try:
    FOLDER = apart()
    cluster()
except Skipped as why:
    print("skipped:", why)
    sys.exit(77)
main([test for name, test in list(globals().items()) if name.startswith("test_")])

"""The driver for claims, as pods and an administrator meet it."""
import glob
import json
import os
import re
import signal
import urllib.request

import pytest

from api_server import KUBERNETES
from claims_cluster import APP, CLIENT, PATIENCE_S, RESTRICTED, TEAM, cluster, nothing_is_left
from rig import BUILD, DRIVER, GIB, wait_until

pytestmark = [pytest.mark.usefixtures("claims"),
              pytest.mark.skipif(not os.path.exists(DRIVER), reason="fracgpu-dra is not built: containers/packages.sh node")]
PARAMETERS = {"apiVersion": "fracgpu.dev/v1", "kind": "ClaimParameters"}


def test_the_page_leads_to_a_capped_pod():
    # Its last line waits for the pod.
    assert cluster().total("train", "train") == 4 * GIB
    slices = cluster().send("GET", "/apis/resource.k8s.io/v1/resourceslices")[1]["items"]
    (devices,) = [each["spec"]["devices"] for each in slices]
    device, other = sorted((each for each in devices if each["attributes"]["type"] == {"string": "gpu"}),
                           key=lambda each: each["attributes"]["uuid"]["string"] != cluster().uuid)
    assert len(devices) == 14, devices
    assert device["attributes"]["uuid"] == {"string": cluster().uuid} != other["attributes"]["uuid"], device
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
    assert tenant["claim"] == f"{TEAM}/shared", out
    assert f"claim {TEAM}/shared" in each.machine.fracgpu("status", "--all")[1]
    (device,) = each.devices_of("shared")
    assert device["data"] == {"memory": "8Gi", "tenant": tenant["tenant"]} and device["device"] == each.uuid.lower(), device
    (condition,) = device["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True") and "capped at 8Gi" in condition["message"], condition
    each.event("shared", f"Normal Capped {each.uuid.lower()}: capped at 8Gi of memory", kind="ResourceClaim")
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


def test_init_containers_and_sidecars_share_it():
    each = cluster()
    each.pod("sidecar", "until grep -q ready /dev/shm/said; do sleep 0.1; done; /client init retain fill 256MiB meminfo",
             sidecars=["sleep 600 | /client init retain alloc 5GiB wait >/dev/shm/said"], init=[CLIENT], template="t8")
    assert each.total("sidecar", "i0") == 8 * GIB
    assert each.total("sidecar") == 8 * GIB
    each.told("sidecar", "fill 268435456 rc=2")
    wait_until(lambda: each.phase("sidecar") == "Succeeded", "the pod ends with its last container", PATIENCE_S)
    each.delete("sidecar")
    nothing_is_left()


def test_a_deployment_and_a_job():
    each = cluster()
    each.claim("t1", "1Gi", template=True)

    def controlled(app, restart, command):
        return {"metadata": {"labels": {"app": app}}, "spec": each.pod_spec(command, template="t1", restart=restart)}
    each.make_here(f"apis/apps/v1/namespaces/{TEAM}/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "serve"}},
            "template": controlled("serve", "Always", f"{CLIENT}; exec sleep 600")}})
    each.make_here(f"apis/batch/v1/namespaces/{TEAM}/jobs", {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {
            "completions": 2, "parallelism": 2, "template": controlled("train", "Never", CLIENT)}})
    job = f"/apis/batch/v1/namespaces/{TEAM}/jobs/train"
    wait_until(lambda: each.send("GET", job)[1]["status"].get("succeeded") == 2, "the job is done", PATIENCE_S)
    assert [each.total(name) for name in each.pods_of("train")] == [GIB, GIB]
    wait_until(lambda: len(each.pods_of("serve")) == 2, "the Deployment has its pods", PATIENCE_S)
    first = each.pods_of("serve")
    assert [each.total(name) for name in first] == [GIB, GIB]
    # Of one that is lost another takes the place, under a claim of its own.
    each.delete(first[0])
    (other,) = set(each.pods_of("serve")) - set(first)
    assert each.total(other) == GIB
    for path in (job, f"/apis/apps/v1/namespaces/{TEAM}/deployments/serve"):
        each.send("DELETE", f"{path}?propagationPolicy=Background")
    wait_until(lambda: not each.pods_of("serve") + each.pods_of("train"), "their pods are gone", PATIENCE_S)
    nothing_is_left()


def test_a_container_that_is_added_has_no_gpu():
    each = cluster()
    each.pod("debugged", f"{CLIENT}; exec sleep 600", template="t4")
    assert each.total("debugged") == 4 * GIB
    path = f"/api/v1/namespaces/{TEAM}/pods/debugged/ephemeralcontainers"

    def added(**more):
        return each.send("PATCH", path, {"spec": {"ephemeralContainers": [{
            "name": "debug", "image": APP, "securityContext": RESTRICTED, "targetContainerName": "c0",
            "command": ["sh", "-c", f"{CLIENT}; echo end"], **more}]}}, kind="application/strategic-merge-patch+json")
    # It can have no claim, and the server itself says so. Without one it is given no device, whatever it says of itself.
    status, said = added(resources={"claims": [{"name": "gpu"}]})
    assert status == 422, said
    status, said = added(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "FRACGPU_MEMORY_LIMIT", "value": "80GiB"}])
    assert status == 200, said
    each.told("debugged", "end", "debug")
    assert not re.search("total=[1-9]", each.logs("debugged", "debug", TEAM)), each.logs("debugged", "debug", TEAM)
    each.delete("debugged")
    nothing_is_left()


def test_a_partition_of_amd():
    if not os.path.exists(f"{BUILD}/sim/libhsa-runtime64.so.1"):
        pytest.skip("AMD's runtime is not simulated in this build")
    each = cluster()
    each.claim("amd", amd="4Gi")
    each.pod("amd", "/hsa_program init alloc 3000MiB alloc 2000MiB alloc 900MiB 2>/dev/null; cat /etc/fracgpu/limit.conf", claim="amd")
    each.told("amd", r"init rc=0\nalloc rc=0\nalloc rc=[1-9]\d*\nalloc rc=0\n")
    each.told("amd", f"AMD-[0-9]+={4 * GIB}B")
    assert each.devices_of("amd")[0]["device"].startswith("amd-"), each.devices_of("amd")
    each.delete("amd")
    nothing_is_left()


def test_parameters_of_a_claim():
    each = cluster()
    status, out, err = each.kubectl("apply", "-f", f"{KUBERNETES}/claims/parameters.yaml")
    assert status == 0, f"{out} {err}"
    assert each.total("told", "train") == 4 * GIB
    each.told("told", "info: joined tenant claim-", "train")
    (claim,) = each.send("GET", f"/api/v1/namespaces/{TEAM}/pods/told")[1]["status"]["resourceClaimStatuses"]
    (device,) = each.devices_of(claim["resourceClaimName"])
    assert device["conditions"][0]["status"] == "True", device
    each.delete("told")
    nothing_is_left()


def test_pods_that_are_deleted_in_the_middle_leave_nothing():
    each = cluster()
    names = [f"brief{i}" for i in range(12)]
    for name in names:
        each.pod(name, "while true; do /client init retain fill 64MiB; done", template="t1")
    # One runs for certain, the others are wherever they are.
    each.told(names[0], "rc=2")
    each.delete(*names)
    nothing_is_left()
    wait_until(lambda: all(device["used"] == 0 for device in each.shown()), "no memory is used")


def test_the_driver_may_be_killed():
    each = cluster()
    each.pod("before", f"{CLIENT}; exec sleep 600", template="t4")
    assert each.total("before") == 4 * GIB
    (pid,) = each.drivers()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: each.drivers() not in ([], [pid]), "kubelet starts it again", PATIENCE_S)
    each.wait_for_driver()
    each.pod("after", CLIENT, template="t4")
    assert each.total("after") == 4 * GIB
    each.delete("before", "after")
    nothing_is_left()


NAMED = r"$(sed -n 's/^\([GM][PI][UG]-[^=]*\)=.*/\1/p' /etc/fracgpu/limit.conf)"


def test_a_claim_of_two_gpus_has_a_cap_on_each():
    each = cluster()
    status, out, err = each.kubectl("apply", "-f", f"{KUBERNETES}/claims/two-gpus.yaml")
    assert status == 0, f"{out} {err}"
    assert each.total("twice", "train") == 4 * GIB
    each.pod("twins", f"for d in {NAMED}; do CUDA_VISIBLE_DEVICES=$d {CLIENT} fill 256MiB; done; echo end", template="four-gib-twice")
    each.told("twins", "end")
    said = each.logs("twins", "c0", TEAM)
    assert re.findall(r"total=(\d+)", said) == [str(4 * GIB)] * 2 and said.count("fill 268435456 rc=2") == 2, said
    each.delete("twice", "twins")
    nothing_is_left()


def test_a_claim_of_several_devices_has_a_cap_on_each_and_nothing_elsewhere():
    each = cluster()
    each.claim("both", "4Gi", mig="2Gi")
    each.pod("both", f"for d in {NAMED}; do CUDA_VISIBLE_DEVICES=$d {CLIENT} fill 256MiB; done; echo end", claim="both")
    each.told("both", "end")
    said = each.logs("both", "c0", TEAM)
    assert sorted(map(int, re.findall(r"total=(\d+)", said))) == [2 * GIB, 4 * GIB], said
    each.pod("other", f"CUDA_VISIBLE_DEVICES={each.instance} /client init retain; echo end", template="t4")
    each.told("other", r"retain rc=2(.|\n)*end")
    each.delete("both", "other")
    nothing_is_left()


def test_many_pods_at_once():
    each = cluster()
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
    assert metrics["claims"] == "0" and metrics["devices"] == "14" and int(metrics["prepared_total"]) >= 20, metrics


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


def test_slices_that_are_lost_come_again():
    """At once, by a watch: the driver itself looks twice a minute."""
    each = cluster()

    def slices():
        return each.send("GET", "/apis/resource.k8s.io/v1/resourceslices")[1]["items"]
    before = slices()
    status, said = each.send("DELETE", "/apis/resource.k8s.io/v1/resourceslices")
    assert status == 200, said
    wait_until(slices, "the driver publishes again", PATIENCE_S)
    assert [one["spec"]["devices"] for one in slices()] == [one["spec"]["devices"] for one in before]


def test_bad_claims_are_refused_with_a_reason():
    each = cluster()
    each.claim("zero", "0")
    each.claim("much", "400Gi")
    each.claim("opaque", "4Gi", config=[{"opaque": {"driver": "fracgpu.dev", "parameters": {**PARAMETERS, "priority": 3}}}])
    for name in ("zero", "much", "opaque"):
        each.pod(name, CLIENT, claim=name)
    each.event("zero", "request 'gpu' asks for '0' of memory; write an amount as 4Gi")
    each.event("much", "cannot allocate all claims|insufficient")
    each.event("opaque", "Warning Refused .*has 'priority', which", kind="ResourceClaim")
    each.event("opaque", "has 'priority', which is not understood; accepted: apiVersion: fracgpu.dev/v1, kind: ClaimParameters")
    (device,) = each.devices_of("opaque")
    (condition,) = device["conditions"]
    assert condition["status"] == "False" and "is not understood; accepted:" in condition["message"], condition
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

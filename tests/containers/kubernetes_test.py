"""The policies, overlays and examples, judged by a real API server."""
import base64
import copy
import functools
import glob
import http.server
import json
import os
import re
import ssl
import threading

import pytest

from api_server import KUBERNETES, ApiServer, pod, programs
from rig import GIB, Machine, finished, wait_until

yaml = pytest.importorskip("yaml", reason="the Debian package python3-yaml is not installed")
LIMIT, TENANT = "FRACGPU_MEMORY_LIMIT", "FRACGPU_TENANT"
MEMORY, FRACTION, CLEARML = "fracgpu.dev/memory", "fracgpu.dev/fraction", "clearml-injector/fraction"
MOUNTS = [("/usr/lib/libfracgpu.so", "fracgpu-library", True), ("/etc/ld.so.preload", "fracgpu-preload", True)]
POLICIES = "/apis/admissionregistration.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"


def oldest_emulated():
    """The oldest version that this server can act as."""
    major, minor = re.match(r"Kubernetes v(\d+)\.(\d+)", finished([f"{programs()}/kube-apiserver", "--version"])[1]).groups()
    return f"kube={major}.{int(minor) - 3}"


@functools.lru_cache
def cluster():
    # Expressions may use what CEL had in that version, so that the overlay for older clusters is judged too.
    server = ApiServer("--runtime-config=admissionregistration.k8s.io/v1beta1=true",
                       f"--min-compatibility-version={oldest_emulated()}")
    print("Kubernetes", server.version, flush=True)
    server.apply("base")
    return server


@pytest.fixture(autouse=True, scope="module")
def starts_cluster():
    cluster()


def kai(annotations, labels=None, **spec):
    return pod(labels, annotations, {"schedulerName": "kai-scheduler", **spec})


def all_containers(made):
    return [each for kind in ("containers", "initContainers", "ephemeralContainers") for each in made["spec"].get(kind, [])]


def variables(container, name):
    return [each for each in container.get("env", []) if each["name"] == name]


def expect_capped(made, limit):
    """Every container has the limit once, the pod's own name, and the two files read-only."""
    for container in all_containers(made):
        assert [each.get("value") for each in variables(container, LIMIT)] == [limit], container
        (tenant,) = variables(container, TENANT)
        assert tenant["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid", tenant
        ours = [(each["mountPath"], each["name"], each.get("readOnly")) for each in container["volumeMounts"]
                if each["name"].startswith("fracgpu-")]
        assert ours == MOUNTS, ours
    assert [each["hostPath"] for each in made["spec"]["volumes"] if each["name"].startswith("fracgpu-")] == [
        {"path": "/var/lib/fracgpu/libfracgpu.so", "type": "File"},
        {"path": "/var/lib/fracgpu/ld.so.preload", "type": "File"}], made["spec"]["volumes"]


def admitted(given, limit):
    status, made = cluster().make(given)
    assert status == 201, f"{json.dumps(given)}: {made}"
    expect_capped(made, limit)
    return made


def refused(given, reason):
    """Refused, by one line that says this."""
    status, said = cluster().make(given)
    assert status in (403, 422) and reason in said and "\n" not in said, f"{json.dumps(given)}: {status} {said}"


def examples_hold():
    for file in glob.glob(f"{KUBERNETES}/pods/*.yaml"):
        status, out, err = cluster().kubectl("apply", "--dry-run=server", "-o", "json", "-f", file)
        assert status == 0, f"{file}: {err}"
        made = json.loads(out)
        if os.path.basename(file) == "image.yaml":
            assert not variables(made["spec"]["containers"][0], LIMIT), file
            continue
        said = {**made["metadata"].get("labels", {}), **made["metadata"].get("annotations", {})}
        expect_capped(made, said.get(MEMORY) or said.get(FRACTION) or said["gpu-fraction"])
        names = said.get("fracgpu.dev/host-namespaces") == "true"
        assert made["spec"].get("hostPID", False) == made["spec"].get("hostIPC", False) == names, file


def test_examples_are_admitted_and_capped():
    examples_hold()


def test_every_file_is_of_the_api_and_says_its_version():
    cluster().kubectl("create", "namespace", "nvidia-device-plugin")
    for below in ("base", "v1beta1", "demand", "pods", "plugins"):
        files = glob.glob(f"{KUBERNETES}/{below}/*.yaml")
        assert files, below
        for file in files:
            with open(file, encoding="utf-8") as text:
                assert re.search(r"Kubernetes 1\.\d\d", text.read().split("\napiVersion")[0]), file
            if not file.endswith("kustomization.yaml"):
                status, out, err = cluster().kubectl("apply", "--dry-run=server", "-f", file)
                assert status == 0 and not re.search("warning", err, re.IGNORECASE), f"{file}: {out} {err}"
    with open(f"{KUBERNETES}/plugins/time-slicing.yaml", encoding="utf-8") as text:
        config = yaml.safe_load(yaml.safe_load(text)["data"]["config.yaml"])
    assert all(isinstance(each["replicas"], int) for each in config["sharing"]["timeSlicing"]["resources"]), config


def test_sizes_and_fractions_of_the_library():
    same = {"8GiB": "8GiB", "8Gi": "8GiB", "8gi": "8giB", "8gb": "8gb", "8G": "8G", "8192MiB": "8192MiB", "8.0GB": "8.0GB",
            "8388608Ki": "8388608KiB", "0.0078125TiB": "0.0078125TiB", "8589934592b": "8589934592b", "008GiB": "008GiB"}
    half = ["0.5", "0.500", "00.5", "0.500000000000"]
    other = {"512b": None, "1.5GiB": 1.5, "1048575TiB": None, "100GiB": None, "512MiB": 0.5}
    shares = {"0.05": 2, "0.9": 36, "1.0": 40, "0.125": 5, "0.33": None, "0.000000001": None, "0.123456789": None}
    with Machine("a100-40gb") as machine:
        def cap(limit):
            child = machine.client(f"t{len(machine.children)}", limit, "init retain meminfo wait", until="ready")
            child.communicate("\n")
            said = "".join(child.lines)
            assert "total=" in said, f"the library does not take {limit}: {said}"
            return int(re.search(r"total=(\d+)", said).group(1))

        whole = cap("1.0")
        for text, limit in same.items():
            admitted(pod({MEMORY: text}), limit)
            assert cap(limit) == 8 * GIB, text
        for text in half:
            admitted(pod({FRACTION: text}), text)
            assert cap(text) == whole // 2, text
        for text, size in {**other, **shares}.items():
            admitted(pod({FRACTION if text in shares else MEMORY: text}), text)
            found = cap(text) if text not in ("512b", "0.000000001") else None  # too little for a context
            assert size is None or abs(found - size * GIB) < whole / 1000, f"{text}: {found}"
    admitted(pod({CLEARML: "0.250"}), "0.250")
    admitted(pod({MEMORY: "8GiB", "app": "x"}), "8GiB")


def test_annotations_of_kai():
    for text in ("0.5", ".5", "1.0", "0.123456789"):
        admitted(kai({"gpu-fraction": text}), text)
    admitted(kai({"gpu-memory": "2000"}), "2000MiB")
    admitted(kai({"gpu-fraction": "0.50"}, {FRACTION: "0.5"}), "0.5")
    admitted(kai({"gpu-memory": "8192"}, {MEMORY: "8Gi"}), "8GiB")
    for labels, annotations in (({FRACTION: "0.75"}, {"gpu-fraction": "0.25"}), ({MEMORY: "8GiB"}, {"gpu-memory": "8000"}),
                                ({MEMORY: "8GiB"}, {"gpu-fraction": "0.5"}), ({FRACTION: "0.5"}, {"gpu-memory": "8192"}),
                                ({CLEARML: "0.5"}, {"gpu-fraction": "0.6"})):
        (label, said), (annotation, other) = *labels.items(), *annotations.items()
        refused(kai(annotations, labels), f"label {label} says '{said}' and annotation {annotation} says '{other}': keep the "
                "annotation, by which KAI-scheduler places the pod, and take out the label")
    refused(kai({"gpu-fraction": "0.5", "gpu-memory": "2000"}), "keep one of the annotations gpu-fraction and gpu-memory")
    for text in ("2000MiB", "0", "-1", "1e3", "", "99999999999999999999"):
        refused(kai({"gpu-memory": text}), f"annotation gpu-memory: '{text}' is not understood; write a number of MiB")
    for text in ("2", "0", "0.0", "-0.5", "1.5", "half", "", "0.1234567890123"):
        refused(kai({"gpu-fraction": text}), f"annotation gpu-fraction: '{text}' is no share of a GPU; write one")


def test_other_pods_are_left_alone():
    plain = cluster().make(pod())[1]["spec"]
    for given in (pod({"app": "x"}), pod(None, {"gpu-fraction": "0.5"}), kai({"other": "x"}),
                  pod({"fracgpu.example/memory": "8GiB"}), pod(None, {"gpu-memory": "lots"})):
        status, made = cluster().make(given)
        assert status == 201, made
        assert made["spec"]["containers"][0].get("env") is None, made
        assert len(made["spec"]["volumes"]) == len(plain["volumes"]), made


def test_wrong_words_are_refused():
    for text in ("8", "GiB", "0GiB", "0.0GiB", "0.5", "50", "", "8GiBx", "1e3GiB", "8E", "8PiB", "511b", "1.2345678901GiB",
                 "9999999999999GiB", "99999999999999999999999b", "1048576TiB", "1.5.5GiB", "8_GiB"):
        refused(pod({MEMORY: text}), f"label fracgpu.dev/memory: '{text}' is no size of a GPU's memory; write one with its "
                "unit, as 8GiB, 8gb or 512MiB; a share of the GPU is the label fracgpu.dev/fraction")
    for text in ("0.5x", "1", "0", "0.0", "1.1", "1.000000001", "50", "8GiB", "", "0.0000000001"):
        refused(pod({FRACTION: text}), f"label fracgpu.dev/fraction: '{text}' is no share of a GPU; write one above 0")
    refused(pod({CLEARML: "2"}), f"label {CLEARML}: '2' is no share of a GPU")
    for text in ("-1GiB", "8 GiB", "50%", ".5", "8" * 64):  # no label of any kind
        refused(pod({MEMORY: text}), "metadata.labels: Invalid value")
    for labels in ({MEMORY: "8GiB", FRACTION: "0.5"}, {CLEARML: "0.5", FRACTION: "0.5"}):
        refused(pod(labels), "a pod has one cap: keep one of the labels")
    refused(pod({"fracgpu.dev/memroy": "8GiB"}), "a label of fracgpu.dev is unknown; there are fracgpu.dev/memory,")
    refused(pod({"fracgpu.dev/host-namespaces": "true"}), "label fracgpu.dev/host-namespaces")
    refused(pod({MEMORY: "8GiB", "fracgpu.dev/host-namespaces": "yes"}), "label fracgpu.dev/host-namespaces")
    for name in (MEMORY, FRACTION, CLEARML):
        refused(pod(None, {name: "0.5"}), f"annotation {name}: a cap is a label; write it under metadata.labels")


def test_what_a_pod_has_is_kept():
    env = [{"name": "HOME", "value": "/h"}, {"name": "LD_PRELOAD", "value": "/x.so"}, {"name": "FRACGPU_LOG", "value": "info"},
           {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
           {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    given = pod({MEMORY: "8GiB", "fracgpu.dev/host-namespaces": "true"}, None, {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "i", "image": "x"}, {"name": "sidecar", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "x", "env": env, "volumeMounts": [{"name": "data", "mountPath": "/data/"}]},
                       {"name": "b", "image": "y", "args": ["z"]}]})
    made = admitted(given, "8GiB")
    first, second = made["spec"]["containers"]
    assert [each["name"] for each in first["env"]] == [*[each["name"] for each in env], LIMIT, TENANT], first["env"]
    assert first["env"][3]["valueFrom"]["resourceFieldRef"]["divisor"] == "1m", first["env"]
    assert first["volumeMounts"][0]["mountPath"] == "/data/" and second["args"] == ["z"]
    assert made["spec"]["hostPID"] and made["spec"]["hostIPC"]
    again = admitted({**given, "spec": made["spec"]}, "8GiB")
    assert again["spec"]["containers"] == made["spec"]["containers"], "made of one that has the cap, it has it once"


def test_many_containers_stay_within_the_costs():
    env = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(100)]
    mounts = [{"name": "data", "mountPath": f"/data/of/this/container/{i}"} for i in range(30)]
    containers = [{"name": f"c{i}", "image": "x", "env": env, "volumeMounts": mounts} for i in range(40)]
    admitted(pod({MEMORY: "8GiB"}, None, {"volumes": [{"name": "data", "emptyDir": {}}], "containers": containers}), "8GiB")


def test_what_undoes_the_cap_is_refused():
    labels = {MEMORY: "8GiB"}
    for env in ([{"name": LIMIT, "value": "80GiB"}], [{"name": LIMIT, "value": "8GiB"}, {"name": LIMIT, "value": "80GiB"}],
                [{"name": TENANT, "value": "another"}], [{"name": LIMIT, "value": ""}],
                [{"name": TENANT, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                [{"name": LIMIT, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]):
        refused(pod(labels, env=env), f"container a: take {LIMIT} and {TENANT} out of its environment")
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
    for path in ("/etc/ld.so.preload", "/etc//ld.so.preload", "etc/ld.so.preload", "/etc/ld.so.preload/", "/etc/./x",
                 "/tmp/../etc", "/usr/lib/libfracgpu.so", "/lib/libfracgpu.so", "/x/.."):
        given = pod(labels, None, volumes, volumeMounts=[{"name": "v", "mountPath": path}])
        status, said = cluster().make(given)  # the server itself refuses some
        assert status in (403, 422) and ("are the cap's; mount yours elsewhere" in said or "must" in said), f"{path}: {said}"
    for mount in ({"mountPath": "/x"}, {"mountPath": "/x", "readOnly": True}, {"mountPath": "/etc/ld.so.preload"},
                  {"mountPath": "/etc/ld.so.preload", "readOnly": True, "subPath": "x"}):
        refused(pod(labels, volumeMounts=[{"name": "fracgpu-preload", **mount}]), "are the cap's; mount yours elsewhere")
    refused(pod(labels, None, {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]},
                volumeDevices=[{"name": "d", "devicePath": "/etc//ld.so.preload"}]), "are the cap's; mount yours elsewhere")
    for source in ({"emptyDir": {}}, {"hostPath": {"path": "/etc/hostname"}}, {"configMap": {"name": "x"}},
                   {"hostPath": {"path": "/var/lib/fracgpu/ld.so.preload"}}):
        refused(pod(labels, None, {"volumes": [{"name": "fracgpu-preload", **source}]}),
                "the volumes fracgpu-library and fracgpu-preload are the cap's: give yours other names")
    # Each with a ledger of its own would have the whole cap for itself.
    shm = {"name": "v", "mountPath": "/dev/shm"}
    pair = [{"name": "a", "image": "x", "volumeMounts": [shm]}, {"name": "b", "image": "x", "volumeMounts": [shm]}]
    admitted(pod(labels, None, {**volumes, "containers": pair}), "8GiB")
    for other in ([], [{**shm, "subPath": "b"}], [{**shm, "mountPath": "/dev/shm/"}, {"name": "v", "mountPath": "/y"}]):
        given = pod(labels, None, {**volumes, "containers": [pair[0], {**pair[1], "volumeMounts": other}]})
        if len(other) < 2:
            refused(given, "the containers of a pod share one cap by one /dev/shm: mount the same volume")
        else:
            admitted(given, "8GiB")
    for policy, kept in (("Always", False), (None, True)):
        first = {"name": "i", "image": "x", **({"restartPolicy": policy} if policy else {})}
        given = pod(labels, None, {**volumes, "initContainers": [first], "containers": pair})
        (admitted if kept else refused)(given, "8GiB" if kept else "share one cap by one /dev/shm")
    with_ephemeral = pod(labels, None, {"ephemeralContainers": [{"name": "e", "image": "x"}]})
    refused(with_ephemeral, "ephemeralContainers: Forbidden")


def change(kind, path, content):
    status, said = cluster().send("PATCH", f"{PODS}/{path}", content, kind=f"application/{kind}-patch+json")
    return status, said if status == 200 else said["message"]


def debug(name, **container):
    return change("strategic-merge", f"{name}/ephemeralcontainers",
                  {"spec": {"ephemeralContainers": [{"name": "hostile", "image": "x", **container}]}})


def delete(name):
    assert cluster().send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")[0] == 200


def test_a_cap_is_not_changed_afterwards():
    for given in (pod({MEMORY: "8GiB"}), pod({"app": "x"})):
        assert cluster().make(given, really=True)[0] == 201
        capped = MEMORY in given["metadata"]["labels"]
        assert change("merge", "p", {"metadata": {"labels": {"app": "y"}, "finalizers": ["x.example/y"]}})[0] == 200
        assert change("merge", "p", {"metadata": {"finalizers": []}})[0] == 200
        for labels in ({MEMORY: "9GiB"}, {FRACTION: "0.5"}, {"fracgpu.dev/host-namespaces": "true"}, *([{MEMORY: None}] * capped)):
            status, said = change("merge", "p", {"metadata": {"labels": labels}})
            assert status == 422 and "a pod's cap is set when it is made: delete the pod" in said, f"{labels}: {said}"
        status, said = change("merge", "p", {"metadata": {"annotations": {MEMORY: "9GiB"}}})
        assert status == 422 and "a cap is a label" in said, said
        delete("p")


def test_debugging_containers_have_the_cap_too():
    assert cluster().make(kai({"gpu-fraction": "0.5"}), really=True)[0] == 201
    # Nobody can lower the guard between: the cap is what the pod was made with.
    assert change("merge", "p", {"metadata": {"annotations": {"gpu-fraction": None}}})[0] == 200

    for container, reason in (({"env": [{"name": LIMIT, "value": "1.0"}]}, f"container hostile: take {LIMIT}"),
                              ({"volumeMounts": [{"name": "fracgpu-preload", "mountPath": "/x"}]}, "are the cap's"),
                              ({"volumeMounts": [{"name": "fracgpu-library", "mountPath": "/etc/ld.so.preload"}]}, "are the cap's")):
        status, said = debug("p", **container)
        assert status == 422 and reason in said, f"{container}: {said}"
    for name in ("first", "second"):
        status, out, err = cluster().kubectl("debug", "p", "--image=x", "-c", name, "--attach=false", "--profile=general")
        assert status == 0, f"{out} {err}"
    made = cluster().send("GET", f"{PODS}/p")[1]
    assert [each["name"] for each in made["spec"]["ephemeralContainers"]] == ["first", "second"]
    expect_capped(made, "0.5")
    delete("p")
    assert cluster().make(pod(), really=True)[0] == 201
    assert debug("p")[0] == 200, "a pod without a cap is none of ours"
    assert not variables(cluster().send("GET", f"{PODS}/p")[1]["spec"]["ephemeralContainers"][0], LIMIT)
    delete("p")


def workload(kind, labels=None, inner=None, annotations=None):
    template = {"metadata": {"labels": {"app": "w", **(inner or {})}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    spec = {"template": template}
    if kind in ("Job", "CronJob"):
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": "w"}}
    if kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
    group = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "w", "labels": labels or {}, "annotations": annotations or {}},
            "spec": spec}


def test_workloads_are_judged_when_they_are_made():
    for kind in ("Deployment", "StatefulSet", "Job", "CronJob"):
        status, said = cluster().make(workload(kind, None, {MEMORY: "8Gi"}))
        assert status == 201, said
        assert cluster().make(workload(kind, {MEMORY: "8Gi"}, {MEMORY: "8Gi"}))[0] == 201
        refused(workload(kind, None, {MEMORY: "8"}), "label fracgpu.dev/memory: '8' is no size")
        refused(workload(kind, None, {FRACTION: "2"}), "label fracgpu.dev/fraction: '2' is no share")
        refused(workload(kind, {MEMORY: "8GiB"}), "label fracgpu.dev/memory: it caps nothing here; write it under metadata.labels")
        refused(workload(kind, {MEMORY: "8GiB"}, {MEMORY: "9GiB"}), "it caps nothing here")
        refused(workload(kind, None, None, {MEMORY: "8GiB"}), "annotation fracgpu.dev/memory: a cap is a label")


def test_deployments_and_jobs_make_capped_pods():
    server = cluster()
    server.controllers("deployment-controller", "replicaset-controller", "job-controller",
                       "validatingadmissionpolicy-status-controller")
    for kind in ("Deployment", "Job"):
        status, said = server.make(workload(kind, None, {MEMORY: "8Gi"}), really=True)
        assert status == 201, said

    def made():
        return server.send("GET", f"{PODS}?labelSelector=app=w")[1]["items"]

    wait_until(lambda: len(made()) == 2, "both have made their pod")
    for each in made():
        expect_capped(each, "8GiB")
    # A Deployment goes on where its labels are left as they are.
    path = "/apis/apps/v1/namespaces/default/deployments/w"
    status, said = server.send("PATCH", path, {"spec": {"replicas": 0}}, kind="application/merge-patch+json")
    assert status == 200, said
    # The server's own reading of the expressions, by the types of what they match.
    for name in ("fracgpu-check", "fracgpu-intact"):
        def checked():
            policy = server.send("GET", f"{POLICIES}/validatingadmissionpolicies/{name}")[1]
            return policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"] and policy["status"]

        wait_until(checked, f"{name} is checked")
        assert not checked().get("typeChecking", {}).get("expressionWarnings"), checked()


def test_pod_security():
    for level in ("baseline", "restricted"):
        cluster().send("POST", "/api/v1/namespaces", {"metadata": {"name": level, "labels": {
            "pod-security.kubernetes.io/enforce": level}}})
        cluster().send("POST", f"/api/v1/namespaces/{level}/serviceaccounts", {"metadata": {"name": "default"}})
    given = pod({MEMORY: "8GiB"})
    refused({**given, "metadata": {**given["metadata"], "namespace": "baseline"}}, "hostPath")
    with open(f"{KUBERNETES}/pods/image.yaml", encoding="utf-8") as file:
        image = yaml.safe_load(file)
    for name in ("hostPID", "hostIPC"):
        refused({**image, "metadata": {"name": "p", "namespace": "baseline"}}, "host namespaces")
        del image["spec"][name]
    assert cluster().make({**image, "metadata": {"name": "p", "namespace": "baseline"}})[0] == 201
    held = copy.deepcopy(image)
    held["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"}}
    assert cluster().make({**held, "metadata": {"name": "p", "namespace": "restricted"}})[0] == 201
    # The DaemonSet's pods in its own namespace.
    daemon = cluster().send("GET", "/apis/apps/v1/namespaces/fracgpu/daemonsets/fracgpu-node")[1]["spec"]["template"]
    cluster().send("POST", "/api/v1/namespaces/fracgpu/serviceaccounts", {"metadata": {"name": "default"}})
    status, said = cluster().make({"kind": "Pod", "apiVersion": "v1", "spec": daemon["spec"], "metadata": {
        "name": "p", "namespace": "fracgpu", "labels": daemon["metadata"]["labels"]}})
    assert status == 201, said


def test_a_cap_is_demanded_where_that_is_wanted():
    server = cluster()

    def asking(resource, labels=None, **more):
        return pod(labels, resources={"limits": {resource: 1}}, **more)

    assert server.make(asking("nvidia.com/gpu"))[0] == 201, "it is off until it is applied"
    status, out, err = server.kubectl("apply", "-k", f"{KUBERNETES}/demand")
    assert status == 0, f"{out} {err}"
    wait_until(lambda: server.make(asking("nvidia.com/gpu"))[0] != 201, "the policy is in force")
    said = "container a asks for a GPU that others share: say how much of its memory by the pod's label fracgpu.dev/memory, as"
    refused(asking("nvidia.com/gpu"), said)
    refused(asking("nvidia.com/gpu.shared"), said)
    refused(pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), said)
    refused(pod(None, {"gpu-fraction": "0.5"}, resources={"limits": {"nvidia.com/gpu": 1}}), said)
    refused(pod(spec={"initContainers": [{"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
                      "containers": [{"name": "b", "image": "x"}]}), said)
    admitted(asking("nvidia.com/gpu", {MEMORY: "8Gi"}), "8GiB")
    admitted(kai({"gpu-fraction": "0.5"}), "0.5")
    for given in (pod(), asking("nvidia.com/mig-1g.10gb"), asking("cpu"),
                  pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}])):
        assert server.make(given)[0] == 201, given
    refused(pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]), said)
    assert server.make(pod(), really=True)[0] == 201
    all_of_them = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    status, why = debug("p", env=all_of_them)
    assert status == 422 and "container hostile asks for a GPU that others share" in why, why
    assert debug("p")[0] == 200
    delete("p")
    assert server.make(asking("nvidia.com/gpu", {MEMORY: "8Gi"}), really=True)[0] == 201
    assert debug("p", env=all_of_them)[0] == 200, "it has the cap"
    delete("p")
    path = f"{POLICIES}/validatingadmissionpolicies/fracgpu-demand"
    (shared,) = [i for i, each in enumerate(server.send("GET", path)[1]["spec"]["variables"]) if each["name"] == "shared"]
    status, said_then = server.send("PATCH", path, [{"op": "replace", "path": f"/spec/variables/{shared}/expression",
                                                     "value": "['nvidia.com/mig-*', 'amd.com/*']"}],
                                    kind="application/json-patch+json")
    assert status == 200, said_then
    for resource in ("nvidia.com/mig-1g.10gb", "amd.com/cpx_nps4", "amd.com/gpu"):
        wait_until(lambda name=resource: server.make(asking(name))[0] != 201, f"{resource} is in force")
        refused(asking(resource), said)
    assert server.make(asking("nvidia.com/gpu"))[0] == 201
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": "images", "labels": {"fracgpu.dev/uncapped": "true"}}})
    server.send("POST", "/api/v1/namespaces/images/serviceaccounts", {"metadata": {"name": "default"}})
    given = asking("amd.com/gpu")
    given["metadata"]["namespace"] = "images"
    assert server.make(given)[0] == 201
    status, out, err = server.kubectl("delete", "-k", f"{KUBERNETES}/demand")
    assert status == 0, err
    wait_until(lambda: server.make(asking("amd.com/gpu"))[0] == 201, "the policy is gone")


class Injector(http.server.BaseHTTPRequestHandler):
    """A webhook that adds a sidecar, as a service mesh does."""

    def do_POST(self):  # pylint: disable=invalid-name
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sidecar = {"op": "add", "path": "/spec/containers/-", "value": {"name": "mesh", "image": "x"}}
        there = any(each["name"] == "mesh" for each in review["request"]["object"]["spec"]["containers"])
        answer = {"uid": review["request"]["uid"], "allowed": True, **({} if there else {
            "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps([sidecar]).encode()).decode()})}
        text = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def test_sidecars_that_others_add_have_the_cap():
    api = cluster()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Injector) as hook:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{api.folder}/certificate", f"{api.folder}/key")
        hook.socket = context.wrap_socket(hook.socket, server_side=True)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        with open(f"{api.folder}/certificate", "rb") as file:
            bundle = base64.b64encode(file.read()).decode()
        hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        status, said = api.send("POST", hooks, {"metadata": {"name": "mesh"}, "webhooks": [{
            "name": "mesh.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://127.0.0.1:{hook.server_address[1]}/", "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})
        assert status == 201, said
        given = pod({MEMORY: "8GiB"})
        wait_until(lambda: "'mesh'" in str(api.make(given)[1]), "the webhook is called")
        assert len(admitted(given, "8GiB")["spec"]["containers"]) == 2
        assert api.send("DELETE", f"{hooks}/mesh")[0] == 200
        wait_until(lambda: "'mesh'" not in str(api.make(given)[1]), "the webhook is gone")
        hook.shutdown()


def test_without_its_mutation_no_pod_is_uncapped():
    server, binding = cluster(), f"{POLICIES}/mutatingadmissionpolicybindings/fracgpu-cap"
    status, kept = server.send("GET", binding)
    assert status == 200 and server.send("DELETE", binding)[0] == 200
    given = pod({MEMORY: "8GiB"})
    wait_until(lambda: server.make(given)[0] != 201, "the binding is gone")
    refused(given, "this pod asks for a cap and did not get one: apply the policy fracgpu-cap and its binding")
    del kept["metadata"]["resourceVersion"], kept["metadata"]["uid"]
    assert server.send("POST", binding.rpartition("/")[0], kept)[0] == 201
    wait_until(lambda: server.make(given)[0] == 201, "the binding is back")


def test_the_overlay_for_older_clusters():
    server = cluster()
    kinds = [f"{each}admission{what}" for each in ("mutating", "validating") for what in ("policies", "policybindings")]
    status, _, err = server.kubectl("delete", ",".join(kinds), "--all")
    assert status == 0, err

    def gone():
        status, made = server.make(pod({MEMORY: "8GiB"}))
        return (status == 201 and not variables(made["spec"]["containers"][0], LIMIT) and
                server.make(pod({"fracgpu.dev/unknown": "x"}))[0] == 201)

    wait_until(gone, "base is gone")
    server.apply("v1beta1")
    status, out, err = server.kubectl("kustomize", f"{KUBERNETES}/v1beta1")
    assert status == 0, err
    versions = {each["kind"]: each["apiVersion"] for each in yaml.safe_load_all(out) if each["kind"].startswith("Mutating")}
    assert set(versions.values()) == {"admissionregistration.k8s.io/v1beta1"} and len(versions) == 2, versions
    examples_hold()


def test_a_cluster_that_cannot_mutate_refuses():
    with ApiServer(f"--emulated-version={oldest_emulated()}") as server:
        status, _, err = server.kubectl("apply", "-k", f"{KUBERNETES}/v1beta1")
        assert status != 0 and 'no matches for kind "MutatingAdmissionPolicy"' in err, err
        assert server.kubectl("apply", "-k", f"{KUBERNETES}/demand")[0] == 0
        for given, reason in ((pod({MEMORY: "8Gi"}), "this pod asks for a cap and did not get one"),
                              (pod({"fracgpu.dev/memroy": "8GiB"}), "a label of fracgpu.dev is unknown"),
                              (pod(resources={"limits": {"nvidia.com/gpu": 1}}), "asks for a GPU that others share")):
            wait_until(lambda one=given, said=reason: said in str(server.make(one)[1]), reason)
        assert server.make(pod())[0] == 201

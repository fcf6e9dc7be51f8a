"""The Helm chart makes what kustomize makes, and what its values say.

The templates are rendered by what Helm is made of (render_chart.go); Helm itself is no package of Debian.
"""
import functools
import json
import os
import re
import subprocess

from api_server import ApiServer
from rig import BUILD, SOURCE, finished, part

KUBERNETES = f"{SOURCE}/containers/kubernetes"
CHART = f"{KUBERNETES}/chart"
NEITHER = {"claims": False}


@functools.lru_cache
def renderer():
    where = part("sprig-3.2")
    program = f"{BUILD}/containers/render_chart"
    os.makedirs(os.path.dirname(program), exist_ok=True)
    environment = {**os.environ, "GOROOT": f"{where}/usr/lib/go-1.19", "GOPATH": f"{where}/usr/share/gocode", "GO111MODULE": "off",
                   "GOCACHE": f"{where}/cache", "GOFLAGS": "-p=2", "CGO_ENABLED": "0"}
    subprocess.run([f"{where}/usr/lib/go-1.19/bin/go", "build", "-o", program, f"{SOURCE}/tests/containers/render_chart.go"],
                   env=environment, check=True)
    return program


def chart(values):
    status, out, err = finished([renderer(), CHART, json.dumps(values)])
    assert status == 0, err
    return json.loads(out)


def kustomized(folder):
    status, out, err = finished([f"{part('kubectl-1.36')}/usr/bin/kubectl", "kustomize", f"{KUBERNETES}/{folder}"])
    assert status == 0, err
    status, out, err = finished([renderer()], input=out)
    assert status == 0, err
    return json.loads(out)


def without_blank_lines(value):
    """kustomize adds one to a folded text before a line that is indented more."""
    if isinstance(value, str):
        return re.sub(r"\n\n+", "\n", value)
    if isinstance(value, list):
        return [without_blank_lines(each) for each in value]
    return {name: without_blank_lines(each) for name, each in value.items()} if isinstance(value, dict) else value


def by_name(objects):
    found = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): without_blank_lines(each)
             for each in objects}
    assert len(found) == len(objects), [each["metadata"]["name"] for each in objects]
    return found


def test_it_makes_what_kustomize_makes():
    for values, folder in (({}, "dra"), ({**NEITHER, "labels": True}, "base"), ({**NEITHER, "demand": True}, "demand")):
        made, wanted = by_name(chart(values)), by_name(kustomized(folder))
        assert len(wanted) >= 2 and made == wanted, f"{folder}: {made.keys() ^ wanted.keys()}"
    # Together, with the namespace once.
    every = by_name(kustomized("base")) | by_name(kustomized("demand")) | by_name(kustomized("dra"))
    assert by_name(chart({"labels": True, "demand": True})) == every
    assert chart(NEITHER) == []


def test_values_are_heard_everywhere():
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpus"]}]}]}}
    values = {"labels": True, "image": "registry.example:5000/fracgpu:node", "imagePullPolicy": "Always",
              "imagePullSecrets": [{"name": "key"}], "runtimeClassName": "nvidia", "nodeAffinity": affinity,
              "tolerations": [{"key": "gpu", "operator": "Exists"}], "resources": {"limits": {"memory": "96Mi"}}}
    made, plain = by_name(chart(values)), by_name(chart({"labels": True}))
    assert made.keys() == plain.keys()
    daemons = [name for name in made if name[0] == "DaemonSet"]
    assert len(daemons) == 2, daemons
    for name, each in made.items():
        if name not in daemons:
            assert each == plain[name], name
            continue
        spec = each["spec"]["template"]["spec"]
        for field in ("imagePullSecrets", "runtimeClassName", "tolerations"):
            assert spec[field] == values[field], (name, field)
        assert spec["affinity"] == {"nodeAffinity": affinity}, name
        containers = spec["initContainers"] + spec["containers"]
        assert len(containers) >= 2, name
        for container in containers:
            assert {field: container[field] for field in ("image", "imagePullPolicy", "resources")} == {
                field: values[field] for field in ("image", "imagePullPolicy", "resources")}, name
            before = next(one for one in plain[name]["spec"]["template"]["spec"]["initContainers"] +
                          plain[name]["spec"]["template"]["spec"]["containers"] if one["name"] == container["name"])
            assert {**before, **{field: values[field] for field in ("image", "imagePullPolicy", "resources")}} == container


def test_a_real_server_takes_it():
    with ApiServer() as server:
        path = f"{server.folder}/objects.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": chart({
                "labels": True, "demand": True, "image": "registry.example/fracgpu:node", "runtimeClassName": "nvidia",
                "resources": {"limits": {"memory": "96Mi"}}})}, file)
        status, out, err = server.kubectl("apply", "-f", path)
        assert status == 0 and "daemonset.apps/fracgpu-dra created" in out, f"{out} {err}"


def test_helm_refuses_values_that_nobody_knows():
    """By the schema, which names each of them."""
    with open(f"{CHART}/values.schema.json", encoding="ascii") as file:
        schema = json.load(file)
    with open(f"{CHART}/values.yaml", encoding="ascii") as file:
        (values,) = json.loads(finished([renderer()], input=file.read())[1])
    kinds = {bool: "boolean", str: "string", list: "array", dict: "object"}
    assert schema["additionalProperties"] is False and set(schema["properties"]) == {*values, "global"}
    for name, value in values.items():
        said = schema["properties"][name]
        assert value in said["enum"] if "enum" in said else said["type"] == kinds[type(value)], name

"""Labelled pods on a real kubelet and containerd, over a simulated GPU."""
import functools
import json
import re

import pytest

from api_server import pod
from kubelet import APP, Node
from rig import BUILD, GIB, Machine, output, wait_until

GPU = {"name": "gpu", "mountPath": "/node"}


@functools.lru_cache
def cluster():
    node = Node()
    node.apply("base")
    return node


@pytest.fixture(autouse=True, scope="module")
def starts_cluster(node):
    cluster()


def start(machine, name, labels, *commands, volumes=(), mounts=()):
    """Makes a pod, with a container for each command."""
    containers = [{"name": f"c{i}", "image": APP, "command": ["sh", "-c", command], "volumeMounts": [GPU, *mounts]}
                  for i, command in enumerate(commands)]
    given = pod(labels, None, {"containers": containers, "restartPolicy": "Never", "volumes": [
        {"name": "gpu", "hostPath": {"path": machine.node}}, *volumes]})
    given["metadata"]["name"] = name
    status, said = cluster().make(given, really=True)
    assert status == 201, said


def told(name, container, pattern):
    """Waits until the container has written that."""
    try:
        wait_until(lambda: re.search(pattern, cluster().logs(name, container)), f"{name} {container} writes {pattern}")
    except AssertionError:
        print(cluster().kubectl("describe", "pod", name)[1][-1500:])
        raise
    return re.search(pattern, cluster().logs(name, container))


def total(name, container="c0"):
    return int(told(name, container, r"total=(\d+)").group(1))


def test_the_node_installs_itself_and_pods_are_capped():
    with Machine("a100-40gb") as machine:
        # The node may not have the library yet: they wait for it, and do not start without.
        start(machine, "eight", {"fracgpu.dev/memory": "8Gi"}, "/client init retain meminfo")
        start(machine, "quarter", {"fracgpu.dev/fraction": "0.25"}, "/client init retain meminfo")
        start(machine, "free", {"app": "x"}, "/client init retain meminfo")
        assert total("eight") == 8 * GIB
        assert total("quarter") == 10 * GIB
        assert total("free") == 40 * GIB


def test_containers_of_a_pod_share_one_cap():
    with Machine("a100-40gb") as machine:
        start(machine, "two", {"fracgpu.dev/memory": "8Gi"},
              "sleep 600 | /client init retain alloc 5GiB wait >/dev/shm/said",
              "until grep -q ready /dev/shm/said; do sleep 0.1; done; /client init retain fill 256MiB meminfo")
        assert total("two", "c1") == 8 * GIB
        told("two", "c1", "fill 268435456 rc=2")
        used = json.loads(output([f"{BUILD}/tests/sim/simnode", "show", machine.node, "--json"]))["devices"][0]["tenants"]
        assert 7.5 * GIB < sum(each["high_water"] for each in used.values()) <= 8 * GIB, used
        # One that is added for debugging is a part of it.
        status, said = cluster().send("PATCH", "/api/v1/namespaces/default/pods/two/ephemeralcontainers", {"spec": {
            "ephemeralContainers": [{"name": "debug", "image": APP, "volumeMounts": [GPU],
                                     "command": ["/client", "init", "retain", "meminfo"]}]}},
                                      kind="application/strategic-merge-patch+json")
        assert status == 200, said
        assert total("two", "debug") == 8 * GIB


def test_a_volume_over_the_whole_folder_does_not_hide_the_cap():
    with Machine("a100-40gb") as machine:
        start(machine, "etc", {"fracgpu.dev/memory": "8Gi"}, "/client init retain meminfo",
              volumes=[{"name": "e", "emptyDir": {}}], mounts=[{"name": "e", "mountPath": "/etc"}])
        assert total("etc") == 8 * GIB

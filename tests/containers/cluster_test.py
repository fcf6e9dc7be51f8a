"""What Kubernetes would run on a node, run by podman: the installation and a labelled pod."""
import functools
import json
import os
import shutil
import tempfile

import pytest

from api_server import ApiServer, pod
from rig import GIB, PODMAN, RUN, SOURCE, Host, binaries, build, debian, output

pytestmark = pytest.mark.usefixtures("containers")


@functools.lru_cache
def cluster():
    server = ApiServer()
    server.apply("base")
    return server


def admitted(labels):
    """A pod of two containers as a real API server stores it, and how the DaemonSet there installs the node's part."""
    given = pod(labels, None, {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]})
    status, made = cluster().make(given)
    assert status == 201, made
    daemon = cluster().send("GET", "/apis/apps/v1/namespaces/fracgpu/daemonsets/fracgpu-node")[1]
    return {"pod": made["spec"], "install": daemon["spec"]["template"]["spec"]["initContainers"][0]}


class ClusterNode:
    """The folders of a node, filled by the DaemonSet's script in the DaemonSet's image."""

    def __init__(self, install):
        self.folder = tempfile.mkdtemp()
        os.chmod(self.folder, 0o755)
        status, said = build("localhost/fracgpu:node", f"{SOURCE}/containers/Dockerfile", "--target=node", *binaries(),
                             BUILDER=debian())
        assert status == 0, said
        mounts = []
        for mount in install["volumeMounts"]:
            os.makedirs(self.at(mount["mountPath"]))
            mounts += ["-v", f"{self.at(mount['mountPath'])}:{mount['mountPath']}"]
        for _ in range(2):  # again, as after an update
            output([*PODMAN, "run", "--rm", *RUN, *mounts, "--entrypoint", json.dumps(install["command"]),
                    f"localhost/{install['image']}", *install["args"]])

    def at(self, path):
        return self.folder + path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def options(self, spec, container, uid):
        """podman's, for what the kubelet would do."""
        paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        options = []
        for mount in container["volumeMounts"]:
            if mount["name"] not in paths:
                continue  # the API server's own
            assert mount["readOnly"] and os.path.isfile(self.at(paths[mount["name"]])), mount
            options += ["-v", f"{self.at(paths[mount['name']])}:{mount['mountPath']}:ro"]
        for variable in container["env"]:
            value = variable.get("value", uid if variable.get("valueFrom") else None)
            options += ["-e", f"{variable['name']}={value}"]
        return options


def test_labelled_pod_is_capped_as_one():
    sound = admitted({"fracgpu.dev/memory": "8Gi"})
    with ClusterNode(sound["install"]) as node, Host("a100-40gb") as host:
        assert sorted(os.listdir(node.at("/etc/cdi"))) == ["fracgpu.dev-fraction.json", "fracgpu.dev-memory.json"]
        assert sorted(os.listdir(node.at("/var/lib/fracgpu"))) == ["fracgpu", "ld.so.preload", "libfracgpu.so", "limits"]
        with open(node.at("/etc/cdi/fracgpu.dev-memory.json"), encoding="ascii") as file:
            edits = json.load(file)["containerEdits"]
        assert [each["hostPath"] for each in edits["mounts"]] == ["/var/lib/fracgpu/libfracgpu.so",
                                                                 "/var/lib/fracgpu/ld.so.preload"], edits
        assert edits["hooks"][0]["path"] == "/var/lib/fracgpu/fracgpu", edits
        uid = "6f0f7f5e-8d7c-4d4e-9f5a-3b1f0e9c2d11"
        first, second = (node.options(sound["pod"], container, uid) for container in sound["pod"]["containers"])
        # Containers of a pod share /dev/shm.
        name, _, _ = host.held(debian(), "/client", "init", "retain", "alloc", "5GiB", "wait",
                               options=[*first, "--ipc=shareable"])
        status, out, err = host.container(debian(13), "/client", "init", "retain", "meminfo", "fill", "256MiB",
                                          options=[*second, f"--ipc=container:{name}"])
        assert status == 0 and f"total={8 * GIB}" in out and "fill 268435456 rc=2" in out, f"{out} {err}"
        assert 7.5 * GIB < host.used()[0][1] <= 8 * GIB, host.used()


def test_fraction_and_host_namespaces():
    made = admitted({"fracgpu.dev/fraction": "0.250", "fracgpu.dev/host-namespaces": "true"})
    assert made["pod"]["hostPID"] and made["pod"]["hostIPC"]
    with ClusterNode(made["install"]) as node, Host("a100-40gb") as host:
        tenant = host.tenant("pod")
        held = node.options(made["pod"], made["pod"]["containers"][0], tenant)
        host.held(debian(), "/client", "init", "retain", "fill", "256MiB", "wait",
                  options=[*held, "--pid=host", "--ipc=host"])
        status, out, err = host.fracgpu("status", tenant, "--json")
        assert status == 0 and json.loads(out)["tenants"][0]["devices"][0]["cap_bytes"] == 10 * GIB, f"{out} {err}"
        assert host.used()[0][1] <= 10 * GIB

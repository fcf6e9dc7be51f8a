"""Tests of claims that take minutes each. They run after claims_test.py, on its cluster."""
import glob
import os
import re
import signal

import pytest

from api_server import KUBERNETES
from claims_cluster import CLIENT, PATIENCE_S, TEAM, cluster, nothing_is_left
from rig import DRIVER, GIB, wait_until

pytestmark = [pytest.mark.usefixtures("claims"),
              pytest.mark.skipif(not os.path.exists(DRIVER), reason="fracgpu-dra is not built: containers/packages.sh node")]
BACK_OFF = "kubelet comes back to a pod that failed after a minute and a half"
LIMIT, LEDGER, DEVICE = "/run/fracgpu/claims/*/limit.conf", "/dev/shm/fracgpu-claim-*", "/var/run/cdi/fracgpu.dev-claim-*.json"


@pytest.mark.campaign("a node's start takes two minutes")
def test_a_node_that_starts_anew_prepares_its_claims_again():
    each = cluster()
    each.pod("survives", f"{CLIENT}; exec sleep 601", template="t4", restart="Always")
    assert each.total("survives") == 4 * GIB

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
    wait_until(lambda: re.search(rf"total={4 * GIB}\b", each.logs("survives", "c0", TEAM, start=1)), "the next one is capped",
               PATIENCE_S)
    each.delete("survives")
    nothing_is_left()


@pytest.mark.campaign(BACK_OFF)
def test_without_the_driver_no_pod_starts_and_none_is_uncapped():
    each = cluster()
    each.pod("ends", f"{CLIENT}; exec sleep 600", template="t4")
    assert each.total("ends") == 4 * GIB
    # Away for as long as nobody brings it back; pods end in the meantime.
    status, out, err = each.kubectl("-n", "fracgpu", "delete", "daemonset", "fracgpu-dra", "--wait")
    assert status == 0, f"{out} {err}"
    wait_until(lambda: not each.drivers(), "the driver is gone")
    each.pod("waits", CLIENT, template="t4")
    each.event("waits", "fracgpu.dev")
    assert not each.logs("waits", "c0", TEAM) and each.phase("waits") == "Pending"
    each.send("DELETE", f"/api/v1/namespaces/{TEAM}/pods/ends")
    status, out, err = each.kubectl("apply", "-k", f"{KUBERNETES}/dra")
    assert status == 0, f"{out} {err}"
    each.simulate()
    assert each.total("waits") == 4 * GIB
    each.delete("ends", "waits")
    nothing_is_left()


def kill_the_driver_when(each, happened):
    """At the moment that something is seen of what it does; the next one comes in a pod of its own, without a back-off."""
    (pid,) = each.drivers()
    while not happened():
        pass
    os.kill(pid, signal.SIGKILL)
    status, out, err = each.kubectl("-n", "fracgpu", "delete", "pods", "--all", "--force", "--grace-period=0")
    assert status == 0, f"{out} {err}"
    wait_until(lambda: each.drivers() not in ([], [pid]), "another driver runs", PATIENCE_S)
    each.wait_for_driver()


@pytest.mark.campaign(BACK_OFF)
def test_the_driver_may_be_killed_at_any_step():
    """At every system call of it tools/dra_test.cc does; here are kubelet's and the engine's part."""
    each = cluster()
    steps = ("/run/fracgpu/claims/*", LIMIT, LEDGER, DEVICE)
    names = [f"step{i}" for i in range(len(steps))]
    for name, pattern in zip(names, steps):
        before = set(glob.glob(pattern))
        each.pod(name, f"{CLIENT}; exec sleep 600", template="t4")
        kill_the_driver_when(each, lambda seen=before, where=pattern: set(glob.glob(where)) - seen)
    assert [each.total(name) for name in names] == [4 * GIB] * len(names)
    for name, pattern in zip(names, reversed(steps)):
        before = set(glob.glob(pattern))
        each.send("DELETE", f"/api/v1/namespaces/{TEAM}/pods/{name}")
        kill_the_driver_when(each, lambda seen=before, where=pattern: seen - set(glob.glob(where)))
    each.delete(*names)
    nothing_is_left()


@pytest.mark.campaign("it takes eight minutes")
def test_200_claims_in_a_row_leave_nothing():
    each = cluster()

    def state():
        """What would grow: the node's mounts, and the driver's descriptors and memory."""
        (pid,) = each.drivers()
        with open("/proc/self/mounts", encoding="ascii") as file:
            mounts = len(file.readlines())
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            memory = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
        return mounts, len(os.listdir(f"/proc/{pid}/fd")), memory
    states = []
    for number in range(200):
        each.pod(f"row{number}", CLIENT, template="t1")
        assert each.total(f"row{number}") == GIB
        each.delete(f"row{number}")
        nothing_is_left()
        if number % 20 == 19:
            states.append(state())
    print("mounts, descriptors and KiB of the driver:", states)
    assert states[-1][0] <= states[0][0] and states[-1][1] <= states[0][1] + 4, states
    assert states[-1][2] < states[0][2] + (8 << 10), states


@pytest.mark.campaign("kubelet waits half a minute before it takes away what a driver published that is gone")
def test_uninstalled_it_leaves_nothing():
    """The last one: there is no driver afterwards."""
    each = cluster()
    status, out, err = each.kubectl("delete", "-k", "containers/kubernetes/dra", "--timeout=2m")
    assert status == 0, f"{out} {err}"
    assert not each.drivers()
    wait_until(lambda: not each.send("GET", "/apis/resource.k8s.io/v1/resourceslices")[1]["items"], "its slices are gone", PATIENCE_S)
    assert not [name for kind in ("deviceclasses.resource.k8s.io", "clusterroles", "validatingadmissionpolicies")
                for name in each.kubectl("get", kind, "-o", "name")[1].split() if "fracgpu" in name]
    nothing_is_left()

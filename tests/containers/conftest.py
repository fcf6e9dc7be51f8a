"""Fixtures for tests that need containers or a Kubernetes node."""
import os

import pytest


@pytest.fixture(scope="session")
def containers():
    """Skips the test if this machine cannot make containers."""
    import rig
    rig.needs()
    assert os.path.exists(rig.CLIENT)


@pytest.fixture
def host(containers):
    """A simulated machine whose GPU containers can use."""
    from rig import Host
    with Host("a100-40gb") as host:
        yield host


@pytest.fixture(scope="session")
def node(containers, run_again):
    """Runs the tests again on a node apart from this machine."""
    import kubelet
    kubelet.apart(run_again)


@pytest.fixture(scope="session")
def claims(node):
    """Starts the cluster for claims, once."""
    import claims_cluster
    claims_cluster.cluster()

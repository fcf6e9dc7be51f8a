"""What the driver for Kubernetes would publish of machines of both vendors."""
import json
import os

import pytest

from machine import BUILD, Machine

pytestmark = pytest.mark.skipif(not os.path.exists(f"{BUILD}/fracgpu-dra"),
                                reason="fracgpu-dra is not built: containers/packages.sh node")


def devices(profile):
    """What would be offered of a machine; each device with its attributes as plain texts."""
    with Machine(profile) as machine:
        status, out, err = machine.fracgpu("dra", "--node-name", "n", "--dry-run")
        assert (status, err) == (0, ""), f"{status} {err}"
        found = [device for each in json.loads(out)["items"] for device in each["spec"]["devices"]]
        for device in found:
            device["attributes"] = {name: value["string"] for name, value in device["attributes"].items()}
        return found, machine.uuids() if not profile.startswith("mi") else []


def mebibytes(device):
    text = device["capacity"]["memory"]["value"]
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


def test_whole_gpus():
    found, uuids = devices("a100-40gb+h200")
    assert sorted(each["attributes"]["uuid"] for each in found) == sorted(uuids), found
    assert all(each["name"] == each["attributes"]["uuid"].lower() and each["attributes"]["type"] == "gpu" for each in found)
    products = {each["attributes"]["productName"]: each for each in found}
    assert set(products) == {"NVIDIA A100-SXM4-40GB", "NVIDIA H200"}, products
    assert 39 * 1024 < mebibytes(products["NVIDIA A100-SXM4-40GB"]) <= 40 * 1024, products
    assert all(each["attributes"]["driverVersion"] and each["attributes"]["resource.kubernetes.io/pciBusID"] for each in found)


def test_a_gpu_that_uses_the_machine_s_memory():
    """NVML reports no memory of GB10; CUDA does."""
    found, (uuid,) = devices("gb10")
    assert [(each["attributes"]["uuid"], mebibytes(each)) for each in found] == [(uuid, 122572)], found


def test_of_a_gpu_in_mig_mode_its_instances_are_offered():
    found, (uuid,) = devices("h100-80gb-mig")
    assert sorted(each["attributes"]["mode"] for each in found) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], found
    for each in found:
        assert each["name"].startswith("mig-") and each["attributes"]["type"] == "mig", each
        assert each["attributes"]["parentUUID"] == uuid and len(each["attributes"]["productName"]) <= 64, each
    assert sorted(mebibytes(each) for each in found) == [9984, 9984, 20096, 40448], found


def test_amd_gpus_and_their_partitions():
    found, _ = devices("mi300x")
    (gpu,) = found
    assert gpu["attributes"]["type"] == "gpu" and gpu["attributes"]["vendor"] == "amd", gpu
    parts, _ = devices("mi300x-cpx-nps4")
    assert len(parts) == 8 and {each["attributes"]["type"] for each in parts} == {"partition"}, parts
    assert len({each["name"] for each in parts}) == 8 and all(each["name"].startswith("amd-") for each in parts), parts
    assert {mebibytes(each) for each in parts} == {24574}, parts


def test_without_a_gpu_nothing_is_offered():
    with Machine("tiny") as machine:
        status, out, err = machine.fracgpu("dra", "--node-name", "n", "--dry-run", extra={"LD_LIBRARY_PATH": "/nowhere"})
        assert (status, err) == (0, "") and json.loads(out)["items"] == [], f"{status} {out} {err}"

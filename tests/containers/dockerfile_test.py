"""The matrix of images, and every other Dockerfile, over Debian instead of what it names."""
import glob
import json
import os
import re

import pytest

from rig import GIB, PODMAN, RUN, SOURCE, binaries, build, debian, finished, image_of, part

pytestmark = pytest.mark.usefixtures("containers")
CONTAINERS = f"{SOURCE}/containers"


def baked():
    """What docker buildx bake would build: {target: its parts}."""
    tool = f"{part('docker-buildx')}/usr/libexec/docker/cli-plugins/docker-buildx"
    status, out, err = finished([tool, "bake", "-f", f"{CONTAINERS}/docker-bake.hcl", "--print"], cwd=SOURCE)
    if "GLIBC_" in err:
        pytest.skip("docker-buildx does not run on this machine")
    assert status == 0, err
    return json.loads(out)["target"]


def test_matrix():
    targets = baked()
    tags = {tag: target for target in targets.values() for tag in target.get("tags", [])}
    wanted = {f"fracgpu:{os_}-{cuda}-{gb}gb" for os_ in ("u20", "u22", "u24") for cuda in ("cu11.7", "cu12.3", "cu13.0")
              for gb in (2, 4, 8, 12, 24, 48)}
    wanted |= {f"fracgpu:{os_}-{rocm}-{gb}gb" for os_ in ("u22", "u24") for rocm in ("rocm6.4", "rocm7.2")
               for gb in (2, 4, 8, 12, 24)}
    assert set(tags) == wanted | {"fracgpu:library", "fracgpu:node"}, set(tags) ^ wanted
    for tag in wanted:
        ubuntu, stack, memory = tag.partition(":")[2].split("-")
        arguments = tags[tag]["args"]
        assert arguments["MEMORY_GB"] == memory.removesuffix("gb"), tag
        base = arguments["BASE"]
        if base == "moved-cuda":
            moved = targets[tags[tag]["contexts"]["moved-cuda"].removeprefix("target:")]
            assert moved["args"]["UBUNTU"] == f"ubuntu:{ubuntu[1:]}.04", tag
            base = moved["args"]["CUDA"]
            assert os.path.exists(f"{SOURCE}/{moved['dockerfile']}")
        else:
            assert re.search(rf"ubuntu-?{ubuntu[1:]}\.04", base), f"{tag}: {base}"
        version = stack.removeprefix("cu").removeprefix("rocm")
        assert re.search(rf":{re.escape(version)}(\.|-|$)", base), f"{tag}: {base}"
        assert base.startswith("nvidia/" if stack.startswith("cu") else "rocm/"), f"{tag}: {base}"
        assert os.path.exists(f"{SOURCE}/{tags[tag]['dockerfile']}")


def made(image, dockerfile, *options, **arguments):
    status, said = build(image, dockerfile, *options, **arguments)
    assert status == 0, said
    return image


def library():
    return made("localhost/fracgpu:library", f"{CONTAINERS}/Dockerfile", "--target=library", *binaries())


def test_examples_cap(host):
    library()
    inherited = made("localhost/fracgpu:u22-cu12.3-8gb", f"{CONTAINERS}/Dockerfile", *binaries(), BASE=debian(),
                     MEMORY_GB=8)
    examples = glob.glob(f"{CONTAINERS}/examples/*.Dockerfile")
    names = {os.path.basename(each).removesuffix(".Dockerfile") for each in examples}
    assert names == {"inherit"} | {f"{what}-{on}" for what in ("pytorch", "tensorflow", "jax", "vllm")
                                   for on in ("cuda", "rocm")}, names
    for example in examples:
        inherits = example.endswith("inherit.Dockerfile")
        image = made("localhost/example:1", example, BASE=inherited if inherits else debian())
        status, out, err = host.container(image, "init", "retain", "meminfo", options=["--entrypoint", "/client"])
        assert status == 0 and f"total={(6 if inherits else 8) * GIB}" in out, f"{example}: {out} {err}"
        # Without the change of base it is one of the vendors' images.
        with open(example, encoding="ascii") as file:
            base = re.search(r"^ARG BASE=(\S+)$", file.read(), re.MULTILINE).group(1)
        assert ("rocm" in base) == example.endswith("-rocm.Dockerfile"), base


def test_moved_cuda():
    cuda = image_of("cuda", {"usr/local/cuda/lib64/libcudart.so.1": b"x", "usr/local/cuda/bin/nvcc": b"#!/bin/sh\necho here\n"})
    image = made("localhost/moved-cuda:1", f"{CONTAINERS}/moved-cuda.Dockerfile", UBUNTU=debian(), CUDA=cuda)
    status, out, err = finished([*PODMAN, "run", "--rm", *RUN, image, "sh", "-c",
                                 "nvcc; echo $NVIDIA_DRIVER_CAPABILITIES; cat /etc/ld.so.conf.d/cuda.conf"])
    assert status == 0 and out.startswith("here\ncompute,utility\n/usr/local/nvidia/lib\n"), f"{out} {err}"

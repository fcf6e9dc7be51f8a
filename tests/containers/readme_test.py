"""Follows containers/README.md word by word.

docker and srun are played by scripts: docker by buildah and podman over Debian, with the simulated GPU for --gpus all or
NVIDIA's device and the real nvidia-smi; srun by the task prolog. kubectl is the real one, for a real API server.
"""
import os
import re
import shlex
import shutil
import tempfile

import pytest

from api_server import ApiServer
from rig import BUD, BUILD, LIBRARY, PODMAN, RUN, SOURCE, Host, binaries, blocks, debian, finished, part

pytestmark = pytest.mark.usefixtures("containers")


class Desk:
    """A shell whose /etc and /var/lib are copies, and whose commands are played."""

    def __init__(self, host):
        self.host = host
        host.shares_shm = True  # by what the README says
        self.folder = tempfile.mkdtemp()
        for each in ("bin", "etc", "etc-work", "lib", "lib-work"):
            os.mkdir(f"{self.folder}/{each}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def command(self, name, script):
        with open(f"{self.folder}/bin/{name}", "w", encoding="ascii") as file:
            file.write(f"#!/bin/bash\nset -e\n{script}")
        os.chmod(f"{self.folder}/bin/{name}", 0o755)

    def docker(self):
        smi = f"{part('nvidia-smi-535')}/usr/lib/nvidia/current/nvidia-smi"
        gpu = shlex.join([*self.host.gpu(), "-v", f"{smi}:/usr/bin/nvidia-smi:ro"])
        build = shlex.join([*BUD, *binaries()])
        self.command("docker", f"""
verb=$1; shift; options=(); base=({shlex.quote('--build-arg=BASE=' + debian())} {shlex.quote('--build-arg=BUILDER=' + debian())})
while [ $# -gt 0 ]; do
  case $verb:$1 in
    build:BASE=*) unset 'options[-1]' ;;
    run:--gpus) [ "$2" = all ]; options+=({gpu}); shift ;;
    run:nvidia.com/gpu=0) unset 'options[-1]'; options+=({gpu}) ;;
    run:debian:12) options+=({debian()}) ;;
    *) options+=("$1") ;;
  esac
  shift
done
case $verb in
  build) exec {build} "${{base[@]}}" "${{options[@]}}" ;;
  run) exec {shlex.join([*PODMAN, 'run', *RUN])} "${{options[@]}}" ;;
esac
exit 2
""")

    def follow(self, block):
        """Runs the lines in the root folder of the project: status, stdout, stderr."""
        layers = "\n".join(f"mount -t overlay -o lowerdir={path},upperdir={self.folder}/{name},"
                           f"workdir={self.folder}/{name}-work overlay {path}"
                           for path, name in (("/etc", "etc"), ("/var/lib", "lib")))
        path = f"{self.folder}/bin:{BUILD}:{os.environ['PATH']}"
        return finished(["unshare", "--mount", "sh", "-ec", f"{layers}\ncd {shlex.quote(SOURCE)}\n{block}"],
                        env={**os.environ, "PATH": path})


def test_in_docker():
    image, own, unchanged = blocks("In Docker")
    with Host("a100-40gb") as host, Desk(host) as desk:
        desk.docker()
        for block in (image, unchanged):
            status, out, err = desk.follow(block)
            assert status == 0 and re.search(r"MiB / +8192MiB", out), f"{block}{status} {out} {err}"
        # There is no PyTorch here to say it; that it is capped is seen in dockerfile_test.py.
        status, out, err = desk.follow(own)
        assert "python" in err and status != 0 and "localhost/train" in out, f"{status} {out} {err}"


def test_in_kubernetes():
    (block,) = blocks("In Kubernetes by labels")
    with Host("a100-40gb") as host, ApiServer() as server, Desk(host) as desk:
        desk.docker()
        # The reader is slower than the server, which takes a second to put policies in force.
        kubectl = f"{server.kubectl_program} --kubeconfig {server.kubeconfig()}"
        desk.command("kubectl", f"""
{kubectl} "$@"
[ "$2" != -k ] || until {kubectl} apply --dry-run=server -o yaml -f containers/kubernetes/pods/memory.yaml | grep -q FRACGPU_TENANT; do
  sleep 0.2
done
""")
        status, out, err = desk.follow(block)
        assert status == 0, f"{status} {out} {err}"
        (made,) = server.send("GET", "/api/v1/namespaces/default/pods")[1]["items"]
        assert {"name": "FRACGPU_MEMORY_LIMIT", "value": "8GiB"} in made["spec"]["containers"][0]["env"], made


def test_in_slurm():
    (block,) = blocks("In Slurm")
    with Host("a100-40gb") as host, Desk(host) as desk:
        desk.command("nvidia-smi", f"""export LD_LIBRARY_PATH={BUILD}/sim FRACGPU_SIM_NODE={host.node}
exec {part('nvidia-smi-535')}/run "$@"
""")
        # The library is where the package puts it, or beside this build.
        desk.command("srun", f"""
echo LIBRARY={LIBRARY} >>/etc/slurm/fracgpu.conf
export SLURM_JOB_ID={4_500_000 + os.getpid()} SLURM_SHARDS_ON_NODE=${{1#--gres=shard:}} CUDA_VISIBLE_DEVICES=0; shift
said=$(/etc/slurm/task_prolog.sh); eval "$said"
"$@"; SLURM_JOB_ID=$SLURM_JOB_ID /etc/slurm/epilog.sh
""")
        status, out, err = desk.follow(block)
        assert status == 0 and re.search(r"MiB / +10240MiB", out), f"{status} {out} {err}"

"""Real containers for tests: images built by buildah, run by podman and runc, on the simulated node of machine.py.

Everything lies in a storage of its own in the build folder, and nothing needs a network once the root filesystems of
Debian have been fetched. Where the machine cannot do it, the test is skipped and says why.
"""
import atexit
import functools
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from machine import BUILD, CLIENT, COMMAND, GIB, LIBRARY, Machine, part, wait_until  # pylint: disable=unused-import

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
STORAGE = f"{BUILD}/containers"
DRIVER = f"{BUILD}/fracgpu-dra"
HSA = f"{BUILD}/tests/clients/hsa_program"
STORE = ["--root", f"{STORAGE}/store", "--runroot", f"{STORAGE}/run", "--storage-driver", "overlay"]
# No systemd, no journal and no network are needed. crun refuses machines that have both versions of cgroups.
PODMAN = ["podman", *STORE, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
# Root may not always raise its own limits (CAP_SYS_RESOURCE), and both raise them to defaults unless told otherwise.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
# Without a cache, so that a build that fails leaves nothing behind.
BUD = ["buildah", *STORE, "bud", "--isolation", "chroot", "--format", "docker", "--pull-never", "--no-cache",
       "--force-rm", *LIMITS]
RUN = ["--network=none", "--no-healthcheck", *LIMITS]
# What podman 5 says about a machine with cgroups of version 1 would be taken for what the program in the container says.
os.environ["PODMAN_IGNORE_CGROUPSV1_WARNING"] = "1"


def at_least(version, wanted):
    return [int(number) for number in version.split(".")] >= [int(number) for number in wanted.split(".")]


# The Debians in whose images the simulated driver and its client run, which need a C library no older than the one they
# were built with: this machine's. The library and the command need none newer than 2.31.
RELEASES = [release for release, glibc in ((12, "2.36"), (13, "2.41"))
            if at_least(glibc, os.confstr("CS_GNU_LIBC_VERSION").split()[1])]
RELEASE = RELEASES[0] if RELEASES else None


def output(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def needs():
    """Skips the test if this machine cannot make containers."""
    if missing := [tool for tool in ("podman", "buildah", "runc") if shutil.which(tool) is None]:
        raise unittest.SkipTest(f"not installed: {missing}")
    if os.getuid() != 0:
        raise unittest.SkipTest("only root can make these containers")
    if RELEASE is None:
        raise unittest.SkipTest(f"no known Debian image has a C library as new as {os.confstr('CS_GNU_LIBC_VERSION')}")
    os.makedirs(STORAGE, exist_ok=True)


def imported(image, archive, source=None):
    """The image of that name, made of an archive: a path, or - for `source`."""
    if subprocess.run([*PODMAN, "image", "exists", image], check=False).returncode != 0:
        subprocess.run([*PODMAN, "import", "--quiet", archive, image], input=source, check=True,
                       stdout=subprocess.DEVNULL)
    return image


def debian(release=RELEASE):
    """A clean Debian of that release as an image; without one, of the oldest in which the client runs."""
    return imported(f"localhost/debian:{release}", f"{part(f'debian-{release}')}/rootfs.tar")


def image_of(name, files):
    """An image of nothing but {path: host path or bytes}, all executable."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path, content in files.items():
            if isinstance(content, str):
                with open(content, "rb") as file:
                    content = file.read()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return imported(f"localhost/{name}:{hashlib.sha256(made.getvalue()).hexdigest()[:16]}", "-", made.getvalue())


@functools.lru_cache
def binaries():
    """The options that put this build in the place of the Dockerfile's stages that build."""
    folder = tempfile.mkdtemp(dir=STORAGE)
    atexit.register(shutil.rmtree, folder)
    for file, path in ((COMMAND, f"{folder}/out/usr/bin/fracgpu"), (LIBRARY, f"{folder}/out/usr/lib/libfracgpu.so")):
        os.makedirs(os.path.dirname(path))
        output(["strip", "-o", path, file])
    os.makedirs(f"{folder}/driver/usr/bin")
    if os.path.exists(DRIVER):  # it is not built everywhere
        output(["strip", "-o", f"{folder}/driver/usr/bin/fracgpu-dra", DRIVER])
        output([f"{SOURCE}/containers/libraries.sh", DRIVER, f"{folder}/driver/usr/lib/fracgpu"])
    return [f"--build-context={stage}={folder}" for stage in ("build", "driver")]


def blocks(heading):
    """The indented lines of a section of containers/README.md, block by block."""
    with open(f"{SOURCE}/containers/README.md", encoding="utf-8") as file:
        section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", file.read(), re.DOTALL | re.MULTILINE).group(1)
    found = re.findall(r"(?:^    .+\n)+", section, re.MULTILINE)
    assert found, heading
    return ["".join(line[4:] + "\n" for line in block.splitlines()) for block in found]


def build(image, dockerfile, *options, context=SOURCE, **arguments):
    """Builds an image, with build arguments: status and output."""
    arguments = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    done = subprocess.run([*BUD, *options, *arguments, "-f", dockerfile, "-t", image, context],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def capped(base, memory_gb):
    """An image of containers/Dockerfile over another one."""
    image = f"localhost/fracgpu:{base.rpartition('/')[2].replace(':', '')}-{memory_gb}gb"
    status, said = build(image, f"{SOURCE}/containers/Dockerfile", *binaries(), BASE=base, MEMORY_GB=memory_gb)
    assert status == 0, said
    return image


class Host(Machine):
    """A simulated machine whose GPUs containers can use; ends the containers that it started."""

    def __init__(self, profile):
        super().__init__(profile)
        self.containers = []
        self.ledgers_before = self.container_ledgers()
        self.shares_shm = False

    def __exit__(self, *arguments):
        for name in self.containers:
            subprocess.run([*PODMAN, "rm", "--force", "--time", "0", name], capture_output=True, check=False)
        # Where none of its containers shared this machine's /dev/shm, such ledgers are those of a test beside this one.
        if self.shares_shm:
            for name in self.container_ledgers() - self.ledgers_before:
                self.fracgpu("gc", name)
        super().__exit__(*arguments)

    @staticmethod
    def container_ledgers():
        return {name.removeprefix("fracgpu-") for name in os.listdir("/dev/shm") if name.startswith("fracgpu-container-")}

    def gpu(self):
        """Options that put the simulated driver and a program that uses it into a container."""
        return ["-v", f"{BUILD}/sim:/sim:ro", "-v", f"{CLIENT}:/client:ro", "-v", f"{self.node}:/node",
                "-e", "LD_LIBRARY_PATH=/sim", "-e", "FRACGPU_SIM_NODE=/node"]

    def run(self, options):
        """What starts a container of this machine, up to its image."""
        self.shares_shm = self.shares_shm or "--ipc=host" in options
        return [*PODMAN, "run", "--rm", *RUN, *self.gpu(), *options]

    def container(self, image, *command, options=()):
        """Runs a command in a new container to its end: status, stdout, stderr."""
        return finished([*self.run(options), image, *command])

    def held(self, image, *command, options=()):
        """Starts a container whose program ends with "wait", and returns its name when it waits."""
        name = f"{self.name}-{len(self.containers)}"
        self.containers.append(name)
        child = subprocess.Popen([*self.run(options), "-i", "--name", name, image, *command], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        said = []
        while (line := child.stdout.readline()) != "ready\n":
            assert line, f"ended too early: {said} {child.stderr.read()}"
            said.append(line)
        return name, child, "".join(said)

    def used(self):
        """What is used by the node's own accounting of each GPU now, and was at most since the last reset."""
        import json
        node = json.loads(output([f"{BUILD}/tests/sim/simnode", "show", self.node, "--json"]))
        return [(gpu["used"], sum(t["high_water"] for t in gpu["tenants"].values())) for gpu in node["devices"]]

    def forget_marks(self):
        subprocess.run([f"{BUILD}/tests/sim/simnode", "reset", self.node], check=True)


def finished(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **more)
    return done.returncode, done.stdout, done.stderr

"""The device nodes of MIG instances (/dev/nvidia-caps) on simulated GPUs.

The kernel's part is the simulated NVML's, below a folder that libsimkfd shows under the real names; nvidia-modprobe is
played by a script here. What the nodes are called is computed here from NVIDIA's table of minor numbers.
"""
import json
import os
import shutil
import subprocess

from machine import BUILD, KFD, one_line
from mig_machine import MigMachine

CAPABILITIES = "/proc/driver/nvidia/capabilities"
# As nvidia-modprobe: an empty node for each -f FILE, and nothing where the driver forbids it.
MODPROBE = """#!/bin/sh -e
echo "$*" >> "$FRACGPU_SIM_CAPS_ROOT/asked"
echo "what it says is not shown" >&2
while [ $# -gt 0 ]; do
    [ "$1" = -f ]
    if grep -q "DeviceFileModify: 1" "$2"; then
        minor=$(sed -n "s/DeviceFileMinor: //p" "$2")
        touch "$FRACGPU_SIM_CAPS_ROOT/dev/nvidia-caps/nvidia-cap$minor"
    fi
    shift 2
done
"""


class NodesMachine(MigMachine):
    """Shows capabilities; `modprobe` is the text of its nvidia-modprobe, if it has one."""

    def __init__(self, profile, modprobe=None):
        super().__init__(profile)
        self.root = f"{self.folder}/root"
        self.programs = f"{self.folder}/bin"
        os.makedirs(f"{self.root}/dev/nvidia-caps")
        os.mkdir(self.programs)
        self.environment |= {"FRACGPU_SIM_CAPS_ROOT": self.root, "LD_PRELOAD": KFD}
        # Not the machine's own nvidia-modprobe, should it have one.
        for name in ("sh", "sed", "grep", "touch", "true"):
            os.symlink(shutil.which(name), f"{self.programs}/{name}")
        self.environment["PATH"] = self.programs
        if modprobe:
            with open(f"{self.programs}/nvidia-modprobe", "w", encoding="ascii") as file:
                file.write(modprobe)
            os.chmod(f"{self.programs}/nvidia-modprobe", 0o755)

    def files(self):
        """The capabilities' files that are there, by their real names."""
        found = []
        for folder, _, names in os.walk(self.root + CAPABILITIES):
            found += [f"{folder}/{name}".removeprefix(self.root) for name in names]
        return sorted(found)

    def nodes(self):
        return sorted(os.listdir(f"{self.root}/dev/nvidia-caps"))

    def asked(self):
        try:
            with open(f"{self.root}/asked", encoding="ascii") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def forbid(self, file):
        """The driver's parameter NVreg_ModifyDeviceFiles=0, for one file."""
        with open(self.root + file, encoding="ascii") as old:
            text = old.read()
        with open(self.root + file, "w", encoding="ascii") as new:
            new.write(text.replace("Modify: 1", "Modify: 0"))

    def said_by_doctor(self):
        checks = json.loads(self.fracgpu("doctor", "--json")[1])["checks"]
        return [(c["state"], c["text"], c["remedy"]) for c in checks if c["check"] == "mig-nodes"]


def cap(gpu, instance, compute=-1):
    """NVIDIA's table ends with gpu31/gi14/ci7 as 4322."""
    return f"nvidia-cap{3 + gpu * 135 + instance * 9 + compute + 1}"


def files_of(gpu, instance):
    return [f"{CAPABILITIES}/gpu{gpu}/mig/gi{instance}/{name}access" for name in ("", "ci0/")]


def instance_in(files):
    """GPU and number of the one instance of which these are."""
    words = files[0].split("/")
    return int(words[5].removeprefix("gpu")), int(words[7].removeprefix("gi"))


def test_files_come_and_go_with_instances():
    assert cap(31, 14, 7) == "nvidia-cap4322"
    with NodesMachine("2xh100-80gb-mig-empty", MODPROBE) as m:
        launches = [m.launch("--mig", "3g.40gb", "--gpus", gpu) for gpu in ("0", "1")]
        files = m.files()
        assert len(files) == 4, files
        for gpu in (0, 1):
            mine = [file for file in files if f"/gpu{gpu}/" in file]
            at, number = instance_in(mine)
            assert at == gpu and sorted(mine) == sorted(files_of(gpu, number)), files
            for compute, file in zip((-1, 0), files_of(gpu, number)):
                with open(m.root + file, encoding="ascii") as opened:
                    lines = opened.read().splitlines()
                minor = cap(gpu, number, compute).removeprefix("nvidia-cap")
                assert lines == [f"DeviceFileMinor: {minor}", "DeviceFileMode: 292", "DeviceFileModify: 1"], lines
            assert m.asked()[gpu] == "-f {} -f {}".format(*files_of(gpu, number)), m.asked()
        m.end(*launches)
        assert m.files() == [] and m.instances() == []


def test_modprobe_makes_them_for_a_launch():
    with NodesMachine("h100-80gb-mig-empty", MODPROBE) as m:
        launch = m.launch("--mig", "2g.20gb")
        gpu, number = instance_in(m.files())
        nodes = sorted([cap(gpu, number), cap(gpu, number, 0)])
        first, second = files_of(gpu, number)
        assert m.nodes() == nodes and m.asked() == [f"-f {first} -f {second}"], (m.nodes(), m.asked())
        assert [state for state, *_ in m.said_by_doctor()] == ["ok"], m.said_by_doctor()
        m.end(launch)
        assert launch.stderr.read() == ""
        # They stay, as on a real machine; the next one of this number needs nobody.
        assert m.nodes() == nodes
        status, _, err = m.fracgpu("run", "--mig", "2g.20gb", "--", "true")
        assert status == 0 and err == "" and len(m.asked()) == 1, (err, m.asked())
        # Only what is missing is asked for.
        os.unlink(f"{m.root}/dev/nvidia-caps/{cap(gpu, number, 0)}")
        assert m.fracgpu("run", "--mig", "2g.20gb", "--", "true")[0] == 0
        assert m.asked()[1:] == [f"-f {second}"] and m.nodes() == nodes, m.asked()


def test_what_is_missing_is_said():
    for modprobe in (None, "#!/bin/sh\necho no >&2\nexit 1\n"):
        with NodesMachine("h100-80gb-mig-empty", modprobe) as m:
            launch = m.launch("--mig", "1g.10gb")
            gpu, number = instance_in(m.files())
            first, second = files_of(gpu, number)
            lack = (f"({launch.seen[0]}) lacks /dev/nvidia-caps/{cap(gpu, number)} and "
                    f"/dev/nvidia-caps/{cap(gpu, number, 0)}, without which")
            command = f"as root: nvidia-modprobe -f {first} -f {second}"
            (state, text, remedy), = m.said_by_doctor()
            assert state == "warn" and lack in text and remedy == command, (state, text, remedy)
            m.end(launch)
            err = launch.stderr.read()
            assert one_line(err) and lack in err and command in err, err
            assert m.nodes() == [] and m.instances() == []


def test_where_the_driver_forbids_it():
    with NodesMachine("h100-80gb-mig-empty", MODPROBE) as m:
        launch = m.launch("--mig", "1g.10gb")
        gpu, number = instance_in(m.files())
        for node in m.nodes():
            os.unlink(f"{m.root}/dev/nvidia-caps/{node}")
        m.forbid(files_of(gpu, number)[1])
        (state, text, remedy), = m.said_by_doctor()
        assert state == "warn" and cap(gpu, number, 0) in text and "mknod" in remedy, (text, remedy)
        assert "as root: nvidia-modprobe" not in remedy, remedy
        m.end(launch)


def test_nothing_is_said_where_the_kernel_tells_nothing():
    with NodesMachine("h100-80gb-mig-empty", MODPROBE) as m:
        del m.environment["FRACGPU_SIM_CAPS_ROOT"]
        launch = m.launch("--mig", "1g.10gb")
        assert m.said_by_doctor() == []
        m.end(launch)
        assert launch.stderr.read() == "" and m.files() == [] and m.nodes() == []


def test_doctor_judges_each_instance():
    with NodesMachine("h100-80gb-mig-empty", MODPROBE) as m:
        launches = [m.launch("--mig", "1g.10gb") for _ in range(2)]
        gone = m.nodes()[0]
        os.unlink(f"{m.root}/dev/nvidia-caps/{gone}")
        said = m.said_by_doctor()
        assert sorted(state for state, *_ in said) == ["ok", "warn"], said
        assert any(state == "warn" and f"/dev/nvidia-caps/{gone}," in text and " and " not in text
                   for state, text, _ in said), said
        assert ("ok", "MIG instances with all their device nodes: 1", None) in said, said
        status, page, _ = m.fracgpu("doctor")
        assert status == 0 and "nvidia-modprobe -f" in page, page
        m.end(*launches)


def test_instances_from_the_start():
    with NodesMachine("h100-80gb-mig-empty") as m:
        simnode = f"{BUILD}/tests/sim/simnode"
        subprocess.run([simnode, "remove", m.node], check=True)
        subprocess.run([simnode, "create", m.node, "--profile", "h100-80gb-mig"], env=m.environment, check=True)
        of_gpu_instances = [file for file in m.files() if "/ci" not in file]
        assert len(of_gpu_instances) == len(m.instances()) == 4, m.files()
        said = m.said_by_doctor()
        assert len(said) == len(m.files()) - 4 and {state for state, *_ in said} == {"warn"}, said

"""The task prolog, given the environment that Slurm gives it, and what its words do."""
import os
import shutil
import subprocess

from machine import BUILD, CLIENT, GIB, HIP_PROGRAM, KFD, LIBRARY, Machine

SLURM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "containers", "slurm")


class Cluster(Machine):
    """With the prolog and its configuration in a folder, as on a node."""

    def __init__(self, profile, configuration):
        super().__init__(profile)
        self.job = 4_000_000 + os.getpid() * 10
        shutil.copy(f"{SLURM}/task_prolog.sh", self.folder)
        shutil.copy(f"{SLURM}/epilog.sh", self.folder)
        if configuration is not None:
            with open(f"{self.folder}/fracgpu.conf", "w", encoding="ascii") as file:
                file.write(configuration.replace("LIBRARY=", f"LIBRARY={LIBRARY}"))

    def __exit__(self, *arguments):
        for job in range(self.job, self.job + 10):
            if os.path.exists(f"/dev/shm/fracgpu-slurm-{job}"):
                os.unlink(f"/dev/shm/fracgpu-slurm-{job}")
        super().__exit__(*arguments)

    def prolog(self, **variables):
        """Status, the environment that the task gets, stderr."""
        slurm = {"SLURM_JOB_ID": str(self.job), "SLURM_JOBID": str(self.job), "SLURM_STEP_ID": "0", "SLURM_PROCID": "0",
                 "SLURM_LOCALID": "0", "SLURMD_NODENAME": "node1", "SLURM_JOB_UID": "1000"}
        environment = {**self.environment, **slurm, **variables}
        done = subprocess.run([f"{self.folder}/task_prolog.sh"], env=environment, capture_output=True, text=True,
                              check=False)
        for line in done.stdout.splitlines():
            word, _, assignment = line.partition(" ")
            name, equals, value = assignment.partition("=")
            assert word == "export" and equals == "=" and name.isidentifier(), line
            environment[name] = value
        return done.returncode, environment, done.stderr


def run(environment, *command):
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_shards_become_a_cap():
    with Cluster("a100-40gb", "# ours\nSHARDS_PER_GPU=8\nLIBRARY=\n") as cluster:
        for shards in (1, 2, 3, 7, 8):
            status, task, err = cluster.prolog(SLURM_SHARDS_ON_NODE=str(shards), CUDA_VISIBLE_DEVICES="0",
                                               SLURM_JOB_ID=str(cluster.job + shards))
            assert (status, err) == (0, ""), f"{shards}: {status} {err}"
            done = run(task, CLIENT, "init", "retain", "meminfo")
            total = int(done.stdout.split("total=")[1].split()[0])
            exact = 40 * GIB * shards // 8
            assert exact - 40 * GIB // 10**6 <= total <= exact, f"{shards}: {total} {done.stderr}"


def test_tasks_of_a_job_share_it_and_other_jobs_do_not():
    with Cluster("a100-40gb", "SHARDS_PER_GPU=8\nLIBRARY=\n") as cluster:
        of_job = {job: cluster.prolog(SLURM_SHARDS_ON_NODE="2", CUDA_VISIBLE_DEVICES="0",
                                      SLURM_JOB_ID=str(cluster.job + job))[1] for job in (1, 2)}
        first = subprocess.Popen([CLIENT, "init", "retain", "alloc", "7GiB", "wait"], env=of_job[1], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        cluster.children.append(first)
        while (line := first.stdout.readline()) != "ready\n":
            assert line, first.stderr.read()
        assert "alloc 7516192768 rc=2" in run(of_job[1], CLIENT, "init", "retain", "alloc", "7GiB").stdout
        assert "alloc 7516192768 rc=0" in run(of_job[2], CLIENT, "init", "retain", "alloc", "7GiB").stdout
        # The epilog removes what the second left, and not what lives.
        for job in (1, 2):
            status = run({**cluster.environment, "PATH": f"{BUILD}:{cluster.environment['PATH']}",
                          "SLURM_JOB_ID": str(cluster.job + job)}, f"{cluster.folder}/epilog.sh").returncode
            assert status == 0
        assert [os.path.exists(f"/dev/shm/fracgpu-slurm-{cluster.job + job}") for job in (1, 2)] == [True, False]


def test_amd_likewise():
    with Cluster("mi210", "SHARDS_PER_GPU=4\nLIBRARY=\n") as cluster:
        status, task, err = cluster.prolog(SLURM_SHARDS_ON_NODE="1", ROCR_VISIBLE_DEVICES="0")
        assert (status, err) == (0, ""), err
        assert task["LD_PRELOAD"] == f"{LIBRARY}:{KFD}", task["LD_PRELOAD"]
        done = run(task, HIP_PROGRAM, "init", "meminfo")
        total = int(done.stdout.split("total=")[1].split()[0])
        assert 15.9 * GIB < total <= 16 * GIB, done.stdout + done.stderr


def test_others_are_left_alone():
    with Cluster("a100-40gb", None) as cluster:
        for variables in ({}, {"SLURM_SHARDS_ON_NODE": "0"}, {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1"}):
            status, task, err = cluster.prolog(**variables)
            assert (status, err) == (0, "") and "FRACGPU_TENANT" not in task and "LD_PRELOAD" not in task, task


def test_what_cannot_be_capped_is_refused():
    sound = "SHARDS_PER_GPU=8\nLIBRARY=\n"
    for configuration, variables, reason in (
            (None, {"SLURM_SHARDS_ON_NODE": "2"}, "must say how many shards a GPU has"),
            ("SHARDS_PER_GPU=\n", {"SLURM_SHARDS_ON_NODE": "2"}, "must say how many shards a GPU has"),
            ("SHARDS_PER_GPU=eight\n", {"SLURM_SHARDS_ON_NODE": "2"}, "must say how many shards a GPU has"),
            ("SHARDS_PER_GPU=0\n", {"SLURM_SHARDS_ON_NODE": "2"}, "must say how many shards a GPU has"),
            (sound, {"SLURM_SHARDS_ON_NODE": "9"}, "9 shards are more than the 8 of a GPU"),
            (sound, {"SLURM_SHARDS_ON_NODE": "2x"}, "is no number of shards"),
            (sound, {"SLURM_SHARDS_ON_NODE": "6", "CUDA_VISIBLE_DEVICES": "0,1"}, "are on several GPUs"),
            (sound, {"SLURM_SHARDS_ON_NODE": "6", "ROCR_VISIBLE_DEVICES": "0,1"}, "are on several GPUs"),
            ("SHARDS_PER_GPU=8\n", {"SLURM_SHARDS_ON_NODE": "2"}, "install the package fracgpu there")):
        if "install" in reason and os.path.exists("/usr/lib/libfracgpu.so"):
            continue
        with Cluster("a100-40gb", configuration) as cluster:
            status, task, err = cluster.prolog(**variables)
            assert status == 1 and "FRACGPU_TENANT" not in task, f"{variables}: {status}"
            assert err.startswith("fracgpu: ") and err.count("\n") == 1 and reason in err, f"{variables}: {err}"

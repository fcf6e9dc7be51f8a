#!/bin/sh
# Slurm 22.05 and later: a job that asked for --gres=shard:N gets N shards of a GPU's memory, and no more; all its tasks
# on a node share that cap, as the tenant slurm-JOBID. Jobs that asked for whole GPUs are left alone. In slurm.conf:
#
#   GresTypes=gpu,shard                    and in gres.conf, for four GPUs of 8 shards each:
#   TaskProlog=/etc/slurm/task_prolog.sh     Name=gpu File=/dev/nvidia[0-3]
#   Epilog=/etc/slurm/epilog.sh              Name=shard Count=32
#
# How many shards a GPU has stands in fracgpu.conf beside this script, as SHARDS_PER_GPU=8; LIBRARY=/usr/lib/libfracgpu.so
# may stand there too. Nothing is taken from the user's environment. On AMD's GPUs it is all the same.
# What this prints, Slurm makes the task's environment. Exit status 1: the task must not start, and a line says why.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin

refuse() {
  echo "fracgpu: $1" >&2
  exit 1
}

shards=${SLURM_SHARDS_ON_NODE:-0}
[ "$shards" != 0 ] || exit 0

configuration=${0%/*}/fracgpu.conf
said() { sed -n "s|^$1=||p" "$configuration" 2>/dev/null | tail -n 1; }
per_gpu=$(said SHARDS_PER_GPU)
[ "${per_gpu:-0}" -gt 0 ] 2>/dev/null ||
  refuse "$configuration must say how many shards a GPU has, as SHARDS_PER_GPU=8; until then no job gets shards"
case $shards in
  *[!0-9]*) refuse "SLURM_SHARDS_ON_NODE is '$shards', which is no number of shards" ;;
esac

# Slurm does not tell how many of a job's shards are on which of its GPUs.
gpus=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${GPU_DEVICE_ORDINAL:-}}}
case $gpus in
  *,*) refuse "this job's $shards shards are on several GPUs ($gpus), which cannot be capped each; ask for --gres=shard:$per_gpu or less, or for whole GPUs by --gres=gpu:N" ;;
esac
[ "$shards" -le "$per_gpu" ] ||
  refuse "$shards shards are more than the $per_gpu of a GPU; ask for --gres=shard:$per_gpu or less, or for whole GPUs by --gres=gpu:N"

if [ "$shards" -eq "$per_gpu" ]; then
  share=1.0
else
  share=$(printf '0.%06d' $((shards * 1000000 / per_gpu)))
fi
library=$(said LIBRARY)
library=${library:-/usr/lib/libfracgpu.so}
[ -r "$library" ] || refuse "$library is not on ${SLURMD_NODENAME:-this node}; install the package fracgpu there"
echo "export FRACGPU_TENANT=slurm-$SLURM_JOB_ID"
echo "export FRACGPU_MEMORY_LIMIT=$share"
echo "export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}"

#!/bin/sh
# Removes what a job of task_prolog.sh left in /dev/shm. It holds no GPU memory: nothing depends on this.
fracgpu gc "slurm-$SLURM_JOB_ID" >/dev/null 2>&1 || true

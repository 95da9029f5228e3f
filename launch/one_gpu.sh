#!/usr/bin/env bash
# Run a command on one GPU of this host: the one with the number of its local rank.
#     mpirun -n P launch/one_gpu.sh GPUS python experiments/x.py [--flags]
# Ranks above the number of GPUs share them. Without GPUs (0) the command is only run.
set -euo pipefail
gpus=$1
shift
# of MPICH, Open MPI, Slurm
rank=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
if ((gpus > 0)); then export CUDA_VISIBLE_DEVICES=$((rank % gpus)); fi
exec "$@"

#!/bin/sh
# Train with one process for each GPU of the task, or with RANKS processes.
#   TRAIN_COMMAND   the command of each process (default: python -m recommend train)
set -eu
: "${TRAIN_COMMAND:=python -m recommend train}"

# GPUs of the task: engine and ECS list them in NVIDIA_VISIBLE_DEVICES, as numbers or ids.
gpus=0
case "${NVIDIA_VISIBLE_DEVICES:-void}" in
  "" | void | none) ;;
  all) gpus=$(nvidia-smi --list-gpus 2> /dev/null | wc -l) ;;
  *) gpus=$(echo "$NVIDIA_VISIBLE_DEVICES" | tr ',' '\n' | wc -l) ;;
esac
if [ "${BATCHYARD_DEVICE:-}" = cpu ] || [ "$gpus" -lt 1 ]; then
  gpus=1 # of the processes on CPUs
fi
gpus=${RANKS:-$gpus}

if [ "$gpus" -eq 1 ]; then
  exec sh -c "$TRAIN_COMMAND"
fi
if ! command -v mpirun > /dev/null; then
  echo "train.sh: $gpus processes need mpirun (Debian: openmpi-bin); set RANKS=1 for one" >&2
  exit 2
fi
# In a container the user is root, and the kernel refuses the faster copies between processes.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
exec mpirun -np "$gpus" --bind-to none --oversubscribe sh -c "$TRAIN_COMMAND"

#!/usr/bin/env bash
# Runs a strong- and a weak-scaling study at 1, 2 and 4 nodes of a Slurm cluster on this host. The network
# has 2 Gb/s to each node and 1 Gb/s between its two leaves. Needs root. All nodes share this host's
# cores, so with more nodes than cores no efficiency can exceed cores / nodes.
# perf/scaling_study.sh DATA FOLDER [FLAG OF trireme scale]...
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
data=$(realpath "$1") folder=$(realpath -m "$2")
shift 2
grep -m1 'model name' /proc/cpuinfo
echo "$(nproc) cores; load before: $(cut -d' ' -f1 /proc/loadavg)"
export UCX_TLS=tcp,self # without it UCX uses shared memory between the "nodes"
"$root"/tests/slurm/cluster.sh run --mode network --nodes 4 -- \
  salloc --quiet --nodes=4 --ntasks-per-node=1 \
  "$root"/build/release/bin/trireme scale --output "$folder" --data.train "$data" --launcher srun \
  --nodes 1,2,4 --mode strong,weak --threads 1 --batch.global 16 --batch.micro 2 "$@"

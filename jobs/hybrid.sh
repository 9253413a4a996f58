#!/usr/bin/env bash
# Repeats a published comparison: MobileNetV2 on CIFAR-10 on one node, and on four nodes with data
# parallelism and a pipeline of stages.
usage() {
  cat << 'TEXT'
usage: jobs/hybrid.sh --images PATH [option...] [-- --KEY VALUE...]

  --images PATH    CIFAR-10 as `trireme prepare --images` reads it: a tar archive of JPEGs, or the folder
                   of one, with cifar10/train/CLASS/*.jpg and cifar10/test/CLASS/*.jpg
  --folder DIR     where data, runs and the report are kept; default: runs/hybrid
  --epochs N       of the run that gives the accuracy, on all processors of this host, in an allocation of one
                   of its nodes; default 10; 0: no such run. N of another call goes on from this one's
  --steps N        of one run on each grid, which must all have the same losses; default 200; 0: none
  --measure N      steps of each run of `trireme scale`, a quarter of them not measured; default 20;
                   0: no measurement
  --repeats N      of each of these; default 3
  --threads N      of the rank on each node; default 1
  --quota N        processors of which each node gets the time; default: a quarter of this host's, so that
                   one node is as fast alone as among four; none: no quota
  --mpi TYPE       that of srun; default: pmi2
  --program PATH   default: build/release/bin/trireme
  --help           this text

In a Slurm allocation of four nodes it uses these. Otherwise it makes four nodes on this host with
tests/slurm/cluster.sh (needs root): network namespaces with 2 Gb/s each and 1 Gb/s between two leaves.
What is there already is not made again. --KEY VALUE are further keys of all runs.

The exit status is that of the first command that failed; 1 where losses differ, 2 for a wrong option,
3 without the pictures, 77 where no cluster can be made.
TEXT
}
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$root/jobs/$(basename "${BASH_SOURCE[0]}")
all=("$@")

fail() {
  local status=$1
  shift
  echo "hybrid: $*" >&2
  exit "$status"
}
# shellcheck source=/dev/null
. "$root/jobs/there.sh"

number() {
  [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ && $2 -ge $3 ]] || fail 2 "$1 must be a number of at least $3, not '$2'"
}

images='' folder=$root/runs/hybrid epochs=10 steps=200 measure=20 repeats=3 threads=1 quota='' mpi=pmi2
program=$root/build/release/bin/trireme
while [[ $# -gt 0 ]]; do
  case $1 in
    --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    --images | --folder | --epochs | --steps | --measure | --repeats | --threads | --quota | --mpi | --program)
      [[ -n ${2-} ]] || fail 2 "$1 needs a value; --help shows all options"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) fail 2 "no option is called '$1'; --help shows all of them" ;;
  esac
done
more=("$@")
number --epochs "$epochs" 0
number --steps "$steps" 0
number --measure "$measure" 0
[[ $measure -eq 0 || $measure -ge 2 ]] || fail 2 "--measure must be 0 or at least 2, not '$measure'"
number --repeats "$repeats" 1
number --threads "$threads" 1
if [[ -n ${SLURM_JOB_ID-} && -z ${TRIREME_HYBRID_ON_NODES-} ]]; then
  [[ -z $quota ]] || fail 2 "--quota is for nodes that this script makes, but it runs in an allocation: leave it out"
  quota=none
  given=${SLURM_JOB_NUM_NODES:-4}
  [[ ($steps -eq 0 && $measure -eq 0) || $given -ge 4 ]] ||
    fail 2 "the comparison needs 4 nodes, but the allocation has $given: ask for 4, or give --steps 0 --measure 0"
fi

# The limits of this process's control groups, lines of QUOTA PERIOD, "max" or below 0 where there is none.
limits() {
  local group groups=/sys/fs/cgroup
  group=$(sed -n 's/^0:://p' /proc/self/cgroup)
  for (( ; ; )); do
    cat "$groups$group/cpu.max" || true
    [[ $group == */* ]] || break
    group=${group%/*}
  done
  group=$(sed -n 's/^[0-9]*:\([^:]*,\)\?cpu\(,[^:]*\)\?://p' /proc/self/cgroup)
  for (( ; ; )); do
    paste "$groups/cpu$group/cpu.cfs_quota_us" "$groups/cpu$group/cpu.cfs_period_us" || true
    [[ $group == */* ]] || break
    group=${group%/*}
  done
} 2> /dev/null
# The processors of this host, as far as this script may use them.
processors=$(limits | awk -v n="$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" '
  $1 + 0 > 0 && $2 > 0 && $1 / $2 < n { n = $1 / $2 } END { printf "%g", n }')
quota=${quota:-$(awk -v n="$processors" 'BEGIN { printf "%g", int(250 * n + 0.5) / 1000 }')}
[[ $quota =~ ^([0-9]+(\.[0-9]+)?|none)$ ]] || fail 2 "--quota must be a number of processors or none, not '$quota'"
folder=$(realpath -m "$folder")
[[ -x $program ]] || fail 2 "there is no program $program: build the target trireme, or give --program"
program=$(realpath "$program")

# Data x pipeline, on as many nodes.
grids=(1x1 4x1 1x4 2x2)
nodes_of() { echo $((${1%x*} * ${1#*x})); }

# What the publication says, and where it is silent what is customary: a global batch of 128 in
# micro-batches of 32, whose statistics the batch norms take; padding of 4 before the crop; a tenth of
# the learning rate after eight tenths of the epochs. After each third, when losses still fall fast, it gives 0.77.
keys=(--data.train "$folder/data/train.h5" --model.family mobilenet_v2 --model.preset mobilenet_v2-cifar
  --data.crop random --data.padding 4 --data.flip true --batch.global 128 --batch.micro 32
  --optim.name adam --optim.weight_decay 0 --optim.beta2 0.999 --optim.clip 0 --optim.lr 0.001)
decays=(--schedule.name step --schedule.factor 0.1 --schedule.decay "$(((8 * epochs + 9) / 10))ep" --schedule.warmup 0)

banner() {
  printf '\n== %s: %s\n' "$1" "$2"
}

have_data() { there "$folder/data/train.h5" && there "$folder/data/validation.h5"; }

check_images() {
  ! have_data || return 0
  [[ -n $images ]] ||
    fail 3 "the pictures are missing: give CIFAR-10 with --images, such as cifar10-jpeg.tar.xz"
  [[ -r $images ]] || fail 3 "cannot read the pictures '$images'"
}

prepare() {
  if have_data; then
    echo "$folder/data is there already"
    return
  fi
  rm -rf "$folder/data.partial"
  "$program" prepare --images "$images" --output "$folder/data.partial" --size 32
  mv "$folder/data.partial" "$folder/data"
}

# ---- on the nodes

start() {
  local nodes=$1
  shift
  srun -K1 --export=ALL --mpi="$mpi" --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
    --cpus-per-task="$threads" "$program" "$@"
}

# The losses of a run, a line for each step.
losses() { sed -n 's/^{"step":\([0-9]*\),.*"loss":\([^,]*\),"lr".*/\1 \2/p' "$1/metrics.jsonl"; }

# run.same_bits, so that losses are equal to the last bit: the order of sums is the same on each grid.
equal_losses() {
  local grid run first=$folder/grids/${grids[0]}
  rm -f "$folder/equal"
  for grid in "${grids[@]}"; do
    run=$folder/grids/$grid
    echo "data x pipeline $grid"
    start "$(nodes_of "$grid")" train "${keys[@]}" --schedule.name constant --schedule.warmup 0 \
      --run.folder "$run" --run.steps "$steps" --run.threads "$threads" --run.same_bits true --eval.every 0 \
      --grid.data "${grid%x*}" --grid.pipeline "${grid#*x}" --checkpoint.keep 1 --log.stragglers 0.1 \
      --log.every "$steps" "${more[@]}"
    [[ $(losses "$run" | wc -l) -ge $steps ]] || fail 1 "$run/metrics.jsonl has no $steps losses"
    cmp -s <(losses "$first") <(losses "$run") ||
      fail 1 "the losses of $grid differ from those of ${grids[0]}: compare metrics.jsonl in $folder/grids"
  done
  echo "$steps steps on ${#grids[@]} grids: every loss has the same bits" | tee "$folder/equal"
}

on_nodes() {
  if [[ $steps -gt 0 ]]; then
    banner losses "$steps steps on each grid"
    equal_losses
  fi
  if [[ $measure -gt 0 ]]; then
    banner scale "the time of a step on each grid; load of this host before: $(cut -d' ' -f1 /proc/loadavg)"
    # Without a site of ours, that of the environment or of the installation counts.
    local site=()
    if [[ $mpi != pmi2 ]]; then
      printf '[slurm]\nmpi = %s\n' "$mpi" > "$folder/site.ini"
      site=(--site "$folder/site.ini")
    fi
    "$program" scale --output "$folder/scale" --launcher srun --nodes 1,4 --grids 1x1,2x1,4x1 "${site[@]}" \
      --repeats "$repeats" --steps "$measure" --run.threads "$threads" "${keys[@]}" "${more[@]}"
  fi
}

cluster=(--mode network --nodes 4 --cpus "$threads")
[[ $quota == none ]] || cluster+=(--quota "$quota")

# Whether a cluster can be made here, which should not be found out after hours of training.
check_cluster() {
  local said status=0
  [[ -z ${SLURM_JOB_ID-} ]] || return 0
  said=$("$root/tests/slurm/cluster.sh" run "${cluster[@]}" -- true 2>&1 < /dev/null) || status=$?
  [[ $status -eq 0 ]] || { echo "$said" >&2 && exit "$status"; }
}

# Finds the allocation's nodes, or a cluster of this host.
reach_nodes() {
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    on_nodes
    return
  fi
  # Without the first, UCX would use shared memory between the "nodes".
  export UCX_TLS=tcp,self TRIREME_HYBRID_ON_NODES=1
  if [[ $quota == none ]]; then
    echo "no quotas: with N nodes at once, each has at most $processors/N of this host's processors"
  else
    echo "each node has the time of $quota processors"
  fi
  "$root/tests/slurm/cluster.sh" run "${cluster[@]}" -- \
    salloc --quiet --nodes=4 --ntasks-per-node=1 --cpus-per-task="$threads" "$self" "${all[@]}"
}

# ---- the report

# Prints "EPOCH STEP TOP-1" of each evaluation of the run that gives the accuracy.
evaluations() {
  there "$folder/accuracy/metrics.jsonl" || return 0
  local every
  every=$(sed -n '/^\[eval\]/,/^every/s/^every = //p' "$folder/accuracy/config.ini")
  sed -n 's/^{"step":\([0-9]*\),.*"eval_top1":\([^,}]*\).*/\1 \2/p' "$folder/accuracy/metrics.jsonl" |
    awk -v every="$every" '{ printf "%.0f %d %s\n", $1 / every, $1, $2 }'
}

# Prints "PIPELINE NODES STEP_S SPEEDUP CI EFFICIENCY COMMUNICATION REPEATS" of each grid that was measured.
measured() {
  there "$folder/scale/summary.csv" || return 0
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { print $at["pipeline"], $at["nodes"], 128 / $at["samples_per_s"], $at["speedup"],
        ($at["speedup_ci95"] == "" ? "-" : $at["speedup_ci95"]), $at["efficiency"], $at["communication"],
        $at["repeats"] }' "$folder/scale/summary.csv"
}

# Peak resident memory of each node's rank in MiB, from ranks.json: "95 96 90 88".
memory_of() {
  local file=$folder/grids/$1/ranks.json
  there "$file" || return 0
  tr -d ' \n' < "$file" | awk '{
    columns = $0; sub(/.*"columns":\[/, "", columns); sub(/\].*/, "", columns); n = split(columns, name, ",")
    for (i = 1; i <= n; ++i) if (name[i] == "\"memory_bytes\"") at = i
    rows = $0; sub(/.*"ranks":\[\[/, "", rows); sub(/\]\].*/, "", rows); count = split(rows, row, /\],\[/)
    for (r = 1; r <= count; ++r) { split(row[r], value, ","); printf("%s%.0f", r > 1 ? " " : "", value[at] / 1048576) } }'
}

steps_to_accuracy() { evaluations | awk '$3 >= 0.82 { print $2; exit }'; }

# The processor of the nodes, as the measured points say, or else of this host, where the nodes may be.
processor() {
  local found
  found=$(cat "$folder"/scale/points/*/result.json 2> /dev/null |
    sed -n 's/^.*"processor": *"\([^"]*\)".*/\1/p' | sort -u | paste -sd '|' | sed 's/|/ | /g' || true)
  if [[ -n $found ]]; then
    echo "Nodes: $found"
  elif [[ -z ${SLURM_JOB_ID-} ]]; then
    echo "$(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $processors processors"
  else
    echo "Nodes: not known"
  fi
}

row_of() {
  local grid=$1 found nodes pipeline=${1#*x} seconds speedup ci efficiency communication repeats to memory
  memory=$(memory_of "$grid")
  nodes=$(nodes_of "$grid")
  found=$(measured | awk -v p="$pipeline" -v n="$nodes" '$1 == p && $2 == n')
  if [[ -z $found ]]; then
    echo "| $nodes | $grid | not measured | | | | | ${memory:-not measured} | |"
    return
  fi
  read -r _ _ seconds speedup ci efficiency communication repeats <<< "$found"
  to=$(steps_to_accuracy)
  if [[ -n $to ]]; then
    to=$(awk -v n="$to" -v s="$seconds" 'BEGIN { printf "%.0f s", n * s }')
  else
    to=$([[ -n $(evaluations) ]] && echo "not reached" || echo "not measured")
  fi
  awk -v nodes="$nodes" -v grid="$grid" -v s="$seconds" -v speedup="$speedup" -v ci="$ci" -v e="$efficiency" \
    -v c="$communication" -v memory="${memory:-not measured}" -v to="$to" 'BEGIN {
      scatter = (ci == "-" || nodes == 1) ? "" : sprintf(" ± %.2f", ci)
      printf("| %d | %s | %.3f | %.2f%s | %.0f %% | %.1f %% (%.3f s) | %.0f s | %s | %s |\n", nodes, grid, s, speedup,
        scatter, 100 * e, 100 * c, c * s, 3907 * s, memory, to) }'
}

report() {
  local grid best file
  # What cannot be read ends the script here; what is absent is not measured.
  for file in "$folder"/{accuracy/metrics.jsonl,scale/summary.csv,equal} "$folder"/{grids/*/ranks,scale/points/*/result}.json; do
    there "$file" || true
  done
  cat << TEXT
# MobileNetV2 on CIFAR-10, on one node and on four

$(processor); quota of a node: $quota

## Accuracy

$(if [[ -n $(evaluations) ]]; then
    printf '| epoch | step | top-1 of the test pictures |\n|---|---|---|\n'
    evaluations | awk '{ printf "| %d | %d | %.4f |\n", $1, $2, $3 }'
  else
    echo "not measured"
  fi)

Published: 0.82 on one node, 0.83 on four, after 10 epochs. Of 10,000 pictures, such a share has a standard error of
0.004, so chance may explain that these two differ.

## Four nodes against one

$(if there "$folder/equal"; then cat "$folder/equal"; else echo "Whether losses are equal was not measured"; fi).

| nodes | data x pipeline | s a step | speedup | efficiency | exposed communication | 10 epochs, computed | memory of the nodes, MiB | to 0.82, computed |
|---|---|---|---|---|---|---|---|---|
$(for grid in "${grids[@]}"; do row_of "$grid"; done)

Speedup and efficiency are relative to one node$([[ $quota == none ]] || echo " with the same quota"). "Computed" is the time of a step times the steps:
3,907 for 10 epochs, and as many as the run above took until its first evaluation of at least 0.82. No run took that
long on the nodes. Since losses are equal, accuracies are. Memory is the peak resident of each node's rank.
$(sed -n 's/.*<p class="remark">\(the ceiling of the speedup[^<]*\)<.*/\n\1/p' "$folder/scale/report.html" 2> /dev/null | head -n 2 || true)

## Beside the publication

Published: 7,250 s on one node, 1,451 s on four, a speedup of 5.0.
$(best=$(measured | awk '$2 == 4 && $4 > most { most = $4 } END { if (most) printf "%.2f", most }')
  echo "Measured here at best: ${best:-not measured}.")

Four nodes do four times the work of one in the same time. A speedup of 5.0 of the same work says that one node worked
slower alone than each of the four did together. What that can mean: parts of the model and of the batch fit into caches
or memory that all of it does not; pictures are read and augmented by four hosts instead of one; the run on one node was
another program, another batch, or ran at another time. What it cannot mean: that dividing the work made less of it, or
that eight nodes would give ten. One pair of numbers without repeats does not tell these apart. To compare: one node
with the best that it can do alone, the same global batch, the same accuracy, and repeats.
TEXT
}

# ---- all of it

if [[ -n ${TRIREME_HYBRID_ON_NODES-} ]]; then
  on_nodes
  exit
fi
check_images
[[ $steps -eq 0 && $measure -eq 0 ]] || check_cluster
mkdir -p "$folder"
banner prepare "pictures into $folder/data"
prepare
if [[ $epochs -gt 0 ]]; then
  # The script itself may run on a login node.
  alone=() where="this host"
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    cpus=${SLURM_JOB_CPUS_PER_NODE:-$threads}  # such as "8(x4)"
    alone=(srun -K1 --export=ALL --mpi="$mpi" --nodes=1 --ntasks=1 --cpus-per-task="${cpus%%[(,]*}")
    where="one node"
  fi
  banner accuracy "$epochs epochs on all processors of $where"
  "${alone[@]}" "$program" train "${keys[@]}" "${decays[@]}" --run.folder "$folder/accuracy" --run.steps "${epochs}ep" \
    --data.validation "$folder/data/validation.h5" --eval.every 1ep --checkpoint.every 1ep --checkpoint.keep 2 \
    --log.every 100 "${more[@]}"
fi
[[ $steps -eq 0 && $measure -eq 0 ]] || reach_nodes
banner report "$folder/report.md"
report > "$folder/report.md.partial"
mv "$folder/report.md.partial" "$folder/report.md"
cat "$folder/report.md"

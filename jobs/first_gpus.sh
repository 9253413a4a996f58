#!/usr/bin/env bash
# What only several GPUs can show: the first run on 2 to 16 of them, of one machine or of a Slurm allocation.
# first_gpu.sh runs the steps and keeps their results.
usage() {
  cat << 'TEXT'
usage: jobs/first_gpus.sh run OUT [--gpus N] [--minutes N] [--only WORD]
       jobs/first_gpus.sh steps [--gpus N]

  run OUT          runs the steps, the most telling first, on the GPUs of this machine, or of all nodes of the
                   Slurm allocation that this runs in; OUT is a folder like that of first_gpu.sh
    --gpus N       on so many of them, 2 to 16; default: all
    --minutes N    stop after N minutes in all; default 45
    --only WORD    only the steps whose name holds WORD
  steps            prints the steps, as `first_gpu.sh steps` does
  --help           this text

Exit status of run: that of first_gpu.sh; 2 for a wrong option or number of GPUs, 71 where fewer than two are.
srun gets the words of FIRST_GPUS_SRUN besides (--mpi=pmi2 without it).
TEXT
}
set -euo pipefail
unset CDPATH

self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
engine=$(dirname "$self")/first_gpu.sh

# What is trained and measured. Tests take a smaller model.
model=${FIRST_GPUS_MODEL:-gpt2-124m} large=${FIRST_GPUS_LARGE:-llama3.2-1b}
context=${FIRST_GPUS_CONTEXT:-1024} batch=${FIRST_GPUS_BATCH:-64} large_batch=${FIRST_GPUS_LARGE_BATCH:-8}
width=${FIRST_GPUS_WIDTH:-256} precision=${FIRST_GPUS_PRECISION:-bf16} most=${FIRST_GPUS_MOST:-1G}

fail() {
  local status=$1
  shift
  echo "first_gpus.sh: $*" >&2
  exit "$status"
}

nodes=${SLURM_JOB_NUM_NODES:-1}

# 1, 2, 4, ... below N, and N.
counts_to() {
  local n
  for ((n = 1; n < $1; n *= 2)); do echo -n "$n "; done
  echo "$1"
}

# Prints the steps for $1 GPUs, of which each node has $2.
steps() {
  local gpus=$1 per=$2 counts half=$(($1 / 2))
  counts=$(counts_to "$gpus")
  local bench="trireme bench step --context $context --dtype $precision --device cuda --graphs true --repeats 10"
  local small="$bench --preset $model --batch $((batch * gpus)) --micro $batch"
  local huge="$bench --preset $large --batch $((large_batch * gpus)) --micro $large_batch"
  local study="trireme scale --data.train \"\$DATA/train.h5\" --output study --repeats 2 --steps 20 --run.device cuda"
  study+=" --model.preset $model --model.context $context --run.precision $precision --cuda.graphs true"
  if [[ $nodes -gt 1 ]]; then
    study+=" --launcher srun --ranks-per-node $per --nodes $(counts_to $((gpus / per)) | tr ' ' ',')"
  else
    study+=" --launcher mpiexec --nodes ${counts// /,}"
  fi
  cat << TEXT
facts :: 5 :: 60 :: - :: "\$FIRST_GPUS" each "\$FIRST_GPU" facts; "\$FIRST_GPUS" each nvidia-smi topo -m || true
doctor :: 10 :: 120 :: - :: "\$FIRST_GPUS" on $gpus trireme doctor
comm-tests :: 60 :: 400 :: - :: for ranks in ${counts#1 }; do "\$FIRST_GPUS" on \$ranks comm_gpu_test --gtest_brief=1 || exit; done
bench-comm-nccl :: 60 :: 240 :: - :: "\$FIRST_GPUS" on $gpus trireme bench comm --device cuda --backend nccl --from 1K --to $most --json comm.json
layouts :: 180 :: 600 :: - :: "\$FIRST_GPUS" layouts $gpus
step :: 40 :: 240 :: - :: for ranks in $counts; do "\$FIRST_GPUS" on \$ranks $bench --preset $model --batch \$(($batch * ranks)) --micro $batch --json step-\$ranks.json || exit; done
scale-weak :: 180 :: 900 :: - :: $study --mode weak --batch.global $batch --batch.micro $batch
step-shards :: 60 :: 300 :: - :: for stage in 1 2 3; do "\$FIRST_GPUS" on $gpus $small --shard \$stage || exit; done
step-tensor :: 30 :: 240 :: - :: "\$FIRST_GPUS" on $gpus $small --tensor 2
step-pipeline :: 60 :: 300 :: - :: for schedule in 1f1b zb-h1 zb-v; do "\$FIRST_GPUS" on $gpus $bench --preset $model --batch $((batch * gpus)) --micro $(((batch + 3) / 4)) --pipeline 2 --schedule \$schedule || exit; done
step-large :: 90 :: 400 :: - :: for stage in 0 3; do "\$FIRST_GPUS" on $gpus $huge --shard \$stage || exit; done
overlap :: 150 :: 600 :: - :: "\$FIRST_GPUS" overlap $gpus
killed :: 60 :: 300 :: - :: "\$FIRST_GPUS" killed $gpus
islands :: 60 :: 300 :: - :: "\$FIRST_GPUS" train $gpus islands --grid.islands 2 --grid.data $half --sync.every 5 --batch.global $((batch * half))
bench-comm-plain :: 60 :: 240 :: - :: NCCL_WIN_ENABLE=0 NCCL_LOCAL_REGISTER=0 "\$FIRST_GPUS" on $gpus trireme bench comm --device cuda --backend nccl --from 1K --to $most --json comm.json
bench-comm-mpi :: 60 :: 240 :: - :: "\$FIRST_GPUS" on $gpus trireme bench comm --device cuda --backend mpi --from 1K --to 64M --json comm.json
TEXT
  if [[ $nodes -gt 1 ]]; then
    cat << TEXT
probe :: 60 :: 400 :: - :: "\$FIRST_GPUS" on $gpus trireme topo probe --output rates.json && "\$FIRST_GPUS" train $gpus tuned --nccl.tuner "\$PWD/rates.json" && "\$FIRST_GPUS" train $gpus plain
TEXT
  else
    cat << TEXT
nccl-tuner :: 60 :: 240 :: - :: "\$FIRST_GPU" tuner $gpus "\$FIRST_GPUS" on $gpus trireme bench comm --device cuda --backend nccl --from 1K --to 64M
TEXT
  fi
  cat << TEXT
scale-strong :: 180 :: 900 :: - :: $study --mode strong --batch.global $((batch * gpus)) --batch.micro $batch
TEXT
}

# ---- what steps call -------------------------------------------------------------------------------

# on RANKS COMMAND...: on so many GPUs, a rank each. Every rank sees all GPUs that it has on its node.
on() {
  local ranks=$1 per=${GPUS_OF_NODE:?first_gpus.sh run sets it} here
  shift
  if [[ $nodes -eq 1 ]]; then exec mpiexec -n "$ranks" "$@"; fi
  here=$((ranks < per ? ranks : per))
  # shellcheck disable=SC2086
  exec srun --nodes=$(((ranks + per - 1) / per)) --ntasks="$ranks" --ntasks-per-node="$here" --gres=gpu:"$here" \
    --cpu-bind=cores ${FIRST_GPUS_SRUN:---mpi=pmi2} "$@"
}

# each COMMAND...: once on each node.
each() {
  if [[ $nodes -eq 1 ]]; then exec "$@"; fi
  exec srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --gres=none --mpi=none --label "$@"
}

# train GPUS NAME [FLAGS...]: 30 steps of the model. Prints what the last ten of them took.
train() {
  local gpus=$1 name=$2
  shift 2
  local given=(--batch.global "$((batch * gpus))")
  [[ " $* " != *" --batch.global "* ]] || given=()
  "$self" on "$gpus" trireme train --data.train "$DATA/train.h5" --run.folder "$name" --run.steps 30 \
    --run.device cuda --run.precision "$precision" --model.preset "$model" --model.context "$context" --batch.micro "$batch" \
    "${given[@]}" --eval.every 0 --log.every 1 "$@" < /dev/null > "$name.log" || {
    local status=$?
    tail -n 5 "$name.log"
    return $status
  }
  sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$name/metrics.jsonl" | tail -n 10 | sort -g |
    awk -v name="$name" '{ s[NR] = $1 }
      END { printf "%-24s %9.2f ms a step, the median of %d\n", name, 1e3 * s[int((NR + 1) / 2)], NR }'
}

# The same 20 steps on one GPU and on every layout of N: fails where a loss differs by more than a thousandth.
layouts() {
  local gpus=$1 name layout bad=0 half=$(($1 / 2))
  local flags=(--data.train "$DATA/train.h5" --run.steps 20 --run.precision fp32 --run.device cuda
    --model.layers 4 --model.heads 4 --model.width "$width" --model.context $((context < 128 ? context : 128))
    --batch.global 16 --batch.micro 1 --optim.lr 1e-3
    --schedule.warmup 5 --eval.every 0 --log.every 1)
  "$self" on 1 trireme train "${flags[@]}" --run.folder one < /dev/null > one.log || { tail -n 3 one.log; return 1; }
  while read -r name layout; do
    # shellcheck disable=SC2086
    if ! "$self" on "$gpus" trireme train "${flags[@]}" --run.folder "$name" $layout < /dev/null > "$name.log"; then
      echo "$name failed: $(tail -n 1 "$name.log")"
      bad=1
      continue
    fi
    paste <(losses one) <(losses "$name") | awk -v name="$name" '
      $1 !~ /^-?[0-9.]+/ || $2 !~ /^-?[0-9.]+/ { bad++; n++; next }
      { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; if (!(d <= 1e-3)) bad++; n++ }
      END { printf "%-12s %d steps, largest difference %.2g, allowed 0.001\n", name, n, most
            exit n != 20 || bad > 0 }' || bad=1
  done << TEXT
data --grid.data $gpus
graphs --grid.data $gpus --cuda.graphs true
shard-1 --grid.data $gpus --shard.stage 1
shard-2 --grid.data $gpus --shard.stage 2
shard-3 --grid.data $gpus --shard.stage 3
tensor --grid.data $half --grid.tensor 2
sequence --grid.data $half --grid.tensor 2 --grid.sequence_parallel true
pipeline --grid.data $half --grid.pipeline 2
zb-v --grid.data $half --grid.pipeline 2 --grid.schedule zb-v
mpi --grid.data $gpus --comm.backend mpi
TEXT
  return $bad
}
losses() {
  sed -n 's/.*"loss":\([-+0-9.einfa]*\).*/\1/p' "$1/metrics.jsonl"
}

# What communication beside computation costs, by what it may take of a GPU.
overlap() {
  local gpus=$1 name flags bad=0
  while read -r name flags; do
    # shellcheck disable=SC2086
    train "$gpus" "$name" $flags || bad=1  # an older NCCL refuses some
  done << TEXT
plain
shards --shard.stage 3
channels-8 --nccl.max_channels 8
channels-8-spare --nccl.max_channels 8 --cuda.spare 8
efficiency --nccl.policy efficiency
zero --nccl.policy zero
TEXT
  return $bad
}

# Kills a rank in a run, which must end by itself, and go on from its checkpoint with the same losses.
killed() {
  local gpus=$1 pid='' status=0 runner i
  train "$gpus" whole
  train "$gpus" cut --checkpoint.every 10 > /dev/null &
  runner=$!
  for ((i = 0; i < 1200; ++i)); do
    [[ $(losses cut 2> /dev/null | wc -l) -lt 12 ]] || break
    sleep 0.05
  done
  pid=$(pgrep -n -f "run.folder cut " || true)
  [[ -n $pid ]] || { echo "no rank was found to kill"; return 1; }
  kill -9 "$pid"
  timeout 120 tail --pid="$runner" -f /dev/null || {
    echo "the run goes on without its rank"
    kill -9 "$runner"
    return 1
  }
  wait "$runner" || status=$?
  [[ $status -ne 0 ]] || { echo "the run ended with 0"; return 1; }
  echo "ended with $status: $(tail -n 1 cut.log)"
  train "$gpus" cut --checkpoint.every 10
  paste <(losses whole) <(losses cut) | awk '
    { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; n++ }
    END { printf "%d steps, largest difference after the kill %.2g\n", n, most; exit n != 30 || !(most <= 0.01) }'
}

# ---- run -------------------------------------------------------------------------------------------

gpus_here() { timeout 60 trireme version 2> /dev/null | grep -c '^cuda:[0-9]' || true; }

# Takes --gpus; sets `gpus` and `per`, from what is here where nothing is given.
settle_gpus() {
  per=$(gpus_here)
  [[ -n $gpus || $((per * nodes)) -ge 2 ]] || fail 71 "fewer than two GPUs here: first_gpu.sh is for one"
  [[ $per -ge 1 ]] || per=$(((${gpus:-0} + nodes - 1) / nodes))
  gpus=${gpus:-$((per * nodes < 16 ? per * nodes / 2 * 2 : 16))}
}

command=${1:---help}
[[ $# -eq 0 ]] || shift
case $command in
  run | steps)
    gpus='' out='' options=()
    if [[ $command == run ]]; then
      [[ $# -ge 1 && $1 != -* ]] || fail 2 "run OUT: name the folder for the results; --help shows all"
      out=$1 options=(--minutes 45)
      shift
    fi
    while [[ $# -gt 0 ]]; do
      [[ $1 == --gpus || ($command == run && ($1 == --minutes || $1 == --only)) ]] ||
        fail 2 "$command has no option '$1'; --help shows all"
      [[ $# -ge 2 ]] || fail 2 "$1 needs a value"
      if [[ $1 == --gpus ]]; then
        [[ $2 =~ ^([2-9]|1[0-6])$ && $(($2 % 2)) -eq 0 ]] ||
          fail 2 "--gpus is '$2'; it must be an even number from 2 to 16"
        gpus=$2
      elif [[ $1 == --minutes ]]; then
        options[1]=$2
      else
        options+=("$1" "$2")
      fi
      shift 2
    done
    home=$(cd "$(dirname "$self")/.." && pwd)
    if [[ -d $home/libexec/trireme ]]; then
      PATH=$home/bin:$PATH
    elif [[ -x $home/build/release/bin/trireme ]]; then
      PATH=$home/build/release/bin:$home/build/release/tests:$PATH
    fi
    settle_gpus
    [[ $command == run ]] || { steps "$gpus" "$per"; exit; }
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    steps "$gpus" "$per" > "$list"
    export FIRST_GPUS=$self GPUS_OF_NODE=$per
    status=0
    "$engine" run "$out" --steps-from "$list" "${options[@]}" || status=$?
    exit $status
    ;;
  on | each | train | layouts | overlap | killed) "$command" "$@" ;;
  --help | -h) usage ;;
  *) fail 2 "no command is called '$command'; --help shows all" ;;
esac

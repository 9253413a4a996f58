#!/usr/bin/env bash
# Compares 2 ranks of 1 thread with 1 rank of 2 threads on the same global batch: parallel efficiency of
# the data, tensor and pipeline dimension. perf/scaling.sh [PRESET [BATCH [CONTEXT [STEPS]]]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-gpt2-124m} batch=${2:-8} context=${3:-128} steps=${4:-5}
bench=build/release/bin/trireme
micro=$((batch / 4))
rate() { sed -n 's/^\([0-9.]*\) tokens\/s.*/\1/p'; }
run() {
  mpiexec -n "$1" "$bench" bench step --preset "$preset" --batch "$batch" --context "$context" --repeats "$steps" \
    --micro "$micro" --pipeline "$2" --tensor "$3" | rate
}
grep -m1 'model name' /proc/cpuinfo
alone=$(run 1 1 1)
echo "$preset, $batch x $context tokens in micro-batches of $micro; 1 rank of 2 threads: $alone tokens/s"
for grid in "data 1 1" "pipeline 2 1" "tensor 1 2"; do
  read -r name p t <<< "$grid"
  here=$(run 2 "$p" "$t")
  echo "2 ranks of 1 thread, $name: $here tokens/s, efficiency $(awk "BEGIN {printf \"%.2f\", $here / $alone}")"
done

#!/usr/bin/env bash
# GPT-2 124M, one training step, beside PyTorch in the same run: perf/train_step.sh [STEPS [CONTEXT...]]
# PyTorch (the newest wheel of PyPI) lives in build/venv-torch; set TORCH_PYTHON to use another.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=${1:-5}
contexts=("${@:2}")
[[ ${#contexts[@]} -gt 0 ]] || contexts=(64 256 1024)
python=${TORCH_PYTHON:-build/venv-torch/bin/python}
if [[ ! -x $python ]]; then
  python3 -m venv build/venv-torch
  build/venv-torch/bin/pip install --quiet torch numpy
fi
threads=$(nproc)
grep -m1 'model name' /proc/cpuinfo
precisions=(fp32)
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then precisions+=(bf16); fi
for precision in "${precisions[@]}"; do
  for context in "${contexts[@]}"; do
    build/release/bin/trireme bench step --preset gpt2-124m --batch 4 --context "$context" --dtype "$precision" --repeats "$steps"
    "$python" perf/train_step_torch.py 4 "$context" "$precision" "$steps" "$threads" eager
    "$python" perf/train_step_torch.py 4 "$context" "$precision" "$steps" "$threads" compiled
  done
done

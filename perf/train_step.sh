#!/usr/bin/env bash
# Measures one training step, of GPT-2 124M unless another form is named, and compares it with PyTorch in the same run:
#   perf/train_step.sh [--device cpu] [STEPS [CONTEXT...]]    4 sequences a step of 64, 256, 1024 tokens
#   perf/train_step.sh --device cuda [STEPS [CONTEXT...]]     64 sequences of 1024, bf16, on one GPU
#   perf/train_step.sh --pictures [STEPS [PRESET...]]         the same of MobileNetV2 and ResNet-18 for CIFAR: 128
#                                                             pictures a step, in micro-batches of MICRO (128)
#   perf/train_step.sh --masked [STEPS [CONTEXT...]]          the same of BERT-base: 8 sequences a step of 128 tokens, 512
#                                                             at most
#   perf/train_step.sh --decoders [STEPS [PRESET...]]         the same of qwen3-0.6b and gemma3-270m: 2 sequences a step
#                                                             of CONTEXT (256) tokens
# On a CPU without instructions for bf16 it measures fp32 alone; DTYPES="fp32 bf16" names what to measure.
# PyTorch lives in build/venv-torch, which tests/support/torch_venv.sh makes where it is missing; set TORCH_PYTHON to
# use another, and TRIREME to use another program than the one of build/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
device=cpu kind=texts
if [[ ${1:-} == --pictures || ${1:-} == --masked || ${1:-} == --decoders ]]; then
  kind=${1#--}
  shift
elif [[ ${1:-} == --device ]]; then
  device=$2
  shift 2
fi
contexts=("${@:2}")
ours=()
case $device in
  cpu)
    steps=${1:-5} batch=4 precisions=(fp32)
    case $kind in
      pictures)
        batch=128 presets=("${contexts[@]}")
        [[ ${#presets[@]} -gt 0 ]] || presets=(mobilenet_v2-cifar resnet18-cifar)
        ;;
      decoders)
        batch=2 presets=("${contexts[@]}")
        [[ ${#presets[@]} -gt 0 ]] || presets=(qwen3-0.6b gemma3-270m)
        ;;
      masked)
        batch=8
        [[ ${#contexts[@]} -gt 0 ]] || contexts=(128)
        ;;
    esac
    [[ ${#contexts[@]} -gt 0 ]] || contexts=(64 256 1024)
    if [[ -n ${DTYPES-} ]]; then
      read -ra precisions <<< "$DTYPES"
    elif grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then
      precisions+=(bf16)
    fi
    grep -m1 'model name' /proc/cpuinfo
    ;;
  cuda)
    steps=${1:-20} batch=64 precisions=(bf16) ours=(--graphs true)
    [[ ${#contexts[@]} -gt 0 ]] || contexts=(1024)
    ;;
  *)
    echo "train_step.sh: --device is cpu or cuda, not '$device'" >&2
    exit 2
    ;;
esac
python=${TORCH_PYTHON:-build/venv-torch/bin/python}
[[ -n ${TORCH_PYTHON:-} ]] || tests/support/torch_venv.sh
"$python" -c 'import torch' || {
  echo "train_step.sh: $python has no PyTorch" >&2
  exit 1
}
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
trireme=${TRIREME:-build/release/bin/trireme}
for precision in "${precisions[@]}"; do
  if [[ $kind == pictures || $kind == decoders ]]; then
    [[ $kind == pictures ]] && size=(--micro "${MICRO:-$batch}") || size=(--context "${CONTEXT:-256}")
    for preset in "${presets[@]}"; do
      step=(--preset "$preset" --batch "$batch" "${size[@]}" --dtype "$precision" --threads "$(nproc)")
      "$trireme" bench step "${step[@]}" --repeats "$steps" --json "$figures"
      "$python" "perf/${kind%s}_step_torch.py" --beside "$figures" "${step[@]}" --steps "$steps"
    done
    continue
  fi
  model=gpt2-124m peer=(perf/train_step_torch.py)
  [[ $kind != masked ]] || model=bert-base peer=(perf/masked_step_torch.py --preset bert-base)
  for context in "${contexts[@]}"; do
    step=(--batch "$batch" --context "$context" --dtype "$precision" --device "$device")
    "$trireme" bench step --preset "$model" "${step[@]}" "${ours[@]}" --repeats "$steps" --json "$figures"
    "$python" "${peer[@]}" --beside "$figures" "${step[@]}" --steps "$steps" --threads "$(nproc)"
  done
done

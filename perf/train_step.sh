#!/usr/bin/env bash
# Measures one training step, of GPT-2 124M unless another form is named, and compares it with PyTorch in the same run:
#   perf/train_step.sh [--device cpu|cuda] [STEPS [CONTEXT...]]  4 sequences a step of 64, 256, 1024 tokens; on a GPU 64
#                                                                of 1024
#   ... --pictures [STEPS [PRESET...]]   128 pictures a step of MobileNetV2 and ResNet-18 for CIFAR; on a GPU 256 of
#                                        MobileNetV2 and ResNet-50. In micro-batches of MICRO (all)
#   ... --masked [STEPS [CONTEXT...]]    8 sequences a step of BERT-base, of 128 tokens; on a GPU 64 of 512
#   ... --decoders [STEPS [PRESET...]]   2 sequences a step of CONTEXT (256) tokens of qwen3-0.6b and gemma3-270m; on a
#                                        GPU 8 of 1024 of llama3.2-1b
# On a CPU without instructions for bf16 it measures fp32 alone, on a GPU bf16 in captured steps; DTYPES="fp32 bf16"
# names what to measure. PyTorch lives in build/venv-torch, which tests/support/torch_venv.sh makes where it is missing;
# set TORCH_PYTHON to use another, and TRIREME to use another program than the one of build/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
device=cpu kind=texts
while [[ ${1:-} == --* ]]; do
  case $1 in
    --pictures | --masked | --decoders) kind=${1#--} ;;
    --device)
      device=${2:-}
      shift
      ;;
    *)
      echo "train_step.sh: there is no $1; there are --device, --pictures, --masked and --decoders" >&2
      exit 2
      ;;
  esac
  shift
done
case $device in
  cpu)
    steps=${1:-5} precisions=(fp32) ours=(--threads "$(nproc)")
    if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then precisions+=(bf16); fi
    grep -m1 'model name' /proc/cpuinfo
    declare -A batches=([texts]=4 [pictures]=128 [masked]=8 [decoders]=2)
    declare -A measured=([texts]="64 256 1024" [pictures]="mobilenet_v2-cifar resnet18-cifar" [masked]=128
      [decoders]="qwen3-0.6b gemma3-270m")
    context=${CONTEXT:-256}
    ;;
  cuda)
    steps=${1:-20} precisions=(bf16) ours=(--graphs true)
    declare -A batches=([texts]=64 [pictures]=256 [masked]=64 [decoders]=8)
    declare -A measured=([texts]=1024 [pictures]="mobilenet_v2 resnet50" [masked]=512 [decoders]=llama3.2-1b)
    context=${CONTEXT:-1024}
    ;;
  *)
    echo "train_step.sh: --device is cpu or cuda, not '$device'" >&2
    exit 2
    ;;
esac
[[ -z ${DTYPES-} ]] || read -ra precisions <<< "$DTYPES"
batch=${batches[$kind]}
read -ra which <<< "${measured[$kind]}"
[[ $# -le 1 ]] || which=("${@:2}")
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
  for one in "${which[@]}"; do
    # What both are told, and what each alone is.
    step=(--batch "$batch" --dtype "$precision" --device "$device") named=() peer=train_step_torch.py
    case $kind in
      texts) step+=(--context "$one") named=(--preset gpt2-124m) ;;
      pictures) step+=(--preset "$one" --micro "${MICRO:-$batch}") peer=picture_step_torch.py ;;
      masked) step+=(--context "$one" --preset bert-base) peer=masked_step_torch.py ;;
      decoders) step+=(--preset "$one" --context "$context") peer=decoder_step_torch.py ;;
    esac
    "$trireme" bench step "${named[@]}" "${step[@]}" "${ours[@]}" --repeats "$steps" --json "$figures"
    "$python" "perf/$peer" --beside "$figures" "${step[@]}" --steps "$steps" --threads "$(nproc)"
  done
done

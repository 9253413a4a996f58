#!/bin/sh
# weights_torch_test.sh REPOSITORY PROGRAM: imported and exported models beside PyTorch's. Skipped where there is no
# PyTorch with transformers and safetensors: neither at TORCH_PYTHON nor in build/venv-torch.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import safetensors, torch, transformers' 2>/dev/null; then
  echo "skipped: $python has no torch, transformers or safetensors;" \
    "python3 -m venv build/venv-torch && build/venv-torch/bin/pip install torch transformers safetensors torchvision onnxruntime"
  exit 77
fi
exec "$python" "$(dirname "$0")/weights_torch_test.py" "$2"

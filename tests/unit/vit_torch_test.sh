#!/bin/sh
# vit_torch_test.sh REPOSITORY PROGRAM: a vision transformer beside Hugging Face's. Skipped where there
# is no PyTorch with transformers: neither at TORCH_PYTHON nor in build/venv-torch.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
  echo "skipped: $python has no torch and transformers; perf/train_step.sh makes build/venv-torch," \
    "and its pip installs transformers"
  exit 77
fi
exec "$python" "$(dirname "$0")/vit_torch_test.py" "$2"

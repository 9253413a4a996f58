#!/bin/sh
# convolutional_torch_test.sh REPOSITORY PROGRAM: convolutional networks beside PyTorch's. Skipped where there is
# no PyTorch: neither at TORCH_PYTHON nor in build/venv-torch, which perf/train_step.sh makes.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "skipped: $python has no torch; perf/train_step.sh makes build/venv-torch"
  exit 77
fi
exec "$python" "$(dirname "$0")/convolutional_torch_test.py" "$2"

#!/bin/sh
# bert_torch_test.sh REPOSITORY PROGRAM: a BERT beside Hugging Face's. Skipped where there
# is no PyTorch with transformers: neither at TORCH_PYTHON nor in build/venv-torch.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
  echo "skipped: $python has no torch and transformers; perf/train_step.sh makes build/venv-torch," \
    "and its pip installs transformers"
  exit 77
fi
exec "$python" "$(dirname "$0")/bert_torch_test.py" "$2"

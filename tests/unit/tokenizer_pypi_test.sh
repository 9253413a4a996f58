#!/bin/sh
# tokenizer_pypi_test.sh REPOSITORY PROGRAM: tokens beside those of PyPI's `tokenizers`. Skipped where
# the package is not installed: neither at TORCH_PYTHON nor in build/venv-torch.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
  echo "skipped: $python has no tokenizers; perf/train_step.sh makes build/venv-torch, and its pip" \
    "installs tokenizers"
  exit 77
fi
exec "$python" "$(dirname "$0")/tokenizer_pypi_test.py" "$1" "$2"

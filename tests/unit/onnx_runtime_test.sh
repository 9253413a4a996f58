#!/bin/sh
# onnx_runtime_test.sh REPOSITORY PROGRAM: what onnxruntime computes with exported graphs. Skipped where there is no
# onnxruntime with onnx, numpy and pillow: neither at TORCH_PYTHON nor in build/venv-torch.
set -u
python=${TORCH_PYTHON:-$1/build/venv-torch/bin/python}
if ! "$python" -c 'import numpy, onnx, onnxruntime, PIL' 2>/dev/null; then
  echo "skipped: $python has no onnx, onnxruntime or pillow;" \
    "python3 -m venv build/venv-torch && build/venv-torch/bin/pip install onnx onnxruntime pillow"
  exit 77
fi
exec "$python" "$(dirname "$0")/onnx_runtime_test.py" "$2"

#!/bin/sh
# onnx_runtime_test.sh VENV PROGRAM: what onnxruntime computes with exported graphs.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" numpy onnx onnxruntime pillow || exit $?
exec "$1/bin/python" "$here/onnx_runtime_test.py" "$2"

#!/bin/sh
# tokenizer_folders_transformers4_test.sh PROGRAM: tokenizer_folders_torch_test.py with transformers 4.57, which needs no
# PyTorch for that. This makes its environment, which all build folders share:
#
#     tests/support/venv.sh build/venv-transformers4 'transformers==4.57.*' jinja2
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../../build/venv-transformers4/bin/python
[ -x "$python" ] || {
  echo "skipped: there is no build/venv-transformers4; tests/support/venv.sh build/venv-transformers4 'transformers==4.57.*' jinja2 makes it"
  exit 77
}
exec "$python" "$here/tokenizer_folders_torch_test.py" "$1"

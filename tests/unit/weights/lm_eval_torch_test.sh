#!/bin/sh
# lm_eval_torch_test.sh --make            makes build/venv-lm-eval, which uses the PyTorch of build/venv-torch
# lm_eval_torch_test.sh PROGRAM...        runs the test with it; where it is missing says so and returns 77 (CTest: skipped)
set -u
here=$(cd "$(dirname "$0")" && pwd)
builds=$(cd "$here/../../.." && pwd)/build
folder=$builds/venv-lm-eval
if [ "${1-}" = --make ]; then
  python3 -m venv "$folder" || exit 1
  for packages in "$builds"/venv-torch/lib/python3*/site-packages; do
    [ -d "$packages" ] || {
      echo "build/venv-torch is missing: tests/support/torch_venv.sh makes it"
      exit 1
    }
    echo "$packages" > "$(echo "$folder"/lib/python3*/site-packages)/torch.pth" || exit 1
  done
  "$folder/bin/python" -m pip install --quiet 'lm_eval[hf]' && : > "$folder/.complete"
  exit
fi
[ -e "$folder/.complete" ] || {
  echo "skipped: there is no build/venv-lm-eval; $0 --make makes it beside build/venv-torch"
  exit 77
}
exec "$folder/bin/python" "$here/lm_eval_torch_test.py" "$@"

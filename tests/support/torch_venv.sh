#!/bin/sh
# The Python of the comparisons with PyTorch (tests/README.md): the environment build/venv-torch of the source tree,
# which all build folders share, or what TORCH_PYTHON names.
#
#     torch_venv.sh                      makes build/venv-torch, which takes 6 GB, most of it CUDA's libraries
#     torch_venv.sh --run SCRIPT ARG...  runs a script with that Python and installs nothing; where packages are
#                                        missing it says so and returns 77 (CTest: skipped)
#
# All packages are PyPI's newest, as measurements and tests compare with.
set -u
tested="torch torchvision transformers safetensors onnxruntime numpy pillow"
packages="$tested h5py" # the last for perf/accuracy_torch.py
support=$(cd "$(dirname "$0")" && pwd)
folder=$(dirname "$(dirname "$support")")/build/venv-torch

case ${1-} in
  '')
    # shellcheck disable=SC2086  # a package each
    VENV_SECONDS=800 exec "$support/venv.sh" "$folder" $packages
    ;;
  --run) shift ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    [ "$1" = --help ] && exit 0
    exit 2
    ;;
esac

if [ -n "${TORCH_PYTHON:-}" ]; then
  # shellcheck disable=SC2086
  missing=$("$TORCH_PYTHON" -c 'import importlib.util, sys
print(*(name for name in sys.argv[1:] if not importlib.util.find_spec({"pillow": "PIL"}.get(name, name))))' $tested 2>&1) || {
    echo "skipped: TORCH_PYTHON is $TORCH_PYTHON, which does not run"
    exit 77
  }
  [ -z "$missing" ] || {
    echo "skipped: TORCH_PYTHON is $TORCH_PYTHON, which does not have $missing"
    exit 77
  }
  exec "$TORCH_PYTHON" "$@"
fi
for package in $packages; do
  # An installation that was interrupted has no stamp.
  [ -e "$folder/.has-$package" ] || {
    echo "skipped: build/venv-torch does not have $package; tests/support/torch_venv.sh makes it (several GB)"
    exit 77
  }
done
exec "$folder/bin/python" "$@"

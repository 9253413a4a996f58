#!/usr/bin/env bash
# Downloads the headers of cuDNN's frontend, which no Debian package and no toolkit has: the package
# nvidia-cudnn-frontend of PyPI. It puts them into build/cudnn_frontend/include, where CMake looks.
#
#     jobs/install_cudnn_frontend.sh
#
# Does nothing if the headers are there already, or if this machine has no CUDA toolkit with cuDNN.
# Ends with 0 in any case: without the headers our own kernels compute attention, and a line says so.
set -euo pipefail

if [[ $# -gt 0 ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  [[ $# -eq 1 && $1 == --help ]] && exit 0
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$root/build/cudnn_frontend
toolkits=()
nvcc=$(command -v nvcc || true)
[[ -z $nvcc ]] || toolkits+=("$(dirname "$(dirname "$(readlink -f "$nvcc")")")")
toolkits+=("${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda)

has_cudnn() {
  local toolkit
  for toolkit in "${toolkits[@]}"; do
    [[ -z $toolkit || ! -e $toolkit/include/cudnn_version.h ]] || return 0
  done
  return 1
}
if [[ -e $folder/include/cudnn_frontend.h ]] || ! has_cudnn; then
  exit 0
fi

mkdir -p "$folder"
log=$folder/install.log
fetch() {
  [[ -x $folder/venv/bin/python ]] || python3 -m venv "$folder/venv" || return
  "$folder/venv/bin/python" -m pip download --disable-pip-version-check --quiet --timeout 20 \
    --retries 1 --no-deps --only-binary :all: --dest "$folder" 'nvidia-cudnn-frontend~=1.32' ||
    return
  # Extracts only the headers, and all of them or none.
  python3 - "$folder" << 'PYTHON' || return
import glob, os, shutil, sys, zipfile
folder = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(f"{folder}/*.whl")[0])
wheel.extractall(f"{folder}/partial", [name for name in wheel.namelist() if name.startswith("include/")])
shutil.rmtree(f"{folder}/include", ignore_errors=True)
os.rename(f"{folder}/partial/include", f"{folder}/include")
PYTHON
  rm -rf "$folder"/*.whl "$folder/partial" "$folder/venv"
}
if fetch > "$log" 2>&1; then
  echo "cuDNN's frontend is in $folder/include"
else
  echo "install_cudnn_frontend: PyPI's nvidia-cudnn-frontend cannot be had ($log says why);" \
    "attention on GPUs will be by our own kernels" >&2
fi

#!/usr/bin/env bash
# A training step of GPT-2 124M by llm.c (github.com/karpathy/llm.c): what trireme bench step is compared with.
usage() {
  cat << 'TEXT'
usage: perf/llm_c.sh build SOURCE FILE   compiles train_gpt2cu of a clone of llm.c, with cuDNN's attention
       perf/llm_c.sh run [STEPS]         trains on 64 made-up sequences of 1,024 tokens a step, in bf16, by the
                                         train_gpt2cu in PATH; default: 30 steps

  build   needs a CUDA toolkit with cuDNN, and the headers that jobs/install_cudnn_frontend.sh brings. ARCHITECTURE
          in the environment is that of the GPU; default: 90
  run     prints the median time of the steps but the first five, and the tokens per second that it stands for

Exit status: 0, 1 where something failed, 2 for a wrong option, 3 where SOURCE is no llm.c.
TEXT
}
set -euo pipefail

fail() {
  local status=$1
  shift
  echo "llm_c.sh: $*" >&2
  exit "$status"
}

build() {
  [[ $# -eq 2 ]] || fail 2 "build SOURCE FILE; --help shows all"
  [[ -e $1/train_gpt2.cu && -e $1/llmc/cudnn_att.cpp ]] || fail 3 "$1 is no clone of llm.c: train_gpt2.cu is missing"
  local headers
  headers=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/cudnn_frontend/include
  [[ -e $headers/cudnn_frontend.h ]] || fail 1 "cuDNN's frontend is missing: run jobs/install_cudnn_frontend.sh"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cp -r "$1/." "$work/"
  mkdir -p "$work/cudnn-frontend"
  ln -s "$headers" "$work/cudnn-frontend/include"
  # CUDA 13 takes a place where earlier versions took a device's number. Machines without a GPU have no NVML, by which
  # llm.c tells the clocks. Newer headers of the frontend want NVRTC.
  sed -i 's/PreferredLocation, cudaCpuDeviceId)/PreferredLocation, cudaMemLocation{cudaMemLocationTypeHost, 0})/' \
    "$work/llmc/cuda_utils.cuh"
  sed -i 's/__has_include(<nvml.h>)/0/' "$work/llmc/mfu.h"
  sed -i 's/ -lnvidia-ml//' "$work/Makefile"
  local toolkit
  toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  make -C "$work" train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1 NO_USE_MPI=1 \
    GPU_COMPUTE_CAPABILITY="${ARCHITECTURE:-90}" \
    NVCC_LDLIBS="-lnvrtc -L$toolkit/lib64 -L$toolkit/lib" HOME="$work" > "$work/log" 2>&1 ||
    fail 1 "llm.c does not compile: $(grep -m 1 -i error "$work/log" || tail -n 1 "$work/log")"
  cp "$work/train_gpt2cu" "$2"
}

# 32 batches of tokens, in llm.c's format: 256 numbers, of which the first three tell the kind, the
# version and how many tokens follow, and these in 16 bits. All are below GPT-2's 50,257.
made_up_tokens() {
  local tokens=$((32 * 64 * 1024 + 1))
  printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x01\x00\x20\x00'
  head -c $((1024 - 12)) /dev/zero
  LC_ALL=C tr -d '\200-\377' < /dev/urandom | head -c $((2 * tokens)) || true  # tr ends with its reader
}

# The folders of CUDA's libraries for the loader: a toolkit's, and those beside PyTorch.
cuda_libraries() {
  printf '%s' "${CUDA_HOME:-/usr/local/cuda}/lib64"
  python3 -c 'import glob, site
for folder in site.getsitepackages():
    for library in sorted(glob.glob(folder + "/nvidia/*/lib")):
        print(":" + library, end="")' 2> /dev/null || true
}

run() {
  local steps=${1:-30}
  [[ $# -le 1 && $steps =~ ^[0-9]+$ && $steps -gt 5 ]] || fail 2 "run [STEPS]: STEPS is a number above 5"
  command -v train_gpt2cu > /dev/null || fail 1 "there is no train_gpt2cu in PATH: perf/llm_c.sh build makes it"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  made_up_tokens > "$work/tokens.bin"
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(cuda_libraries) \
    train_gpt2cu -i "$work/tokens.bin" -j "$work/tokens.bin" -e d12 -b 64 -t 1024 -d 65536 -x "$steps" \
    -v 0 -s 0 -h 0 -n 0 | tee "$work/said"
  sed -n 's/^step .*| \([0-9.]*\) ms |.*/\1/p' "$work/said" | tail -n +6 | sort -n |
    awk '{ ms[NR] = $1 }
         END { if (NR == 0) { print "llm.c told no time of a step"; exit 1 }
               m = NR % 2 ? ms[(NR + 1) / 2] : (ms[NR / 2] + ms[NR / 2 + 1]) / 2
               printf "llm.c: %.1f tokens/s, %.3f ms a step, the median of %d\n", 65536e3 / m, m, NR }'
}

command=${1:---help}
[[ $# -eq 0 ]] || shift
case $command in
  build | run) "$command" "$@" ;;
  --help | -h) usage ;;
  *) fail 2 "no command is called '$command'; --help shows all" ;;
esac

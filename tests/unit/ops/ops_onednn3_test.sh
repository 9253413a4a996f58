#!/bin/sh
# ops_onednn3_test.sh VENV COMPILER SOURCE_FOLDER ARGUMENT...: the tests of products and convolutions
# on oneDNN 3.2, whose interface differs from that of Debian's 2.6. The ARGUMENTs are the objects and
# libraries of ops_test; what we have for oneDNN is compiled again and linked before them.
set -u
venv=$1 compiler=$2 source=$3
shift 3
here=$(dirname "$0")
"$here/../../support/venv.sh" "$venv" onednn-devel-cpu-gomp==2023.2.0 || exit $?
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
set -e
for name in matmul convolution; do
  "$compiler" -std=c++20 -O1 -fopenmp -Wall -Wextra -Werror -I"$venv/include" \
    -I"$source/include" -I"$source/src" -c "$source/src/ops/${name}_onednn.cc" \
    -o "$folder/$name.o"
done
# Debian's library has functions of the same names: it is linked only where something is missing.
"$compiler" -fopenmp -o "$folder/test" "$folder/matmul.o" "$folder/convolution.o" \
  -Wl,--as-needed -Wl,-rpath,"$venv/lib" "$venv/lib/libdnnl.so.3" "$@"
for engine in onednn onednn-primitives onednn-sgemm; do
  TRIREME_MATMUL=$engine "$folder/test" --gtest_filter='*Matmul*:*onvolution*' >"$folder/out" || {
    cat "$folder/out"
    exit 1
  }
  tail -1 "$folder/out"
done
ldd "$folder/test" | grep -q 'libdnnl.so.3' && ! ldd "$folder/test" | grep -q 'libdnnl.so.2'

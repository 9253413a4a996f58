#!/usr/bin/env bash
# Packs jobs/first_gpu.sh's bundle, unpacks it into a root folder that has nothing else but a C library,
# bash and the common tools, and starts it there: it says that there is no GPU, and each of its programs
# runs.
#
#     first_gpu_bundle_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source_dir=$1 build_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "first_gpu_bundle_test: $*" >&2
  exit 1
}

command -v patchelf > /dev/null || { echo "skipped: there is no patchelf"; exit 77; }
[[ -x $build_dir/tests/nccl_gpu_test ]] || { echo "skipped: a build without CUDA"; exit 77; }
if ! unshare --mount --pid --fork true 2> /dev/null; then
  echo "skipped: an empty root cannot be made without the rights to"
  exit 77
fi
for i in $(seq 9000); do echo "the $i trees stand in row $((i % 7)), and the birds sing"; done > "$work/text"
"$source_dir/jobs/first_gpu.sh" bundle "$work/bundle.tar.gz" --build "$build_dir" --text "$work/text" \
  > "$work/log" 2>&1 || fail "bundle: $(cat "$work/log")"
size=$(stat -c %s "$work/bundle.tar.gz")
[[ $size -lt 63000000 ]] || fail "the bundle takes $size bytes"

root=$work/root
mkdir -p "$root"/{opt,proc,dev,tmp,bin,lib64}
tar -xzf "$work/bundle.tar.gz" -C "$root/opt"
here=/opt/trireme_first_gpu
for file in train.h5 validation.h5; do
  [[ -s $root$here/data/$file ]] || fail "the bundle has no $file"
done
for file in perf/{train_step.sh,train_step_torch.py,picture_step_torch.py,masked_step_torch.py,decoder_step_torch.py} \
  tests/mpi/device_train_test.py tests/support/{cli_testing,torch_pictures}.py; do
  [[ -s $root$here/$file ]] || fail "the bundle has no $file"
done
# What every Linux has.
for tool in bash env timeout sed grep date dirname basename uname tail head cat mkdir; do
  cp -L "$(command -v "$tool")" "$root/bin/$tool"
  ldd "$root/bin/$tool" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -Ln "$library" "$root$library"
  done
done
libc=$(ldd "$root/bin/bash" | sed -n 's|.* \(/.*\)/libc\.so\.6 .*|\1|p')
for library in m dl pthread rt resolv util anl mvec; do  # the rest of the C library
  cp -L "$libc"/lib$library.so.[0-9] "$root$libc"
done
in_root() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork bash -c '
    set -e
    mount -t proc proc "$0/proc"
    mount -t tmpfs tmpfs "$0/dev"
    mkdir "$0/dev/shm"
    ln -s /proc/self/fd "$0/dev/fd"
    for device in null zero urandom random; do
      touch "$0/dev/$device"
      mount --bind "/dev/$device" "$0/dev/$device"
    done
    exec "$(command -v env)" -i PATH=/bin "$(command -v chroot)" "$0" "$@"' "$root" "$@"
}
status=0
said=$(in_root /bin/bash $here/jobs/first_gpu.sh run /tmp/out 2>&1) || status=$?
[[ $status -eq 71 && $said == "first_gpu.sh: no GPU here ("*"): nothing was run" ]] ||
  fail "run: status $status, $said"
[[ ! -e $root/tmp/out ]] || fail "there are results although nothing was run"
for program in ops_gpu_test cuda_gpu_test nccl_gpu_test comm_gpu_test; do
  for libc in system archive; do
    status=0
    said=$(in_root /bin/env TRIREME_LIBC=$libc $here/bin/$program 2>&1) || status=$?
    [[ $status -eq 0 || $status -eq 77 ]] || fail "$program with TRIREME_LIBC=$libc: status $status, $said"
    [[ $said == *skipped:*driver* ]] || fail "$program with TRIREME_LIBC=$libc: $said"
  done
done
status=0
said=$(in_root $here/bin/checkpoint_difference /none /none 2>&1) || status=$?
[[ $status -ne 127 && $said == *none* ]] || fail "checkpoint_difference: status $status, $said"
in_root $here/bin/mpiexec -n 2 $here/bin/comm_gpu_test > "$work/log" 2>&1 || true
grep -q "skipped:" "$work/log" || fail "comm_gpu_test under mpiexec: $(cat "$work/log")"
echo "packed ($((size / 1000000)) MB), unpacked, and started in a bare root"

#!/usr/bin/env bash
# Builds the relocatable archive, unpacks it into a root folder with nothing else but /proc, /dev and
# /tmp, and trains there on 2 ranks.
#
# With CUDA in the build, also that what its libraries need is all in the second archive.
#
#     archive_test.sh SOURCE_FOLDER BUILD_FOLDER VERSION [CUDA_LIBRARIES CUDA_FOLDERS]
#
# The last two are lists with colons, and empty without CUDA.
set -euo pipefail
source_dir=$1 build_dir=$2 version=$3 cuda_libraries=${4:-} cuda_folders=${5:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "archive_test: $*" >&2
  exit 1
}

command -v patchelf > /dev/null || { echo "skipped: there is no patchelf"; exit 77; }
cpack --config "$build_dir/CPackConfig.cmake" -G TGZ -B "$work" > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "cpack"; }
name=trireme-$version-linux-x86_64
archive=$work/$name.tar.gz
size=$(stat -c %s "$archive")
[[ $size -lt 60000000 ]] || fail "the archive takes $size bytes"
rm -rf "$work/_CPack_Packages"
root=$work/root
mkdir -p "$root"/{opt,proc,dev,tmp,data}
tar -xzf "$archive" -C "$root/opt"
here=$root/opt/$name

if grep -rlF -e "$source_dir" -e "$build_dir" -e "$work" "$here"; then
  fail "the files above hold a path of the build"
fi
shopt -s nullglob  # a pattern that nothing matches is no file
for file in "$here"/lib/*.so.* "$here"/libexec/trireme/*; do
  [[ -f $file ]] || continue  # beside the programs is a folder
  if readelf -d "$file" | grep -q 'NEEDED.*\[libmpich.so'; then
    fail "${file##*/} asks for libmpich.so, which no other MPI is called"
  fi
done
[[ -s $here/lib/trireme/libtrireme_tuner.so ]] || fail "NCCL's tuner is missing"
for package in libmpich12 libarchive-dev libzstd1; do
  [[ -e $here/share/doc/trireme/licenses/$package ]] || fail "the licence of $package is missing"
done

# It runs with the C library of this system, and with its own.
for libc in system archive; do
  said=$(TRIREME_LIBC=$libc "$here/bin/trireme" version) || fail "trireme version with TRIREME_LIBC=$libc"
  [[ ${said%%$'\n'*} == "trireme $version" ]] || fail "TRIREME_LIBC=$libc: trireme version says $said"
done
# refuses MESSAGE VARIABLE=VALUE
refuses() {
  local status=0 said
  said=$(env "$2" "$here/bin/trireme" version 2>&1) || status=$?
  [[ $status -eq 2 && $said == "trireme: "*"$1"* ]] || fail "$2: status $status, $said"
}
# bad input: the archive: `TRIREME_LIBC` with another word | TRIREME_LIBC is '...'; it may be archive or
# system | 2
refuses "TRIREME_LIBC is 'other'; it may be archive or system" TRIREME_LIBC=other
# bad input: the archive: `TRIREME_MPI` where no MPI is | TRIREME_MPI: there is no .../libmpi.so.12; name
# libmpi.so.12 or its folder | 2
refuses "there is no $root/libmpi.so.12; name libmpi.so.12 or its folder" "TRIREME_MPI=$root"

# Another MPI of the same ABI: here a copy, seen in the process's maps.
cp "$here/lib/libmpi.so.12" "$work/libmpi.so.12"
mpi_in_use() {
  local maps
  # The launcher becomes the program, whose maps are read while it waits for text.
  mkfifo "$work/input"
  "$here/bin/trireme" prepare - --output "$work/out" --tokenizer byte < "$work/input" > /dev/null &
  exec 8> "$work/input"
  for _ in $(seq 100); do
    maps=$(grep -o '/.*libmpi\.so.*' "/proc/$!/maps" 2> /dev/null | sort -u) || true
    [[ -n $maps ]] && break
    sleep 0.05
  done
  echo "some text" >&8
  exec 8>&-
  wait $! || fail "prepare"
  rm -r "$work/input" "$work/out"
  echo "$maps"
}
for libc in system archive; do
  export TRIREME_LIBC=$libc
  [[ $(mpi_in_use) == "$here/lib/libmpi.so.12" ]] || fail "$libc: the archive's MPI is not used"
  [[ $(TRIREME_MPI=$work mpi_in_use) == "$work/libmpi.so.12" ]] || fail "$libc: TRIREME_MPI is not used alone"
  ln -s "$work/libmpi.so.12" "$here/mpi/"
  used=$(mpi_in_use)
  [[ $used == */libmpi.so.12 && $used != "$here/lib/"* ]] || fail "$libc: the folder mpi does not come first: $used"
  rm "$here/mpi/libmpi.so.12"
done
unset TRIREME_LIBC

# The CUDA libraries, unpacked over it: by its own loader, without this system's.
if [[ -n $cuda_libraries ]]; then
  cp -a "$here" "$work/with_cuda"
  cmake -D "NAMES=${cuda_libraries//:/;}" -D "FOLDERS=${cuda_folders//:/;}" -D STAGE="$work/with_cuda" \
    -P "$source_dir/modules/archive/cuda_libraries.cmake" > "$work/log" 2>&1 ||
    { cat "$work/log"; fail "cuda_libraries.cmake"; }
  lib=$work/with_cuda/lib
  checked=0
  for file in "$lib"/lib{cu,nv,nccl}*.so.*; do
    needed=$("$lib/glibc/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$lib:$lib/glibc" \
      --list "$file") || fail "the loader on ${file##*/}: $needed"
    others=$(grep -F '=>' <<< "$needed" | grep -vF "=> $work/with_cuda" || true)
    [[ -z $others ]] || fail "${file##*/} needs what the archive has not: $others"
    checked=$((checked + 1))
  done
  [[ $checked -ge 2 && -e $lib/${cuda_libraries%%:*} ]] || fail "CUDA libraries are missing: $(ls "$lib")"
  TRIREME_LIBC=archive "$work/with_cuda/bin/trireme" version > /dev/null ||
    fail "trireme version with the CUDA libraries"
  rm -rf "$work/with_cuda"
fi

if ! unshare --mount --pid --fork true 2> /dev/null; then
  echo "an empty root cannot be made without the rights to; the rest was checked"
  exit 0
fi
# in_root COMMAND...: nothing of this system but its kernel.
in_root() {
  # shellcheck disable=SC2016  # for the inner shell
  unshare --mount --pid --fork bash -c '
    set -e
    mount -t proc proc "$0/proc"
    mount -t tmpfs tmpfs "$0/dev"
    mkdir "$0/dev/shm"
    for device in null zero urandom random; do
      touch "$0/dev/$device"
      mount --bind "/dev/$device" "$0/dev/$device"
    done
    exec env -i "$(command -v chroot)" "$0" "$@"' "$root" "$@"
}
for i in $(seq 400); do echo "the $i trees stand in row $((i % 7)), and the birds sing"; done > "$root/data/text"
bin=/opt/$name/bin
in_root "$bin"/trireme prepare /data/text --output /data --tokenizer byte --validation tail:2000 \
  > "$work/prepare.log" 2>&1 || { cat "$work/prepare.log"; fail "prepare in an empty root"; }
python3 - "$root/data/pets.tar.bz2" << 'PYTHON'
import io
import struct
import sys
import tarfile
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) +
       chunk(b"IDAT", zlib.compress(8 * (b"\0" + bytes(24)))) + chunk(b"IEND", b""))
with tarfile.open(sys.argv[1], "w:bz2") as archive:
    for name in ("cat/1.png", "dog/1.png"):
        member = tarfile.TarInfo(name)
        member.size = len(png)
        archive.addfile(member, io.BytesIO(png))
PYTHON
in_root "$bin"/trireme prepare --images /data/pets.tar.bz2 --output /data/pets \
  > "$work/prepare.log" 2>&1 || { cat "$work/prepare.log"; fail "prepare pictures in an empty root"; }
in_root "$bin"/mpiexec -n 2 "$bin"/trireme train --data.train /data/train.h5 --run.folder /data/run \
  --run.steps 3 --model.layers 1 --model.width 32 --model.heads 2 --model.context 32 --batch.global 4 \
  --batch.micro 2 --grid.data 2 --threads 1 --log.every 1 > "$work/train.log" 2>&1 ||
  { cat "$work/train.log"; fail "train in an empty root"; }
grep -q '"step":3' "$root/data/run/metrics.jsonl" || fail "no third step: $(cat "$work/train.log")"
compgen -G "$root/data/run/checkpoints/*.h5" > /dev/null || fail "no checkpoint was written"
echo "built ($((size / 1000000)) MB), unpacked, trained on 2 ranks in an empty root"

#!/usr/bin/env bash
# Installs a build into a temporary prefix, moves the prefix, then builds and runs a project outside
# the source tree that finds it there.
#
#     install_test.sh SOURCE_FOLDER BUILD_FOLDER MPIEXEC
set -euo pipefail
source_dir=$1
build_dir=$2
mpiexec=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install_test: $*" >&2
  exit 1
}

# A build that lacks something installs nothing, and the message says what to build.
sed 's#/modules/trireme\.man#/modules/trireme.none#' "$build_dir/cmake_install.cmake" > "$work/incomplete.cmake"
if grep -q '/modules/trireme\.none' "$work/incomplete.cmake"; then
  ! cmake -D CMAKE_INSTALL_PREFIX="$work/none" -P "$work/incomplete.cmake" > "$work/refused.log" 2>&1 ||
    fail "an incomplete build was installed"
  grep -q "modules/trireme.none is not built" "$work/refused.log" &&
    tr -s ' \n' ' ' < "$work/refused.log" | grep -qF -- "cmake --build $build_dir --target installable" ||
    fail "the message of an incomplete build: $(cat "$work/refused.log")"
  [[ ! -e $work/none ]] || fail "an incomplete build was installed in part"
fi

cmake --install "$build_dir" --prefix "$work/first" > "$work/install.log"
prefix=$work/moved
mv "$work/first" "$prefix"

for file in include/trireme/tensor/tensor.h share/doc/trireme/LICENSE share/doc/trireme/README.md \
            share/man/man1/trireme.1 share/bash-completion/completions/trireme \
            share/zsh/site-functions/_trireme lib/trireme/libtrireme_tuner.so; do
  [[ -s $prefix/$file ]] || fail "$file was not installed"
done

# Debug information names source files; nothing else that is installed may.
scope=(-rI)
grep -q '^CMAKE_BUILD_TYPE:.*=Release$' "$build_dir/CMakeCache.txt" && scope=(-r)
for path in "$source_dir" "$build_dir" "$work/first"; do
  if grep "${scope[@]}" -lF -- "$path" "$prefix"; then
    fail "the files above hold the path $path"
  fi
done

cp -r "$here/consumer" "$work/consumer"
cmake -G Ninja -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_BUILD_TYPE=Release > "$work/configure.log"
cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log"; fail "the consumer does not build"; }

for program in consumer links_all; do
  said=$("$work/build/$program")
  [[ $said == "6 (2, 3)" ]] || fail "$program said '$said'"
done

# The program of the libraries' page, as the page shows it.
mkdir "$work/page"
for name in train.cc CMakeLists.txt; do
  python3 "$source_dir/tests/support/page_code.py" "$source_dir/include/trireme/README.md" $name "$work/page/$name"
done
cmake -G Ninja -S "$work/page" -B "$work/page/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
      > "$work/configure.log"
cmake --build "$work/page/build" > "$work/build.log" || { cat "$work/build.log"; fail "the page's program does not build"; }
if [[ -e $build_dir/bin/trireme ]]; then
  (
    cd "$work/page"
    "$prefix/bin/trireme" prepare --input "$source_dir/README.md" --output data --tokenizer byte > prepare.log
    OMP_NUM_THREADS=1 "$mpiexec" -n 2 build/train data/train.h5 > losses
    awk '/^step [0-9]+: loss/ { last = $4; if (!first) first = $4; ++steps }
         END { exit !(steps == 20 && last < 0.9 * first) }' losses || fail "the page's program said $(cat losses)"
    ! said=$(build/train 2>&1) && [[ $said == *"give the path of a shard"* ]] ||
      fail "without a shard the page's program said '$said'"
  )
fi
if [[ -e $build_dir/bin/trireme ]]; then
  "$prefix/bin/trireme" version
  (
    cd "$work"
    "$prefix/bin/trireme" job chain --data.train nowhere/train.h5 --model.preset test-gpt \
      --site "$prefix/share/trireme/jobs/site.ini" > job.sh
    bash -n job.sh
    grep -qF -- "$prefix/bin/trireme train" job.sh || fail "the job does not start the program"
  )
fi
echo "installed, moved, found, linked and run"

#!/usr/bin/env bash
# Builds what is out of date and runs the tests.
usage() {
  cat << 'TEXT'
usage: tests/run.sh [option...] [label...]
       tests/run.sh --lint [--full]

  label                only tests of these labels: unit mpi gpu slurm install threads
  --full               where a test takes a cover of the pairs of its factors: the whole product, and
                       five times the time limits
  --sanitizers         build/asan instead of build/release: address and undefined-behaviour
                       sanitizers; without a label the unit tests
  --sanitizers=thread  build/tsan, without OpenMP: the thread sanitizer; without a label the tests
                       of our own threads (threads)
  --quick              two minutes for the inner loop: builds and runs only the tests of the label quick
  --lint               no tests, but clang-format and clang-tidy on what changed since the last version; --full: on
                       everything (tests/lint.sh --help)
  --without-pytorch    do not install PyTorch (6 GB), which some unit tests compare with
  --strict             compiler warnings are errors
  --unity              compile many files as one: faster, where all is compiled anyway
  --help               this text

First installs what is missing: Debian packages, the headers of cuDNN's frontend where there is a
CUDA toolkit, PyTorch in build/venv-torch. What cannot be installed is said, and the tests that need
it are skipped.

Ends with what was skipped and why, and a line "N passed, N failed, N skipped". Status 0 when none
failed, 1 when one did or the build broke, 2 for a wrong option or a label that no test has.
TEXT
}
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=release
unnamed=()  # the labels where none is given
labels=()
full=OFF strict=OFF unity='' pytorch=true lint=false quick=false
for argument in "$@"; do
  case $argument in
    --full) full=ON ;;
    --sanitizers) preset=asan unnamed=(unit) ;;
    --sanitizers=thread) preset=tsan unnamed=(threads) ;;
    --quick) quick=true pytorch=false unnamed=(quick) ;;
    --lint) lint=true ;;
    --without-pytorch) pytorch=false ;;
    --strict) strict=ON ;;
    --unity) unity=16 ;;
    --help)
      usage
      exit 0
      ;;
    -*)
      echo "tests/run.sh: no option is called '$argument'; --help shows all of them" >&2
      exit 2
      ;;
    *) labels+=("$argument") ;;
  esac
done
if [[ ${#labels[@]} -eq 0 ]]; then
  labels=("${unnamed[@]}")
fi

cd "$root"
build=build/$preset
cores=$(nproc)
targets=(all)
if [[ $preset != release ]] || $quick; then
  # Only what runs: the instrumented build takes its time.
  targets=("${labels[@]/#/tests_}")
fi

# Whether tests of a label run.
runs() { [[ ${#labels[@]} -eq 0 || " ${labels[*]} " == *" $1 "* ]]; }

install_what_is_missing() {
  jobs/install_packages.sh || echo "tests/run.sh goes on without these packages"
  local ports=(/sys/class/infiniband/*)
  if runs slurm && [[ ! -e ${ports[0]} ]]; then
    jobs/install_packages.sh jobs/packages_infiniband.txt || echo "tests/run.sh goes on without these packages"
  fi
  if [[ $preset == release ]] && ! $quick; then
    jobs/install_cudnn_frontend.sh
  fi
}

if $lint; then
  jobs/install_packages.sh || echo "tests/run.sh goes on without these packages"
  lint_options=()
  [[ $full == OFF ]] || lint_options=(--full)
  exec tests/lint.sh "${lint_options[@]}"
fi

# PyTorch comes in minutes, which it mostly waits for the network and the disk: while other things compile.
venv=''
begin_pytorch() {
  if $pytorch && [[ $preset == release ]] && runs unit && [[ -z ${TORCH_PYTHON:-} ]]; then
    mkdir -p build
    timeout --kill-after=10 900 tests/support/torch_venv.sh > build/torch_venv.log 2>&1 &
    venv=$!
    trap 'kill "$venv" 2> /dev/null || true' EXIT  # it does not go on where the build fails
  fi
}
await_pytorch() {
  [[ -n $venv ]] || return 0
  wait "$venv" || echo "no PyTorch (status $?): $(tail -n 1 build/torch_venv.log)"
  trap - EXIT
}

options=("-DTRIREME_FULL_TESTS=$full" "-DTRIREME_STRICT=$strict")
[[ -z $unity ]] || options+=("-DTRIREME_UNITY=$unity")
configured() {
  [[ -e $build/build.ninja ]] || return
  local option
  for option in "${options[@]}"; do
    option=${option#-D}
    grep -qE "^${option%%=*}:[A-Z]+=${option#*=}\$" "$build/CMakeCache.txt" || return
  done
}
build() {
  configured || cmake --preset "$preset" "${options[@]}" > /dev/null || return
  cmake --build "$build" --target "${targets[@]}"
}
began=$SECONDS
install_what_is_missing
begin_pytorch
if ! build; then
  echo "the build failed"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
echo "built in $((SECONDS - began)) s"
await_pytorch

selection=()
if [[ ${#labels[@]} -gt 0 ]]; then
  known=$(ctest --test-dir "$build" --print-labels | sed -n 's/^  //p')
  for label in "${labels[@]}"; do
    if ! grep -qxF -- "$label" <<< "$known"; then
      echo "tests/run.sh: no test has the label '$label'; there are: ${known//$'\n'/ }" >&2
      exit 2
    fi
  done
  selection=(-L "^($(IFS='|' && echo "${labels[*]}"))\$")
fi

log=$build/Testing/run.log
mkdir -p "${log%/*}"
status=0
if [[ $full == ON ]]; then
  export TRIREME_TESTS=full
fi
# Tests of Slurm run one at a time (RESOURCE_LOCK) and mostly wait for Slurm's own timers: meanwhile all
# cores compute. Without Slurm they are skipped at once.
at_once=$cores
if runs slurm && command -v slurmctld > /dev/null; then
  at_once=$((cores + 1))
fi
# MPI cannot start on a network interface that is gone before it is opened, and the clusters of the tests
# of Slurm make and remove interfaces while other tests run, which need none of them. Jobs on those
# clusters do not get this setting.
export UCX_NET_DEVICES=${UCX_NET_DEVICES:-lo}
UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "$build" --output-on-failure --no-tests=error \
  -j "$at_once" "${selection[@]}" 2>&1 | tee "$log" || status=$?

# ctest counts what was skipped as passed; a run that broke off has no such line.
total=$(sed -n 's/^.* tests failed out of \([0-9]*\)$/\1/p' "$log")
failed=$(sed -n 's/^.*, \([0-9]*\) tests failed out of [0-9]*$/\1/p' "$log")
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
if [[ -z $total || ($status -ne 0 && $failed -eq 0) ]]; then
  echo "ctest ended with status $status"
  total=1 failed=1 skipped=0
fi
printf '\nThe slowest tests\n'
sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \([a-z0-9_]*\) .* \([0-9.]*\) sec.*$/\2 \1/p' "$log" | sort -rn |
  awk 'NR <= 12 { printf "%8.1f s  %s\n", $1, $2 }'
if [[ $skipped -gt 0 ]]; then
  printf '\nSkipped\n'
  # A test says why in a line with this word; ctest's own log has each test's lines after its name.
  awk 'FNR == NR { if (match($0, /Test +#[0-9]+: [A-Za-z0-9_]+ .*\*\*\*Skipped/)) {
                     names[++count] = $0
                     sub(/^.*#[0-9]+: /, "", names[count]); sub(/ .*/, "", names[count]) }
                   next }
       /^[0-9]+\/[0-9]+ Testing: / { name = $3 }
       !(name in why) && tolower($0) ~ /skipped/ && $0 !~ /^\[/ { why[name] = $0 }
       END { for (i = 1; i <= count; ++i)
               printf "  %s: %s\n", names[i], names[i] in why ? why[names[i]] : "it does not say why" }' \
    "$log" "$build/Testing/Temporary/LastTest.log"
fi
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]

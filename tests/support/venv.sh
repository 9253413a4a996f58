#!/bin/sh
# venv.sh FOLDER PACKAGE...: makes sure that FOLDER is a Python environment with these packages.
# Prints a line and returns 77 (CTest: skipped) if it cannot be made, for example without a network, or where that takes
# longer than VENV_SECONDS (120).
set -u
folder=$1
limit=${VENV_SECONDS:-120}
shift

skip() {
  echo "skipped: $1"
  exit 77
}

# Several tests may want the environment at once.
mkdir -p "$folder" || skip "cannot make $folder"
exec 9>"$folder/.lock"
flock -w "$limit" 9 || skip "another test has been installing in $folder for $limit s"

# pip comes last: without it an earlier attempt was interrupted.
[ -x "$folder/bin/pip" ] || python3 -m venv "$folder" >"$folder/.log" 2>&1 ||
  skip "cannot make a Python environment (Debian: python3-venv); see $folder/.log"
# A stamp per package: asking pip takes a second each time.
missing=
for package in "$@"; do
  [ -e "$folder/.has-$package" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
# All at once: what is newest of one package may want another version of the next.
# shellcheck disable=SC2086
timeout "$limit" "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --timeout 20 --retries 1 \
  $missing >"$folder/.log" 2>&1 || skip "pip cannot install$missing; see $folder/.log"
for package in $missing; do
  : >"$folder/.has-$package"
done

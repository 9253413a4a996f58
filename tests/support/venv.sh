#!/bin/sh
# venv.sh FOLDER PACKAGE...: makes sure that FOLDER is a Python environment with these packages.
# Prints a line and returns 77 (CTest: skipped) if it cannot be made, for example without a network.
set -u
folder=$1
shift

skip() {
  echo "skipped: $1"
  exit 77
}

# Several tests may want the environment at once.
mkdir -p "$folder" || skip "cannot make $folder"
exec 9>"$folder/.lock"
flock 9

[ -x "$folder/bin/python" ] || python3 -m venv "$folder" >"$folder/.log" 2>&1 ||
  skip "cannot make a Python environment (Debian: python3-venv); see $folder/.log"
for package in "$@"; do
  # A stamp per package: asking pip takes a second each time.
  [ -e "$folder/.has-$package" ] && continue
  "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --timeout 20 \
    --retries 1 "$package" >"$folder/.log" 2>&1 || skip "pip cannot install $package; see $folder/.log"
  : >"$folder/.has-$package"
done

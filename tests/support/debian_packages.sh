#!/usr/bin/env bash
# debian_packages.sh FOLDER PACKAGE...: makes sure that these Debian packages are unpacked in FOLDER
# (FOLDER/usr/bin/...). It does not install them, because some conflict with each other or with installed
# ones. Prints a line and returns 77 (CTest: skipped) if they are not available, for example without a network.
set -uo pipefail
folder=$1
shift

skip() {
  echo "skipped: $1"
  exit 77
}

command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || skip "this is no Debian system"
mkdir -p "$folder/.packages" || skip "cannot make $folder"
# Several tests may want the folder at once.
exec 9> "$folder/.lock"
flock 9
missing=()
for package in "$@"; do
  [[ -e $folder/.packages/$package.unpacked ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

cd "$folder/.packages" || exit 1
download() {
  apt-get -qq -o APT::Sandbox::User= download "${missing[@]}" >> log 2>&1
}
# A fresh machine has no package lists yet, and only root may fetch them.
download || { [[ $(id -u) -eq 0 ]] && apt-get -qq update >> log 2>&1 && download; } ||
  skip "apt-get cannot download ${missing[*]}; see $PWD/log"
for package in "${missing[@]}"; do
  dpkg-deb -x "$package"_*.deb "$folder" || exit 1
  rm "$package"_*.deb
  : > "$package.unpacked"
done

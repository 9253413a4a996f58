#!/usr/bin/env bash
# Builds the Debian package, checks what it says and holds, unpacks it elsewhere and runs it.
#
#     deb_test.sh SOURCE_FOLDER BUILD_FOLDER VERSION
set -euo pipefail
source_dir=$1 build_dir=$2 version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "deb_test: $*" >&2
  exit 1
}

for tool in dpkg-deb dpkg-shlibdeps; do
  command -v $tool > /dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
cpack --config "$build_dir/CPackConfig.cmake" -G DEB -B "$work" > "$work/log" || { cat "$work/log"; fail "cpack"; }
deb=$work/trireme_${version}_amd64.deb
[[ -e $deb ]] || fail "cpack did not write ${deb##*/}"

field() { dpkg-deb -f "$deb" "$1"; }
[[ $(field Package) == trireme && $(field Version) == "$version" ]] || fail "name or version"
[[ $(field Section) == science && $(field Architecture) == amd64 ]] || fail "section or architecture"
for package in libmpich12 libhdf5-mpich-103-1 libdnnl2 libfmt9 libsentencepiece0 libpcre2-8-0 libsimdjson14 zlib1g libutf8proc2 libturbojpeg0 libpng16-16 liblzma5 libbz2-1.0 libzstd1 liblz4-1 libsnappy1v5 libc6; do
  grep -qw -- "$package" <<< "$(field Depends)" || fail "Depends lacks $package: $(field Depends)"
done
if command -v apt-get > /dev/null; then  # all of it is in Debian
  apt-get -s -o Dir::State::status=/var/lib/dpkg/status install "$deb" > "$work/apt" 2>&1 ||
    fail "apt could not install it: $(cat "$work/apt")"
fi
dpkg-deb -c "$deb" | awk '{print $6}' | grep -v '/$' | sort > "$work/files"
for file in bin/trireme share/man/man1/trireme.1 share/doc/trireme/LICENSE \
            share/bash-completion/completions/trireme share/zsh/site-functions/_trireme \
            lib/trireme/libtrireme_tuner.so; do
  grep -qxF "./usr/$file" "$work/files" || fail "it lacks /usr/$file"
done
if grep -v '^\./usr/\(bin\|share\|lib/trireme\)/' "$work/files"; then
  fail "the files above have no place in it"
fi

dpkg-deb -x "$deb" "$work/root"
[[ $("$work/root/usr/bin/trireme" version | head -n 1) == "trireme $version" ]] || fail "trireme version"
if grep -rlF -e "$source_dir" -e "$build_dir" "$work/root"; then
  fail "the files above hold the path of the build"
fi
echo "built, described, unpacked, run"

#!/usr/bin/env bash
# Loads the installed module files under the real tools, from a prefix that was moved, and through a
# link in a site's folder of modules.
#
#     modules_test.sh BUILD_FOLDER tcl|lua
#
# environment-modules and Lmod exclude each other as packages, so each is unpacked beside the build.
set -euo pipefail
build_dir=$1
kind=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "modules_test: $*" >&2
  exit 1
}

tools=$build_dir/debian_$kind
if [[ $kind == tcl ]]; then
  packages=(environment-modules tcl8.6 libtcl8.6)
else
  packages=(lmod lua5.3 lua-posix lua-filesystem lua-json lua-term libtcl8.6 tcl8.6)
fi
"$here/../support/debian_packages.sh" "$tools" "${packages[@]}" || exit $?
export LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu
export TCL_LIBRARY=$tools/usr/share/tcltk/tcl8.6

# module ARGUMENT...: as the shell function of that name does it; what the tool says is in $said.
if [[ $kind == tcl ]]; then
  tool() { "$tools/usr/bin/tclsh8.6" "$tools/usr/lib/x86_64-linux-gnu/modulecmd.tcl" bash "$@"; }
else
  export LMOD_CMD=$tools/usr/share/lmod/lmod/libexec/lmod LMOD_IGNORE_CACHE=yes LMOD_PAGER=none
  # It looks for Lua's libraries at their places in the system.
  sed -i "s#\"/usr/local/share/lua/5.3/?.lua;#\"$tools/usr/share/lua/5.3/?.lua;$tools/usr/share/lua/5.3/?/init.lua;/usr/local/share/lua/5.3/?.lua;#
          s#\"/usr/local/lib/lua/5.3/?.so;#\"$tools/usr/lib/x86_64-linux-gnu/lua/5.3/?.so;#" \
    "$tools/usr/share/lmod/lmod/libexec/lmod"
  tool() { "$tools/usr/bin/lua5.3" "$LMOD_CMD" bash "$@"; }
fi
module() {
  local commands status=0
  commands=$(tool "$@" 2> "$work/said") || status=$?
  said=$(tr -s ' \n' '  ' < "$work/said")  # Lmod breaks its lines anywhere
  eval "$commands" > "$work/evaluated" || status=1
  return $status
}

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build_dir/CMakeCache.txt")
cmake --install "$build_dir" --prefix "$work/first" > "$work/install.log"
prefix=$work/moved
mv "$work/first" "$prefix"
# One kind of file alone, so that no tool reads the other's.
if [[ $kind == tcl ]]; then
  rm "$prefix"/share/trireme/modules/trireme/*.lua
else
  rm "$prefix/share/trireme/modules/trireme/$version"
fi

# check_loaded WHERE [SITE_FILE]: everything that a module sets, and nothing after unloading it.
check_loaded() {
  unset MANPATH CMAKE_PREFIX_PATH
  export MODULEPATH=$1
  module load trireme || fail "load from $1: $said"
  [[ $TRIREME_ROOT == "$prefix" ]] || fail "TRIREME_ROOT is '$TRIREME_ROOT', not $prefix"
  [[ ${TRIREME_SITE-} == "${2-}" ]] || fail "TRIREME_SITE is '${TRIREME_SITE-}', not '${2-}'"
  [[ $CMAKE_PREFIX_PATH == "$prefix" ]] || fail "CMAKE_PREFIX_PATH is '$CMAKE_PREFIX_PATH'"
  [[ $(command -v trireme) == "$prefix/bin/trireme" ]] || fail "trireme is $(command -v trireme)"
  [[ $(env -u LD_LIBRARY_PATH trireme version | head -n 1) == "trireme $version" ]] || fail "trireme version"
  if command -v man > /dev/null; then
    [[ $(env -u LD_LIBRARY_PATH man -w trireme) == "$prefix/share/man/man1/trireme.1" ]] || fail "man -w trireme"
  else
    echo "skipped: man is not installed"
  fi
  [[ :$MANPATH: == *":$prefix/share/man:"* ]] || fail "MANPATH is '$MANPATH'"
  [[ $MANPATH == *: || $MANPATH == :* || $MANPATH == *::* ]] ||
    fail "MANPATH '$MANPATH' leaves out the system's pages"
  module unload trireme || fail "unload: $said"
  [[ -z ${TRIREME_ROOT-} && -z ${TRIREME_SITE-} && -z ${CMAKE_PREFIX_PATH-} && $PATH != *"$prefix"* ]] ||
    fail "unloading left TRIREME_ROOT='${TRIREME_ROOT-}' PATH=$PATH"
}
check_loaded "$prefix/share/trireme/modules"

mkdir -p "$work/site/trireme" "$work/site/openmpi" "$work/copied/trireme"
shopt -s nullglob  # a pattern that nothing matches is no file
for file in "$prefix"/share/trireme/modules/trireme/*; do
  ln -s "$file" "$work/site/trireme/"
  cp "$file" "$work/copied/trireme/"
done
check_loaded "$work/site"
echo "[slurm]" > "$work/site/trireme/site.ini"
check_loaded "$work/site" "$work/site/trireme/site.ini"

module help trireme
[[ $said == *"trireme COMMAND --help"* ]] || fail "help says: $said"
module whatis trireme
for fact in "Version: $version" "MPI: MPICH [0-9]" "files: HDF5 [0-9]" "libraries: .*oneDNN [0-9].*OpenMP" \
            "CUDA: " "compiler: "; do
  grep -Eq "$fact" <<< "$said" || fail "whatis does not say '$fact': $said"
done
cuda=$(env -u LD_LIBRARY_PATH "$prefix/bin/trireme" version | sed -n 's/^CUDA  *//p')
[[ $said == *"CUDA: ${cuda//;/,} "* ]] || fail "whatis does not say all of 'CUDA: $cuda': $said"
grep -q "instructions" <<< "$said" && fail "whatis tells of the processor of the build: $said"

if [[ $kind == tcl ]]; then
  printf '#%%Module1.0\nsetenv OPENMPI_HERE 1\n' > "$work/site/openmpi/4"
else
  echo 'setenv("OPENMPI_HERE", "1")' > "$work/site/openmpi/4.lua"
fi
module load openmpi
[[ ${OPENMPI_HERE-} == 1 ]] || fail "the stand-in for Open MPI was not loaded: $said"
module load trireme && [[ -n ${TRIREME_ROOT-} ]] && fail "trireme was loaded beside Open MPI"
grep -qi "conflict\|openmpi" <<< "$said" || fail "the conflict is not told: $said"
module unload openmpi

export MODULEPATH=$work/copied
module load trireme && [[ -n ${TRIREME_ROOT-} ]] && fail "a copied module file was loaded"
# bad input: a module file that was copied out of its prefix | there is no program ...: link to this module
# file, do not copy it | 1
grep -q "there is no program .*link to this module file" <<< "$said" || fail "a copied module file: $said"
echo "loaded, run, unloaded, refused beside Open MPI"

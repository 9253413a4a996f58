#!/usr/bin/env bash
# The recipes of EasyBuild and Spack: EasyBuild checks the style of its own, those of a release's
# archive as contributions, and finds every dependency; Spack's is compiled, and names the same
# version.
#
#     recipes_test.sh SOURCE_FOLDER BUILD_FOLDER VERSION
set -euo pipefail
source_dir=$1 build_dir=$2 version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "recipes_test: $*" >&2
  exit 1
}

package=$source_dir/modules/spack/package.py
python3 -c "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')" "$package" || fail "Spack's package"
grep -qF "version(\"$version\")" "$package" || fail "Spack's package is not of version $version"
recipe=$(echo "$source_dir/modules/easybuild/Trireme-$version"-*.eb)
[[ -e $recipe ]] || fail "EasyBuild has no recipe of version $version"

# EasyBuild wants a real module tool.
tools=$build_dir/debian_tcl
"$source_dir/tests/support/debian_packages.sh" "$tools" environment-modules tcl8.6 libtcl8.6 || exit $?
# EasyBuild's recipes alone are 20,000 files.
VENV_SECONDS=240 "$source_dir/tests/support/venv.sh" "$build_dir/venv_easybuild" easybuild pycodestyle || exit $?
cat > "$work/modulecmd.tcl" << TEXT
#!/bin/sh
LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu TCL_LIBRARY=$tools/usr/share/tcltk/tcl8.6 \\
  exec $tools/usr/bin/tclsh8.6 $tools/usr/lib/x86_64-linux-gnu/modulecmd.tcl "\$@"
TEXT
chmod +x "$work/modulecmd.tcl"
export MODULES_CMD=$work/modulecmd.tcl HOME=$work PATH=$work:$PATH
export EASYBUILD_PREFIX=$work/easybuild EASYBUILD_MODULES_TOOL=EnvironmentModules
export EASYBUILD_MODULE_SYNTAX=Tcl EASYBUILD_ALLOW_MODULES_TOOL_MISMATCH=1
module() { eval "$("$MODULES_CMD" bash "$@")"; }
export -f module
eb() {
  "$build_dir/venv_easybuild/bin/python" -m easybuild.main --allow-use-as-root-and-accept-consequences \
    --robot "$source_dir/modules/easybuild:$build_dir/venv_easybuild/easybuild/easyconfigs" "$@" > "$work/log" 2>&1 ||
    { cat "$work/log"; fail "eb $*"; }
}
eb --check-style "$source_dir"/modules/easybuild/*.eb
# Trireme's own has no checksum: git archive writes the source.
eb --check-contrib "$source_dir"/modules/easybuild/[!T]*.eb
eb --dry-run "$recipe"
for name in "Trireme-$version-gmpich" HDF5-1.14.0-gmpich oneDNN-2 SentencePiece- MPICH-; do
  grep -q "/$name.*(module:" "$work/log" || { cat "$work/log"; fail "eb does not plan $name"; }
done
echo "Spack's package compiled; EasyBuild plans $(grep -c '(module:' "$work/log") modules"

#!/bin/sh
# ops_isa_symbols.sh NM OBJECT...: fails where an object defines a weak or unique symbol.
set -eu
nm=$1
shift
[ $# -ge 2 ] || { echo "no objects were given"; exit 1; }
merged=$("$nm" --demangle --defined-only --print-file-name "$@" | grep -E ' [WVu] ' || true)
[ -z "$merged" ] || { echo "symbols that the linker may merge:"; echo "$merged"; exit 1; }

#!/bin/sh
# The plugin shows one symbol and needs nothing but the C library and its loader: it is loaded into a
# process that has other versions of whatever else it might need.
#
#     nccl_tuner_symbols.sh NM READELF PLUGIN
set -eu
shown=$("$1" -D --defined-only "$3" | awk '{print $3}')
[ "$shown" = ncclTunerPlugin_v5 ] || { echo "it shows: $shown"; exit 1; }
needed=$("$2" -d "$3" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "what it needs cannot be told"; exit 1; }
for library in $needed; do
  case $library in
    libc.so.* | libm.so.* | ld-linux-x86-64.so.*) ;;
    *) echo "it needs $library"; exit 1 ;;
  esac
done

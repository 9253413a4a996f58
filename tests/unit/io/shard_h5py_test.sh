#!/bin/sh
# shard_h5py_test.sh VENV PROGRAM SHARD_MUTATION_TEST TRIREME: other programs can read our token shards,
# and write some that we read, as io/DATA_SHARDS.md says.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" h5py xxhash || exit $?
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$2" "$folder" && "$1/bin/python" "$here/shard_h5py_test.py" "$folder" "$3" "$4"

#!/bin/sh
# parquet_pypi_test.sh VENV PROGRAM: rows of Parquet files compared with those of PyPI's `pyarrow`.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" pyarrow || exit $?
exec "$1/bin/python" "$here/parquet_pypi_test.py" "$2"

#!/bin/sh
# tokenizer_pypi_test.sh VENV REPOSITORY PROGRAM: tokens compared with those of PyPI's packages.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" tokenizers sentencepiece tiktoken || exit $?
exec "$1/bin/python" "$here/tokenizer_pypi_test.py" "$2" "$3"

#!/bin/sh
# hugging_face_files_pypi_test.sh VENV REPOSITORY PROGRAM: tokenizers that we write, as PyPI's package reads them.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" tokenizers sentencepiece tiktoken || exit $?
exec "$1/bin/python" "$here/hugging_face_files_pypi_test.py" "$2" "$3"

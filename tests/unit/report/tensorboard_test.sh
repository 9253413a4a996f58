#!/bin/sh
# tensorboard_test.sh VENV TRIREME: TensorBoard reads the event files of a run.
set -u
here=$(dirname "$0")
"$here/../../support/venv.sh" "$1" tensorboard || exit $?
"$1/bin/python" "$here/tensorboard_test.py" "$2"

#!/bin/sh
# run_python.sh PYTHON SCRIPT ARGUMENTS...: runs a test script; without that Python it says so and skips (status 77).
python=${SALVO_PYTHON:-$1}
shift
if ! [ -x "$python" ]; then
    echo "skipped: no Python at $python (set SALVO_PYTHON)"
    exit 77
fi
exec "$python" "$@"

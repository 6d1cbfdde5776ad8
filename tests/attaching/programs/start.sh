#!/bin/sh
# A job's usual start: a shell script, which stays while Python runs.
cd "$(dirname "$0")" || exit 1
python "$@"
echo "python ended"

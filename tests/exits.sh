#!/bin/bash
# exits.sh N command...: runs the command and succeeds if it exits with status N.
expected=$1
shift
"$@"
status=$?
if [[ $status != "$expected" ]]; then
  echo "exit status $status, expected $expected: $*" >&2
  exit 1
fi

#!/bin/bash
# Compiles a fixture once per set of options, in the test build, trains each with streams inline and threads, and compares
# the gradients of the first step and the trained weights byte for byte.
#
#   same_bits.sh FOLDER TESTS/PROGRAM FIXTURES FIXTURE N STEPS "OPTIONS" "OPTIONS"...
#
# FSDPC_PART=K/M leaves out all sets but the first and every M-th of the others.
set -euo pipefail
part=${FSDPC_PART:-0/1}
folder=$1/$4.$5 here=$2 fixture=$3/$4 name=$4 ranks=$5 steps=$6
shift 6
mkdir -p "$folder"

number=0
for options in "$@"; do
  number=$((number + 1))
  ((number == 1 || number % ${part#*/} == ${part%/*})) || continue
  program=$folder/$number
  # shellcheck disable=SC2086
  /usr/bin/python3 "$here/Inputs/program.py" "$program" "$name" "$ranks" $options --deterministic --test_build
  for streams in inline threads; do
    mpirun -n "$ranks" "$program/train" --batch "$fixture/batch.safetensors" --steps "$steps" --progress none --seed 3 \
      --streams $streams --save_model "$program.weights" --save_gradients "$program.gradients"
    for result in weights gradients; do
      if ! cmp "$folder/1.$result" "$program.$result"; then
        echo "$name on $ranks ranks with '$options' and streams $streams: other $result than with '$1'" >&2
        exit 1
      fi
    done
  done
done

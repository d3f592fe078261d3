#!/bin/bash
# Trains a fixture on 1, 2 and 4 ranks with one global batch and compares losses, gradients of the first step and weights.
#
#   same_bits_world.sh FOLDER TESTS/PROGRAM FIXTURES FIXTURE STEPS [MODE of --deterministic]
set -euo pipefail
folder=$1/$4.${6:-world} here=$2 fixture=$3/$4 name=$4 steps=$5 mode=${6:-world}
mkdir -p "$folder"

for ranks in 1 2 4; do
  program=$folder/$ranks
  /usr/bin/python3 "$here/Inputs/program.py" "$program" "$name" "$ranks" --deterministic "$mode"
  mpirun -n "$ranks" "$program/train" --batch "$fixture/batch.safetensors" --steps "$steps" --progress none --seed 3 --log_freq 1 \
    --log "$program.log" --save_model "$program.weights" --save_gradients "$program.gradients"
  grep -o '"step":[0-9]*,"loss":[^,]*' "$program.log" > "$program.losses"
  for result in losses gradients weights; do
    if ! cmp -s "$folder/1.$result" "$program.$result"; then
      echo "$name: other $result on $ranks ranks"
      different=1
    fi
  done
done
[[ $mode != world || -z ${different:-} ]]

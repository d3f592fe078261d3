#!/bin/bash
# Trains a fixture on 1, 2 and 4 ranks with one global batch of 8 samples and compares losses, gradients of the first step and weights.
#
#   same_bits_world.sh FOLDER TESTS/PROGRAM FIXTURES FIXTURE STEPS [MODE of --deterministic [MICRO_STEPS ["OPTIONS"]]]
set -euo pipefail
folder=$1/$4.${6:-world}.${7:-1} here=$2 fixture=$3/$4 name=$4 steps=$5 mode=${6:-world} micro_steps=${7:-1} options=${8:-}
mkdir -p "$folder"

for ranks in 1 2 4; do
  program=$folder/$ranks
  # shellcheck disable=SC2086
  /usr/bin/python3 "$here/Inputs/program.py" "$program" "$name" "$ranks" --deterministic "$mode" \
    --micro_batch_size $((8 / micro_steps / ranks)) --gradient_accumulation_steps "$micro_steps" $options
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

#!/bin/bash
# arenas.sh WORK N FIXTURE...: runs every function of each fixture's program on N ranks in the test build, which ends the
# program at an allocation of 4 KiB or more inside a step, and compares the highest byte changed in each arena with the plan.
set -euo pipefail
work=$1 ranks=$2
shift 2
here=$(dirname "$0")
python=/usr/bin/python3
for fixture in "$@"; do
  for transport in shared mpi; do
    [[ $transport == mpi && $ranks == 1 ]] && continue
    program=$work/$fixture.$transport
    batch=$here/../../fixtures/$fixture/batch.safetensors
    $python "$here/program.py" "$program" "$fixture" "$ranks" --test_build --transport "$transport"
    for streams in inline threads; do
      output=$program.$streams.txt
      mpirun -n "$ranks" "$program/train" --batch "$batch" --val_data "$batch" --steps 2 --eval_every 1 --streams $streams \
        --progress none --save_gradients "$work/gradients.safetensors" --save_model "$work/model.safetensors" > "$output" 2>&1 ||
        { cat "$output"; exit 1; }
      $python "$here/check.py" arenas "$output" "$ranks"
    done
  done
done

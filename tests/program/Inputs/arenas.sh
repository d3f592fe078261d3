#!/bin/bash
# arenas.sh WORK N "TARGET..." "FIXTURE [more fsdpc options]"...: runs every function of each program on N ranks in the test
# build, which on cpu ends it at an allocation of 4 KiB or more inside a step, and compares the highest byte changed in each arena
# with the plan. Targets: shared and mpi, the transports of cpu, and cuda on the emulated device.
# FSDPC_POISON=off: poisoning freed memory would change bytes that nothing else writes. FSDPC_PART=K/M leaves out all programs but the
# first and every M-th of the others.
set -euo pipefail
part=${FSDPC_PART:-0/1}
work=$1 ranks=$2 targets=$3
shift 3
here=$(dirname "$0")
python=/usr/bin/python3
export FSDPC_POISON=off
number=0
for program in "$@"; do
  number=$((number + 1))
  ((number == 1 || number % ${part#*/} == ${part%/*})) || continue
  read -r fixture options <<<"$program"
  batch=$here/../../fixtures/$fixture/batch.safetensors
  for target in $targets; do
    case $target in
      shared) build=(--transport shared) modes=("--streams inline" "--streams threads") ;;
      mpi) build=(--transport mpi) modes=("--streams inline" "--streams threads") ;;
      cuda) build=(--target cuda) modes=("--cuda_graph off") ;;
    esac
    folder=$work/$fixture.$target
    # shellcheck disable=SC2086
    $python "$here/program.py" "$folder" "$fixture" "$ranks" --test_build "${build[@]}" $options
    for mode in "${modes[@]}"; do
      output=$folder.${mode##* }.txt
      # shellcheck disable=SC2086
      FSDPC_EMULATED_ALLOCATIONS=1 mpirun -n "$ranks" "$folder/train" --batch "$batch" --val_data "$batch" --steps 2 --eval_every 1 $mode \
        --progress none --save_gradients "$work/gradients.safetensors" --save_model "$work/model.safetensors" > "$output" 2>&1 ||
        { cat "$output"; exit 1; }
      $python "$here/check.py" arenas "$output" "$ranks" "$folder" || { echo "$program $target $mode"; exit 1; }
    done
  done
done

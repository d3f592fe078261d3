#!/bin/bash
# From a bare Debian 12 machine to a trained network: sets everything up, compiles the digits CNN for 2 ranks, trains it on
# real images for 10 epochs, tests it after each.
#
#   samples/quickstart.sh [SEED...]      one training run per seed (default: 1), about a minute each on 2 cores
#
# Per epoch the program prints train loss, test loss, correct/360, percent and seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
work=build/quickstart

tests/setup.sh
export PATH=/usr/bin:/bin:$PATH
cmake --preset default >/dev/null
cmake --build --preset default --target fsdpc

mkdir -p "$work"
build/fsdpc samples/mnist_cnn/model.onnx --target cpu --strategy full_shard --world_size 2 --micro_batch_size 64 \
  --train_mode train --loss nll --optimizer adadelta --lr 1 -o "$work/out"

# Containers run as root, and may have fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
for seed in "${@:-1}"; do
  echo "quickstart: training on 2 ranks, seed $seed"
  mpirun -n 2 "$work/out/train" --train_data 'samples/digits/train-*' --val_data 'samples/digits/t10k-*' \
    --normalize 0.305,0.325 --epochs 10 --shuffle --seed "$seed" --lr_scheduler step --step_size 1epoch --gamma 0.7 --eval_every 1epoch \
    --log "$work/seed-$seed.jsonl" --save_model "$work/seed-$seed.safetensors"
  echo "quickstart: the trained weights are in $work/seed-$seed.safetensors, the log in $work/seed-$seed.jsonl"
  figures=$(grep -o '"val_correct":[0-9]*' "$work/seed-$seed.jsonl" | tail -n 1)
done
echo "figures: correct ${figures#*:}"

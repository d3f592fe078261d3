#!/bin/bash
# Trains a GPT-2-shaped model (W2 of the peers: 6 layers, 384 wide, 6 heads, sequence 256, vocabulary 512, batch 8 per rank) on 2 ranks of
# one thread and prints where the step's time goes. A benchmark, not a test: machines are noisy, so read the ratios.
#
#   tests/bench/gpt.sh [STEPS]
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=${1:-20}
work=build/bench
mkdir -p "$work"
/usr/bin/python3 tests/bench/gpt_model.py "$work/model"
build/fsdpc "$work/model/model.onnxtxt" --world_size 2 --micro_batch_size 8 --threads 1 --loss cross_entropy --lr 3e-4 -o "$work/out" \
  >"$work/compile.txt"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun -n 2 "$work/out/train" --batch "$work/model/batch.safetensors" --steps "$((steps + 3))" --threads 1 --time_matmuls \
  --memory_report --log "$work/log.jsonl" --log_freq 1 --progress none >"$work/train.txt"
/usr/bin/python3 tests/bench/report.py "$work/log.jsonl" "$work/out/plan.json"

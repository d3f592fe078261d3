#!/bin/bash
# Trains the reduced BigModel on 2 and 4 ranks under every strategy, in f32 and bf16, without and with recomputation and offload, and prints first and
# last loss and the memory of a rank. A few minutes on two cores.
#
#   samples/bigmodel/train_all.sh [STEPS]
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=${1:-40}
work=build/bigmodel
mkdir -p "$work"
python3 samples/bigmodel/bigmodel.py "$work/small.onnxtxt" --layers 4 --width 64 --ffn 256 --heads 4 --vocab 128 --seq 32 \
  --data "$work/small.safetensors" --samples 512 >"$work/model.txt"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none

train() {
  local ranks=$1
  shift
  build/fsdpc "$work/small.onnxtxt" --loss cross_entropy --world_size "$ranks" --micro_batch_size $((16 / ranks)) --lr 0.003 "$@" \
    -o "$work/out" >"$work/compile.txt"
  mpirun -n "$ranks" "$work/out/train" --train_data "$work/small.safetensors" --steps "$steps" --threads 1 --progress none --log_freq 1 \
    --log "$work/log.jsonl" >"$work/train.txt"
  python3 - "$work/log.jsonl" "$ranks" "$*" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if "step" in line and "loss" in line]
first, last = steps[0]["loss"], steps[-1]["loss"]
print(f"{sys.argv[2]} ranks  loss {first:.3f} -> {last:.3f}  {steps[-1]['memory_planned_bytes'] / 2**20:6.2f} MiB  {sys.argv[3]}", flush=True)
assert last < 0.8 * first, "it does not learn"
PYTHON
}

for ranks in 2 4; do
  for strategy in no_shard shard_optimizer shard_grad_op full_shard hybrid_shard_zero2 hybrid_shard; do
    degree=()
    if [[ $strategy == hybrid* ]]; then
      [[ $ranks == 4 ]] || continue
      degree=(--data_parallel_shard_degree 2)
    fi
    for recompute in none selective full; do
      for precision in no bf16; do
        train "$ranks" --strategy "$strategy" "${degree[@]}" --activation_checkpointing "$recompute" --mixed_precision "$precision"
      done
    done
    for offload in params optimizer activations; do
      train "$ranks" --strategy "$strategy" "${degree[@]}" "--offload_$offload" --activation_checkpointing none --mixed_precision bf16
    done
  done
done

#!/bin/bash
# Trains the GPT-2-shaped model of gpt.sh in f32 and in bf16, in turn, on 2 ranks of one thread, and prints the median
# step of each round and the ratio of the two. With TORCH_PYTHON, a Python that has PyTorch, FSDP2 trains a model of the
# same sizes in both types in the same rounds (fsdp2_peer.py), rank r on core r. On an idle machine only.
#
#   [TORCH_PYTHON=PYTHON] tests/bench/bf16.sh [ROUNDS [SAMPLES PER RANK [OPTIONS OF gpt_model.py...]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} samples=${2:-8}
sizes=("${@:3}")
work=build/bench/bf16
mkdir -p "$work"
/usr/bin/python3 tests/bench/gpt_model.py "$work/model" --batch "$samples" "${sizes[@]}"
for type in fp32 bf16; do
  build/fsdpc "$work/model/model.onnxtxt" --world_size 2 --micro_batch_size "$samples" --threads 1 --loss cross_entropy --lr 3e-4 \
    --param_dtype $type -o "$work/$type" >"$work/$type.txt"
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# train_with_fsdp2 TYPE LOG
train_with_fsdp2() {
  local port rank ranks=()
  port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo \
      taskset -c $rank "$TORCH_PYTHON" tests/bench/fsdp2_peer.py "$work/start.$rank" --batch "$samples" "${sizes[@]}" --steps 11 \
      --param_dtype "$1" --log "$2" &
    ranks+=($!)
  done
  wait "${ranks[0]}" && wait "${ranks[1]}" && return
  kill "${ranks[@]}" 2>/dev/null
  return 1
}

for round in $(seq "$rounds"); do
  for type in fp32 bf16; do
    mpirun -n 2 "$work/$type/train" --batch "$work/model/batch.safetensors" --steps 11 --threads 1 --log "$work/$type.$round.jsonl" \
      --log_freq 1 --progress none >"$work/$type.$round.txt"
    if [[ -n ${TORCH_PYTHON:-} ]]; then
      train_with_fsdp2 $type "$work/fsdp2_$type.$round.jsonl"
    fi
  done
done
/usr/bin/python3 - "$work" "$rounds" ${TORCH_PYTHON:+fsdp2_} <<'END'
import json, statistics, sys
work, rounds, programs = sys.argv[1], int(sys.argv[2]), ["", *sys.argv[3:]]
medians, level = {}, ""
for kind in (program + dtype for program in programs for dtype in ("fp32", "bf16")):
    for number in range(1, rounds + 1):
        lines = [json.loads(line) for line in open(f"{work}/{kind}.{number}.jsonl")]
        steps = [line["step_ms"] for line in lines if "step_ms" in line][3:]
        medians.setdefault(kind, []).append(statistics.median(steps))
        level = next((line["settings"]["cpu_level"] for line in lines if "settings" in line), level)
for kind, values in medians.items():
    print(kind, " ".join(f"{value:.0f}" for value in values), "ms per step")
for program in programs:
    print(f"{program}bf16 ({level}) is {min(medians[program + 'fp32']) / min(medians[program + 'bf16']):.2f} times as fast")
if "fsdp2_" in programs:
    print(f"fsdp2's bf16 takes {min(medians['fsdp2_bf16']) / min(medians['bf16']):.2f} times as long")
END

#!/bin/bash
# Trains the GPT-2-shaped model of gpt.sh in f32 and in bf16, in turn, on 2 ranks of one thread, and prints the median
# step of each round and the ratio of the two. On an idle machine only.
#
#   tests/bench/bf16.sh [ROUNDS [SAMPLES PER RANK [OPTIONS OF gpt_model.py...]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} samples=${2:-8}
work=build/bench/bf16
mkdir -p "$work"
/usr/bin/python3 tests/bench/gpt_model.py "$work/model" --batch "$samples" "${@:3}"
for type in fp32 bf16; do
  build/fsdpc "$work/model/model.onnxtxt" --world_size 2 --micro_batch_size "$samples" --threads 1 --loss cross_entropy --lr 3e-4 \
    --param_dtype $type -o "$work/$type" >"$work/$type.txt"
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
for round in $(seq "$rounds"); do
  for type in fp32 bf16; do
    mpirun -n 2 "$work/$type/train" --batch "$work/model/batch.safetensors" --steps 11 --threads 1 --log "$work/$type.$round.jsonl" \
      --log_freq 1 --progress none >"$work/$type.$round.txt"
  done
done
/usr/bin/python3 - "$work" "$rounds" <<'END'
import json, statistics, sys
work, rounds = sys.argv[1], int(sys.argv[2])
medians = {}
for kind in ("fp32", "bf16"):
    for number in range(1, rounds + 1):
        lines = [json.loads(line) for line in open(f"{work}/{kind}.{number}.jsonl")]
        steps = [line["step_ms"] for line in lines if "step_ms" in line][3:]
        medians.setdefault(kind, []).append(statistics.median(steps))
level = next(line["settings"]["cpu_level"] for line in lines if "settings" in line)
for kind, values in medians.items():
    print(kind, " ".join(f"{value:.0f}" for value in values), "ms per step")
print(f"bf16 ({level}) is {min(medians['fp32']) / min(medians['bf16']):.2f} times as fast")
END

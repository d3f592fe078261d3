#!/bin/bash
# The cost of --deterministic world: step time and planned memory relative to off, on 2 ranks of one thread with 4 samples each.
# Runs of both alternate, so that the ratio of medians does not depend on the load of the machine. A benchmark, not a test.
#
#   tests/bench/deterministic.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
work=build/bench/deterministic
mkdir -p "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

measure() { # NAME MODEL BATCH STEPS LOSS
  for mode in off world; do
    build/fsdpc "$2" --world_size 2 --micro_batch_size 4 --threads 1 --loss "$5" --lr 3e-4 --deterministic $mode \
      -o "$work/$1.$mode" >"$work/$1.$mode.txt"
  done
  rm -f "$work/$1".*.log
  for round in $(seq "$rounds"); do
    for mode in off world; do
      mpirun -n 2 "$work/$1.$mode/train" --batch "$3" --steps "$4" --threads 1 --log "$work/$1.$mode.$round.log" --log_freq 1 \
        --progress none
    done
  done
  /usr/bin/python3 - "$work/$1" <<'EOF'
import glob, json, statistics, sys
def median(mode, round):
    steps = [json.loads(line) for line in open(f"{sys.argv[1]}.{mode}.{round}.log")][1:]
    return statistics.median(step["step_ms"] for step in steps[1:] if "step_ms" in step)
rounds = range(1, 1 + len(glob.glob(sys.argv[1] + ".off.*.log")))
pairs = [(median("off", r), median("world", r)) for r in rounds]
memory = [json.load(open(f"{sys.argv[1]}.{mode}/plan.json"))["memory"]["total_bytes"] for mode in ("off", "world")]
print(f"{sys.argv[1].rsplit('/', 1)[1]}: step off {statistics.median(a for a, _ in pairs):.2f} ms, "
      f"world / off {statistics.median(b / a for a, b in pairs):.2f} ({min(b / a for a, b in pairs):.2f} to "
      f"{max(b / a for a, b in pairs):.2f}), memory {memory[1] / memory[0]:.2f}")
EOF
}

measure gpt2_tiny tests/fixtures/gpt2_tiny/model.onnx tests/fixtures/gpt2_tiny/batch.safetensors 50 cross_entropy
measure mnist_cnn tests/fixtures/mnist_cnn/model.onnx tests/fixtures/mnist_cnn/batch.safetensors 20 nll
/usr/bin/python3 tests/bench/gpt_model.py "$work/model" --layers 4 --width 256 --heads 4 --seq 128 --batch 4
measure gpt "$work/model/model.onnxtxt" "$work/model/batch.safetensors" 12 cross_entropy

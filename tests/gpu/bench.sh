#!/bin/bash
# One model on one GPU, with our own attention and with cuDNN's if the bundle has such a program, compared with PyTorch with
# torch.compile on the same device if PyTorch is available. Takes under 10 minutes and prints as it goes. Needs what accept.sh
# needs. Compare the ratios: absolute figures of different devices, drivers and dates are not comparable.
#
#   tests/gpu/bench.sh MODEL [--bundle DIR] [--steps 30] [--dry_run]      exit 0, 1, or 10 without a device; models: models.py
set -u
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
model='' steps=30
while (($#)); do
  case $1 in
    --bundle) bundle=$(realpath -m "$2") && shift 2 ;;
    --steps) steps=$2 && shift 2 ;;
    --dry_run) dry_run=yes && shift ;;
    -*) echo "bench.sh: unknown option $1" >&2 && exit 2 ;;
    *) model=$1 && shift ;;
  esac
done
if ! python3 "$root/tests/gpu/models.py" describe "$model" >&2; then
  exit 2
fi
[[ -n $dry_run ]] || require_device bench
program=$bundle/programs/$model
if [[ -z $dry_run && ! -x $program/train ]]; then
  echo "bench: $bundle has no program for $model (bundle.py --models $model)" && exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The device's reported memory use, from before the program's start until its end.
watch_memory() {
  while sleep 0.5; do
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1
  done >"$work/memory.mib"
}

inputs() { python3 "$root/tests/gpu/models.py" inputs "$model" --plan "$program/plan.json" --out "$work"; }
ours() { # PROGRAM LOG
  watch_memory &
  local watcher=$! status
  "$1/train" --batch "$work/batch.safetensors" --load_model "$work/weights.safetensors" --steps "$steps" --progress none \
    --log "$work/$2.jsonl" --log_freq 1 --memory_report
  status=$?
  kill "$watcher"
  return "$status"
}
theirs() {
  python3 -c 'import torch' 2>/dev/null || { echo "no PyTorch on this machine" && return 77; }
  python3 "$root/tests/gpu/torch_peer.py" "$model" --steps "$steps" --options "$program/options.json" --out "$work/torch.json"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
check "$model: random weights and a batch" 60 inputs
check "$model: fsdpc, $steps steps" 120 ours "$program" log
if [[ -x ${program}_cudnn/train ]]; then
  check "$model: fsdpc with cuDNN's attention, $steps steps" 120 ours "${program}_cudnn" cudnn
fi
check "$model: PyTorch with torch.compile, $steps steps" 270 theirs
[[ -n $dry_run ]] || python3 "$root/tests/gpu/report.py" "$model" "$program" "$work"
echo "bench: $passed passed, $failed failed, $skipped left out ($SECONDS s)"
((failed == 0))

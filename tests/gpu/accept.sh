#!/bin/bash
# Correctness of the cuda target on a machine with one GPU, in under 10 minutes; prints as it goes. Needs a driver, cuBLASLt,
# cuDNN and NCCL (README.md), python3 with numpy, and the bundle that bundle.py has built on another machine.
#
#   tests/gpu/accept.sh [--bundle DIR] [--logs DIR] [--dry_run]      exit 0, 1, or 10 without a device
set -u
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
while (($#)); do
  case $1 in
    --bundle) bundle=$(realpath -m "$2") && shift 2 ;;
    --logs) logs=$(realpath -m "$2") && mkdir -p "$logs" && shift 2 ;;
    --dry_run) dry_run=yes && shift ;;
    *) echo "accept.sh: unknown option $1" >&2 && exit 2 ;;
  esac
done
[[ -n $dry_run ]] || require_device accept
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seconds=120

# has PROGRAM OPTION: whether the program lists the option.
has() { "$bundle/programs/$1/train" --help 2>/dev/null | grep -q -- "--$2"; }

# fixture NAME RANKS TRANSPORT [LAUNCHER]: PyTorch's losses, gradients and parameters, and the planned memory.
fixture() {
  local program=$1_$2_$3 options=()
  # Ranks that are threads cannot be captured together.
  [[ $3 == loopback ]] && has "$program" cuda_graph && options=(--train_options "--cuda_graph off")
  check "$1 on $2 rank(s), $3" "$seconds" python3 "$root/tests/accept.py" "$root/tests/fixtures/$1" --program "$bundle/programs/$program" \
    --world_size "$2" --launcher "${4:-}" --keep "$work/$program" "${options[@]}"
}

# Losses, gradients and parameters are the same whichever way a step is started.
same_with_graph() {
  local program=$1 batch=$2 graph work=$work/graph_$1
  mkdir -p "$work"
  has "$program" cuda_graph || { echo "programs have no --cuda_graph" && return 77; }
  for graph in on off; do
    "$bundle/programs/$program/train" --batch "$batch" --steps 5 --progress none --cuda_graph "$graph" --log "$work/$graph.jsonl" \
      --log_freq 1 --save_gradients "$work/$graph.gradients" --save_model "$work/$graph.final" || return
    grep -o '"loss":[^,]*' "$work/$graph.jsonl" >"$work/$graph.losses"
  done
  for what in losses gradients final; do
    cmp "$work/on.$what" "$work/off.$what" || return
  done
}

# A run that ends after three steps and is resumed has the bits of one that trains six.
resumed() { # PROGRAM BATCH
  local train=$bundle/programs/$1/train work=$work/resumed_$1 options=(--batch "$2" --progress none)
  mkdir -p "$work" && cd "$work" || return
  "$train" "${options[@]}" --steps 6 --save_model whole &&
    "$train" "${options[@]}" --steps 3 --checkpoint_folder checkpoints &&
    "$train" "${options[@]}" --steps 6 --checkpoint_folder checkpoints --resume auto --save_model resumed && cmp whole resumed
}

# A rank that stops in the middle of a run: the other one ends within the limit, with exit 6, the collective that waits
# and the rank that is missing.
rank_stops() { # PROGRAM BATCH
  local work=$work/stops_$1 status=0
  mkdir -p "$work" && cd "$work" || return
  "$root/tests/gpu/two_ranks.sh" --stop_second run.jsonl "$bundle/programs/$1/train" --batch "$2" --progress none --steps 1000000000 \
    --log run.jsonl --log_freq 100 --train_timeout_seconds 5 >output || status=$?
  cat output
  ((status == 77)) && return 77
  ((status == 6)) && grep -E "exit=6 rank=0 step=[0-9]+ (unit=[^ ]+ )?seq=[0-9]+ op=[a-z_]+ missing=1" output
}

# sanitized TOOL COMMAND... Errors of calls are not counted: NCCL asks for kernels that its library may lack, and goes on without.
sanitized() {
  local tool=$1 sanitizer log
  log=$(mktemp -p "$work")
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    { echo "no compute-sanitizer on this machine" && return 77; }
  shift
  "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 1 "$@" >"$log" 2>&1
  local status=$?
  cat "$log"
  grep -q "Device not supported" "$log" && echo "compute-sanitizer does not take this device" && return 77
  return "$status"
}

fixtures=$(cd "$bundle/programs" 2>/dev/null && ls -d *_1_nccl 2>/dev/null | sed 's/_1_nccl$//')
batch_of() { echo "$root/tests/fixtures/$1/batch.safetensors"; }

kernels() {
  check "every kernel, against f64" 300 "$bundle/bin/kernel_tests" --gtest_brief=1 --gtest_filter='-RealDevice*'
}

# What the emulated device cannot see.
real_device() {
  check "launch limits, shared memory, host pointers, order between blocks, events of graphs" 120 env CUDA_LAUNCH_BLOCKING=0 \
    "$bundle/bin/kernel_tests" --gtest_brief=1 --gtest_filter='RealDevice*'
}

one_fixture() { # NAME
  fixture "$1" 1 nccl
  fixture "$1" 2 loopback
  fixture "$1" 4 loopback
  check "$1: graph on and off, the same bits" "$seconds" same_with_graph "${1}_1_nccl" "$(batch_of "$1")"
  check "$1: resumed, the same bits" "$seconds" resumed "${1}_1_nccl" "$(batch_of "$1")"
}

two_processes() { # NAME
  [[ -d $bundle/programs/${1}_2_nccl ]] || return
  check "$1: two processes on one device start" "$seconds" "$root/tests/gpu/two_ranks.sh" "$bundle/programs/${1}_2_nccl/train" \
    --batch "$(batch_of "$1")" --steps 1 --progress none
  [[ -n $dry_run ]] || ((passed)) || return
  fixture "$1" 2 nccl "$root/tests/gpu/two_ranks.sh"
  check "$1: a rank stops, the other one ends" "$seconds" rank_stops "${1}_2_nccl" "$(batch_of "$1")"
}

sanitizers() { # NAME TOOL
  [[ -d $bundle/programs/${1}_1_nccl ]] || return
  check "$1: $2" "$seconds" sanitized "$2" "$bundle/programs/${1}_1_nccl/train" --batch "$(batch_of "$1")" --steps 1 --progress none
}

sections=(kernels real_device)
for name in $fixtures; do
  sections+=("one_fixture $name")
done
for name in mlp gpt2_tiny; do
  sections+=("two_processes $name")
  for tool in memcheck racecheck synccheck; do
    sections+=("sanitizers $name $tool")
  done
done
together 8 "${sections[@]}"
echo "accept: $passed passed, $failed failed, $skipped left out ($SECONDS s)"
((failed == 0))

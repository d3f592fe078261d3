# Sourced by accept.sh and bench.sh: finds the bundle and the libraries, runs and counts checks.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bundle=$root/build/gpu_bundle
dry_run= logs=
passed=0 failed=0 skipped=0

# cuBLASLt, cuDNN and NCCL are too large to bundle. Uses the toolkit's, or those of a PyTorch of the same CUDA.
find_libraries() {
  local folder
  for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/cuda/targets/x86_64-linux/lib; do
    [[ -d $folder ]] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  while read -r folder; do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done < <(python3 -c '
import glob, site, sys
for base in sys.path + site.getsitepackages():
    print("\n".join(sorted(glob.glob(base + "/nvidia/*/lib"))))' 2>/dev/null | sed '/^$/d' | sort -u)
  export LD_LIBRARY_PATH
}

# Ends with exit 10 and one line unless there is a bundle, its libraries and a device.
require_device() {
  local name=$1 missing said
  if [[ ! -x $bundle/bin/kernel_tests ]]; then
    echo "$name: no bundle in $bundle; tests/gpu/bundle.py makes one where there is nvcc"
    exit 10
  fi
  find_libraries
  missing=$(ldd "$bundle/bin/kernel_tests" "$bundle"/programs/*_nccl/train 2>/dev/null | sed -n 's/^[[:space:]]*\(.*\) => not found.*/\1/p' | sort -u | xargs)
  if [[ -n $missing ]]; then
    echo "$name: libraries are missing on this machine: $missing"
    exit 10
  fi
  if ! said=$("$bundle/bin/kernel_tests" --gtest_filter='-*' 2>&1); then
    echo "$name: ${said##*$'\n'}"
    exit 10
  fi
}

# within SECONDS COMMAND...: like timeout, also for functions. Each has a process group, which is ended as a whole.
within() (
  exec 3>&2 2>/dev/null # the shell's word about jobs
  set -m
  limit=$1
  shift
  "$@" 2>&3 &
  running=$!
  sleep "$limit" &
  timer=$!
  wait -n "$running" "$timer"
  status=$?
  if kill -0 "$running" 2>/dev/null; then
    kill -- "-$running"
    echo "no end within $limit s"
    status=124
  fi
  kill "$timer" 2>/dev/null
  exit "$status"
)

# check NAME SECONDS COMMAND...: one counted line; prints the command's output only if it failed, and keeps all of it in $logs if
# that is a folder. Status 77: skipped, with the reason printed.
check() {
  local name=$1 limit=$2 started=$SECONDS status=0 log
  shift 2
  if [[ -n $dry_run ]]; then
    echo "would run: $name"
    return
  fi
  log=$(mktemp)
  within "$limit" "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) passed=$((passed + 1)) && echo "ok    $name ($((SECONDS - started)) s)" ;;
    77) skipped=$((skipped + 1)) && echo "left  $name: $(tail -n 1 "$log")" ;;
    *) failed=$((failed + 1)) && echo "FAIL  $name: status $status" && tail -n 15 "$log" | sed 's/^/      /' ;;
  esac
  [[ -n $logs ]] && cp "$log" "$logs/${name//[^a-zA-Z0-9]/_}.log"
  rm -f "$log"
}

# together AT_MOST SECTION...: runs so many of the sections at a time, each a function with its arguments, prints their output in
# this order, each as soon as it is complete, and adds up their counts.
together() {
  local at_most=$1 folder i=0 sections=() section
  shift
  folder=$(mktemp -d)
  for section in "$@"; do
    while (($(jobs -rp | wc -l) >= at_most)); do wait -n; done
    (
      passed=0 failed=0 skipped=0
      $section
      echo "$passed $failed $skipped" >"$folder/counts.$i"
    ) >"$folder/output.$i" 2>&1 &
    sections[i++]=$!
  done
  for ((i = 0; i < $#; i++)); do
    wait "${sections[i]}"
    cat "$folder/output.$i"
    add_counts $(cat "$folder/counts.$i" || echo 0 1 0)
  done
  rm -r "$folder"
}

add_counts() {
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

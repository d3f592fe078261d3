#!/bin/bash
# The wheel on a bare Debian 12: its command names each package that is missing, then compiles and trains on two ranks.
#   bare_root.sh WHEEL FOLDER     makes a root in FOLDER with debootstrap; as root; takes this machine's package sources
#   bare_root.sh WHEEL FOLDER --huggingface     then runs the commands of samples/finetune/README.md, and those of the top README, on what
#                                               they make: a model of transformers is exported, fine-tuned and opened again; about 8 GB
set -euo pipefail

wheel=$(realpath "$1") root=$(realpath -m "$2")/root mode=${3:-}
[[ ! $mode || $mode == --huggingface ]] || {
  echo "bare_root: $mode is not --huggingface"
  exit 2
}
source=$(realpath "$(dirname "$0")/../..")
unset "${!CMAKE_@}" "${!CCACHE_@}" "${!OMPI_@}" # of the tests; a bare machine has no ccache

cleanup() {
  for mounted in dev proc; do
    ! mountpoint -q "$root/$mounted" || umount -l "$root/$mounted"
  done
}
trap cleanup EXIT

fail() {
  echo "bare_root: $*"
  exit 1
}

# lacks PACKAGES COMMAND...: the command ends with the names of the packages.
lacks() {
  local packages=$1 said
  shift
  ! said=$(chroot "$root" "$@" 2>&1) || fail "$* succeeds without $packages"
  grep -q "this machine lacks $packages:" <<<"$said" || fail "$* does not name $packages: $said"
}

install_packages() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$root/../apt.log" 2>&1 ||
    fail "apt: $(tail -n 3 "$root/../apt.log")"
}

# shell COMMANDS: prints lines of bash and runs them in /user of the root. Ranks may be more than cores, and run as root.
shell() {
  sed 's/^/$ /' <<<"$1"
  chroot "$root" env PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 bash -euc "cd /user"$'\n'"$1" 2>&1 || fail "a command of a README failed"
}

# finetune_commands FIRST LAST: the indented lines of samples/finetune/README.md between the lines that begin so, with FOLDER and MODEL.
finetune_commands() {
  sed -n "/^$1/,/^$2/s/^    //p" "$source/samples/finetune/README.md" | sed "s/FOLDER/tuning/g; s,MODEL,tuning/base,g"
}

huggingface() {
  mkdir -p "$root/user/samples/finetune"
  cp "$wheel" "$root/user/"
  cp "$source/samples/common.py" "$root/user/samples/"
  cp "$source/samples/finetune/finetune.py" "$root/user/samples/finetune/"
  local commands prompts number
  commands=$(finetune_commands "## With the wheel alone" "## Your model")
  prompts=$(finetune_commands "Prompts and completions" "#")
  [[ $commands == *finetune.py\ tuning && $prompts == *mpirun* ]] || fail "samples/finetune/README.md has no commands for the wheel alone"
  shell "$commands"
  for number in {1..16}; do
    echo "{\"prompt\": \"May I copy work $number?\", \"completion\": \" Everyone is permitted to copy it.\"}"
  done >"$root/user/prompts.jsonl"
  shell ". venv/bin/activate
$prompts
fsdpc inspect tuning/model.onnx
fsdpc init tuning/model.onnx -o fsdpc.yaml
fsdpc tuning/model.onnx --world_size 2 --micro_batch_size 4 --loss cross_entropy --init default -o out
mpirun -n 2 out/train --load_model tuning/tuned --train_data tuning/tokens/train_000000.bin --steps 10 --log log.jsonl --report run.html
fsdpc run tuning/model.onnx --micro_batch_size 4 --loss cross_entropy --init default -n 2 -- --train_data tuning/tokens/train_000000.bin --steps 2
fsdpc report log.jsonl tuning/full.jsonl -o report.html"
  local page
  for page in tuning/full tuning/lora tuning/report run report; do
    [[ -s $root/user/$page.html ]] || fail "$page.html is missing"
  done
}

# The first source of packages of this machine, in either format of apt.
mirror=$(find /etc/apt -name '*.list' -o -name '*.sources' | sort |
  xargs -r sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\).*/\1/p' | sed -n 1p)
[[ $mirror ]] || fail "no source of packages in /etc/apt"

cleanup # of a run that was killed: what is mounted must not be deleted
rm -rf --one-file-system "$root"
mkdir -p "$root"
debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root" "$mirror" >"$root.log" || fail "debootstrap: $(tail -n 3 "$root.log")"
cp -r /etc/apt/. "$root/etc/apt/"
cp /etc/resolv.conf "$root/etc/"
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do # how pip reaches its packages from this machine
  [[ ! -e $file ]] || install -D -m 644 "$file" "$root$file"
done
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"
cp "$wheel" "$root/"
mkdir "$root/model"
cp "$source"/tests/exports/parameter_groups/{model.onnx,batch.safetensors} "$root/model/"
chroot "$root" apt-get update -q >"$root/../apt.log" 2>&1
chroot "$root" python3 -m venv /venv
chroot "$root" /venv/bin/pip install -q --no-index "/$(basename "$wheel")"

fsdpc=/venv/bin/fsdpc
compile=("$fsdpc" /model/model.onnx --world_size 2 --micro_batch_size 2 --loss cross_entropy -o /out)
lacks libdnnl-dev "$fsdpc" inspect /model/model.onnx
install_packages libdnnl-dev
chroot "$root" "$fsdpc" inspect /model/model.onnx | grep -q '^parameters: ' || fail "inspect finds nothing"
lacks "g++, libopenmpi-dev, openmpi-bin" "${compile[@]}"
install_packages g++ libopenmpi-dev openmpi-bin
chroot "$root" "${compile[@]}" >"$root/../compile.log" || fail "$(tail -n 5 "$root/../compile.log")"
chroot "$root" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 /out/train \
  --train_data /model/batch.safetensors --epochs 4 --progress none --log /log.jsonl
grep -q '"step":4,' "$root/log.jsonl" || fail "the log has no step 4"
[[ ! $mode ]] || huggingface
echo "bare_root: ok"

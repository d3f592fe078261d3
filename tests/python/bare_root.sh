#!/bin/bash
# The wheel on a bare Debian 12: its command names each package that is missing, then compiles and trains on two ranks.
#   bare_root.sh WHEEL FOLDER     makes a root in FOLDER with debootstrap; as root; takes this machine's package sources
set -euo pipefail

wheel=$(realpath "$1") root=$(realpath -m "$2")/root
source=$(realpath "$(dirname "$0")/../..")

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

install() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$root/../apt.log" 2>&1 ||
    fail "apt: $(tail -n 3 "$root/../apt.log")"
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
install libdnnl-dev
chroot "$root" "$fsdpc" inspect /model/model.onnx | grep -q '^parameters: ' || fail "inspect finds nothing"
lacks "g++, libopenmpi-dev, openmpi-bin" "${compile[@]}"
install g++ libopenmpi-dev openmpi-bin
chroot "$root" "${compile[@]}" >"$root/../compile.log" || fail "$(tail -n 5 "$root/../compile.log")"
chroot "$root" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 /out/train \
  --train_data /model/batch.safetensors --epochs 4 --progress none --log /log.jsonl
grep -q '"step":4,' "$root/log.jsonl" || fail "the log has no step 4"
echo "bare_root: ok"

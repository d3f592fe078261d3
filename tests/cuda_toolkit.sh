#!/bin/bash
# The CUDA toolkit that programs are built with: that of the machine, else one put together from pinned packages.
#
#   tests/cuda_toolkit.sh --print      only print its folder; nothing where there is none. CMakeLists.txt asks this
#   tests/cuda_toolkit.sh --install    fetch it (about 1.1 GB) into ${FSDPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsdpc} unless there is one
#
# FSDPC_CUDA=DIR is the toolkit in DIR; FSDPC_CUDA=packages that of the packages, whatever the machine has.
set -euo pipefail

packages="
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cublas==13.1.0.3 --hash=sha256:ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cudnn-cu13==9.19.0.56 --hash=sha256:d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nvidia-nccl-cu13==2.28.9 --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
"
cache=${FSDPC_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fsdpc}
# Whoever changes how they are put together raises this, so that toolkits of the old kind are not picked up.
recipe=1
own=$cache/cuda-$(sha256sum <<<"$packages" | cut -c1-12)-recipe$recipe

toolkit() {
  local candidates=("${CUDA_HOME:-}" /usr/local/cuda "$own") folder
  case ${FSDPC_CUDA:-} in
    '') ;;
    packages) candidates=("$own") ;;
    *) candidates=("$FSDPC_CUDA") ;;
  esac
  for folder in "${candidates[@]}"; do
    if [[ -n $folder && -x $folder/bin/nvcc ]]; then
      echo "$folder"
      return
    fi
  done
}

# Packages have a folder each, and libraries without the names that linkers look for.
assemble() {
  local work=$1 folder library
  mkdir -p "$work/toolkit"
  for folder in cu13 nccl cudnn; do
    cp -al "$work/packages/nvidia/$folder/." "$work/toolkit/"
  done
  for library in "$work"/toolkit/lib/lib*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
  ln -s lib "$work/toolkit/lib64"
  mkdir -p "$work/toolkit/targets/x86_64-linux"
  ln -s ../../lib ../../include "$work/toolkit/targets/x86_64-linux/"
}

install() {
  local work=$own.building
  mkdir -p "$cache"
  # Two set-ups at once: the second waits and finds it there.
  exec {lock}>"$cache/cuda.lock"
  flock "$lock"
  [[ -d $own ]] && return
  rm -rf "$work"
  mkdir -p "$work"
  echo "setup: fetching the CUDA toolkit (once, about 1.1 GB)"
  echo "$packages" >"$work/requirements.txt"
  /usr/bin/python3 -m pip --disable-pip-version-check install -q --root-user-action=ignore --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --target "$work/packages" -r "$work/requirements.txt"
  assemble "$work"
  # Only a finished one ever has the final name.
  mv "$work/toolkit" "$own"
  rm -rf "$work"
}

case ${1:-} in
  --print) toolkit ;;
  --install)
    [[ -n $(toolkit) ]] || install
    echo "setup: the CUDA toolkit is in $(toolkit)"
    ;;
  *) echo "cuda_toolkit.sh: --print or --install" >&2 && exit 2 ;;
esac

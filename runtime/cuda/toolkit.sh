#!/bin/bash
# The CUDA toolkit that programs are built with: the machine's, or else one assembled from pinned packages. Also the headers of
# cuDNN's frontend, which toolkits do not include: the machine's, or else the pinned ones, in a separate folder.
#
#   runtime/cuda/toolkit.sh --print            only print the toolkit's folder, if there is one. CMakeLists.txt calls this
#   runtime/cuda/toolkit.sh --print_frontend   only print the folder of cudnn_frontend.h, if there is one. Also called there
#   runtime/cuda/toolkit.sh --install          fetch those that are missing (about 1.2 GB, and 12 MB) into
#                                            ${FSDPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsdpc}
#
# FSDPC_CUDA=DIR selects the toolkit in DIR; FSDPC_CUDA=packages the one from the packages, whatever the machine has.
set -euo pipefail

packages="
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cublas==13.1.0.3 --hash=sha256:ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cudnn-cu13==9.19.0.56 --hash=sha256:d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nvidia-nccl-cu13==2.28.9 --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
"
# There is one package per Python version, all with the same headers. Always fetches the one for Python 3.11.
frontend_version=1.32
frontend_package="nvidia-cudnn-frontend==1.32.0 --hash=sha256:c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0"
frontend_python=(--python-version 311 --implementation cp --abi cp311 --platform manylinux_2_28_x86_64)
cache=${FSDPC_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fsdpc}
# Increment when the assembly below changes, so that toolkits assembled the old way are not picked up.
recipe=1
own=$cache/cuda-$(sha256sum <<<"$packages" | cut -c1-12)-recipe$recipe
own_frontend=$cache/cudnn-frontend-$(sha256sum <<<"$frontend_package" | cut -c1-12)-recipe$recipe

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

# Checks that this version.h is at least the version that runtime/cuda/kernels/cudnn_attention.cpp is written for.
recent() {
  local found
  found=$(sed -n 's/^#define CUDNN_FRONTEND_\(MAJOR\|MINOR\)_VERSION //p' "$1" 2>/dev/null | paste -sd .)
  [[ -n $found && $(printf '%s\n' "$frontend_version" "$found" | sort -V | head -n 1) == "$frontend_version" ]]
}

frontend() {
  local candidates=("$(toolkit)/include" /usr/include "$own_frontend/include") folder
  [[ ${FSDPC_CUDA:-} == packages ]] && candidates=("$own_frontend/include")
  for folder in "${candidates[@]}"; do
    if [[ -f $folder/cudnn_frontend.h ]] && recent "$folder/cudnn_frontend_version.h"; then
      echo "$folder"
      return
    fi
  done
}

# Each package has its own folder, and libraries lack the names that linkers look for.
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
  [[ -d $own ]] && return
  rm -rf "$work"
  mkdir -p "$work"
  echo "setup: fetching the CUDA toolkit (once, about 1.2 GB)"
  echo "$packages" >"$work/requirements.txt"
  /usr/bin/python3 -m pip --disable-pip-version-check install -q --root-user-action=ignore --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --target "$work/packages" -r "$work/requirements.txt"
  assemble "$work"
  # The final name always refers to a complete toolkit.
  mv "$work/toolkit" "$own"
  rm -rf "$work"
}

install_frontend() {
  local work=$own_frontend.building
  [[ -d $own_frontend ]] && return
  rm -rf "$work"
  mkdir -p "$work/package"
  echo "setup: fetching the headers of cuDNN's frontend (once, 12 MB)"
  echo "$frontend_package" >"$work/requirements.txt"
  /usr/bin/python3 -m pip --disable-pip-version-check download -q --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    "${frontend_python[@]}" -d "$work" -r "$work/requirements.txt"
  /usr/bin/python3 -m zipfile -e "$work"/*.whl "$work/package"
  # The final name always refers to complete headers.
  mkdir "$work/headers"
  mv "$work/package/include" "$work/headers/"
  mv "$work/headers" "$own_frontend"
  rm -rf "$work"
}

# Of two concurrent installs, the second waits and finds everything installed.
lock() {
  mkdir -p "$cache"
  exec {lock}>"$cache/cuda.lock"
  flock "$lock"
}

case ${1:-} in
  --print) toolkit ;;
  --print_frontend) frontend ;;
  --install)
    if [[ -z $(toolkit) || -z $(frontend) ]]; then
      lock
      [[ -n $(toolkit) ]] || install
      [[ -n $(frontend) ]] || install_frontend
    fi
    echo "toolkit: the CUDA toolkit is in $(toolkit), cuDNN's frontend in $(frontend)"
    ;;
  *) echo "toolkit.sh: --print, --print_frontend or --install" >&2 && exit 2 ;;
esac

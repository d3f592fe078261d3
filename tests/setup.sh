#!/bin/bash
# Makes a Debian 12 machine ready to build and test fsdpc. Keeps what is already installed.
#
#   tests/setup.sh               install what is missing, build libonnx once (frontend/onnx/libonnx.sh)
#   tests/setup.sh --with_browser   and a browser, in which pages are tried
#   tests/setup.sh --with_cuda   and, if the CUDA toolkit or cuDNN's frontend is missing, fetch them (runtime/cuda/toolkit.sh)
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache
  llvm-19-dev llvm-19-tools clang-format-19 clang-19 libclang-rt-19-dev libomp-19-dev
  libprotobuf-dev protobuf-compiler libtomlplusplus-dev libdnnl-dev libopenmpi-dev openmpi-bin libboost-context-dev
  libgtest-dev libgmock-dev iproute2 qemu-user strace valgrind
  python3 python3-numpy python3-pil python3-pip python3-setuptools python3-wheel)
if [[ " $* " == *" --with_browser "* ]]; then
  packages+=(chromium chromium-driver)
fi

# Prefers Debian's tools over those of a version manager on PATH, because they match Debian's libraries.
export PATH=/usr/sbin:/sbin:/usr/bin:/bin:$PATH

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "${packages[@]}" | sort) <(sort -u <<<"$installed")
}

install_packages() {
  local root=()
  if [[ $(id -u) != 0 ]]; then
    root=(sudo)
  fi
  echo "setup: installing $*"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -q)
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends "$@"
}

mapfile -t missing < <(missing_packages)
if ((${#missing[@]})); then
  install_packages "${missing[@]}"
fi

root=$(dirname "${BASH_SOURCE[0]}")/..
"$root/frontend/onnx/libonnx.sh"
if [[ " $* " == *" --with_cuda "* ]]; then
  "$root/runtime/cuda/toolkit.sh" --install
fi

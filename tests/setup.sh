#!/bin/bash
# Makes a Debian 12 machine ready to build and test fsdpc; what is there already is left alone.
#
#   tests/setup.sh                  install what is missing, build libonnx once, say where it is
#   tests/setup.sh --with_cuda      and, where there is no CUDA toolkit or none of cuDNN's frontend, fetch them (cuda_toolkit.sh)
#   tests/setup.sh --print_prefix   only print where libonnx is (or will be); CMakeLists.txt asks this
#
# libonnx is built from its hash-pinned source package into ${FSDPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsdpc}.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache
  llvm-19-dev llvm-19-tools clang-format-19 clang-19 libclang-rt-19-dev libomp-19-dev
  libprotobuf-dev protobuf-compiler libdnnl-dev libopenmpi-dev openmpi-bin libboost-context-dev
  libgtest-dev libgmock-dev
  python3 python3-numpy python3-pip python3-setuptools python3-wheel)

# Where a version manager puts other tools first on PATH, Debian's are still the ones that fit Debian's libraries.
export PATH=/usr/sbin:/sbin:/usr/bin:/bin:$PATH

onnx_version=1.19.1
onnx_sha256=737524d6eb3907d3499ea459c6f01c5a96278bb3a0f2ff8ae04786fb5d7f1ed5
# Whoever changes how libonnx is built raises this, so that builds of the old kind are not picked up.
onnx_recipe=1

cache=${FSDPC_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fsdpc}

prefix() {
  # The compiler and protobuf decide whether a stored build still links; the version of protoc is that of the library.
  local compiler protobuf
  compiler=$(g++ -dumpmachine 2>/dev/null)-gcc$(g++ -dumpfullversion 2>/dev/null) || compiler=none
  protobuf=$(protoc --version 2>/dev/null) || protobuf=none
  echo "$cache/onnx-$onnx_version-$compiler-protobuf${protobuf##* }-recipe$onnx_recipe"
}

if [[ ${1:-} == --print_prefix ]]; then
  prefix
  exit
fi

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

# Runs a command quietly; its output is shown only if it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "setup: failed: $* (log: $log)" >&2
    return 1
  fi
}

build_onnx() {
  local target=$1 work=$1.building
  rm -rf "$work"
  mkdir -p "$work/download"
  echo "setup: fetching and building libonnx $onnx_version (once, some minutes)"
  echo "onnx==$onnx_version --hash=sha256:$onnx_sha256" >"$work/requirements.txt"
  # pip wants the package's metadata after the download; without build isolation it needs nothing further for that.
  quietly "$work/download.log" /usr/bin/python3 -m pip --disable-pip-version-check download --no-cache-dir --no-deps \
    --no-binary :all: --no-build-isolation --require-hashes -r "$work/requirements.txt" -d "$work/download"
  tar -xzf "$work/download/onnx-$onnx_version.tar.gz" -C "$work"
  quietly "$work/configure.log" cmake -S "$work/onnx-$onnx_version" -B "$work/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DCMAKE_CXX_COMPILER=g++ \
    -DBUILD_SHARED_LIBS=OFF -DONNX_ML=ON -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_BUILD_PYTHON=OFF -DONNX_BUILD_TESTS=OFF \
    -DPython3_EXECUTABLE=/usr/bin/python3 -DProtobuf_PROTOC_EXECUTABLE=/usr/bin/protoc \
    -DCMAKE_INSTALL_PREFIX="$target" -DCMAKE_INSTALL_LIBDIR=lib
  quietly "$work/build.log" cmake --build "$work/build"
  quietly "$work/install.log" env DESTDIR="$work/root" cmake --install "$work/build"
  # Only a finished build ever has the final name.
  mv "$work/root$target" "$target"
  rm -rf "$work"
}

did=()
mapfile -t missing < <(missing_packages)
if ((${#missing[@]})); then
  install_packages "${missing[@]}"
  did+=("installed ${#missing[@]} packages")
fi

target=$(prefix)
if [[ ! -d $target ]]; then
  mkdir -p "$cache"
  # Two set-ups at once: the second waits and finds the build done.
  exec {lock}>"$cache/lock"
  flock "$lock"
  if [[ ! -d $target ]]; then
    build_onnx "$target"
    did+=("built libonnx $onnx_version")
  fi
fi

if [[ ${1:-} == --with_cuda ]]; then
  "$(dirname "${BASH_SOURCE[0]}")/cuda_toolkit.sh" --install
fi

if ((${#did[@]})); then
  printf -v list '%s, ' "${did[@]}"
  echo "setup: ${list%, }; libonnx is in $target"
else
  echo "setup: nothing to do; libonnx is in $target"
fi

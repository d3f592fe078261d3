#!/bin/bash
# libonnx, which reads the models: built once from its hash-pinned source package, and kept in
# ${FSDPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsdpc}.
#
#   frontend/onnx/libonnx.sh                  build it unless it is there, and say where it is
#   frontend/onnx/libonnx.sh --print_prefix   only print where it is (or will be); CMakeLists.txt asks this
set -euo pipefail

# Where a version manager puts other tools first on PATH, the system's are still the ones that fit the system's libraries.
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

# Runs a command quietly; its output is shown only if it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "libonnx: failed: $* (log: $log)" >&2
    return 1
  fi
}

build_onnx() {
  local target=$1 work=$1.building
  rm -rf "$work"
  mkdir -p "$work/download"
  echo "libonnx: fetching and building libonnx $onnx_version (once, some minutes)"
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

target=$(prefix)
if [[ ! -d $target ]]; then
  mkdir -p "$cache"
  # Two set-ups at once: the second waits and finds the build done.
  exec {lock}>"$cache/lock"
  flock "$lock"
  if [[ ! -d $target ]]; then
    build_onnx "$target"
  fi
fi

echo "libonnx: in $target"

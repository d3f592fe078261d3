// Adjacent elements that one thread loads, computes with and stores together.
#pragma once

#include "runtime/common/float16.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace fsdpc::rt {

/// Aligned to its size, so that it moves in one instruction; up to 32 bytes of f32 in registers.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T values[count];
};

/// A tensor may be an unaligned view; then elements move one by one.
template <class T, int count>
__device__ bool isAlignedPack(const T *first) {
  return reinterpret_cast<std::uintptr_t>(first) % sizeof(Pack<T, count>) == 0;
}

template <int count, class T>
__device__ Pack<T, count> loadPack(const T *from) {
  if (isAlignedPack<T, count>(from))
    return *reinterpret_cast<const Pack<T, count> *>(from);
  Pack<T, count> pack;
  for (int i = 0; i < count; ++i)
    pack.values[i] = from[i];
  return pack;
}

template <class T, int count>
__device__ void storePack(const Pack<T, count> &pack, T *to) {
  if (isAlignedPack<T, count>(to)) {
    *reinterpret_cast<Pack<T, count> *>(to) = pack;
    return;
  }
  for (int i = 0; i < count; ++i)
    to[i] = pack.values[i];
}

} // namespace fsdpc::rt

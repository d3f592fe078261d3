// Tensor-core matmuls of 16-bit floats and the loads for them. Only this file uses the instructions (compute capability
// 8.0 or later). Compiled for an emulated device, the same functions do what the PTX manual specifies, lane by lane, so
// a fragment that is filled wrongly gives wrong results there too.
//
// A fragment is a small matrix distributed over the lanes of a warp. Lane 4g + t holds the following elements, two
// neighbours to a register, the one with the lower index in the lower half:
//
//   left (16 x 16)   registers 0, 1: rows g, g + 8, columns 2t, 2t + 1;   2, 3: the same rows, columns 2t + 8, 2t + 9
//   right (16 x 8)   register 0: rows 2t, 2t + 1, column g;               1: rows 2t + 8, 2t + 9
//   sums (16 x 8)    values 0, 1: row g, columns 2t, 2t + 1;              2, 3: row g + 8
//
// So two adjacent fragments of sums, rounded, are a left fragment of 16 columns: a lane needs no other lane's values to
// multiply what it has just computed.
//
// Copies to shared memory that a thread starts overlap with its arithmetic. The thread waits for its own copies, and a
// barrier after that makes the copies of all threads visible. All other functions are called by entire, converged
// warps.
#pragma once

#include "runtime/common/float16.h"

#include <cuda_runtime.h>

#include <cstdint>

#if !defined(__CUDACC__)
#include <mma_emulation.h>
#endif

namespace fsdpc::rt {

struct LeftFragment {
  std::uint32_t pairs[4];
};
struct RightFragment {
  std::uint32_t pairs[2];
};
struct SumFragment {
  float values[4];
};

/// Both rounded to nearest, `low` in the lower half. T: Bfloat16 or Float16.
template <class T>
__device__ inline std::uint32_t roundedPair(float low, float high) {
#if defined(__CUDACC__)
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, Bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return std::uint32_t{T(high).bits} << 16 | T(low).bits;
#endif
}

/// 2^x, to about two units in the last place; results below the normal numbers are 0.
__device__ inline float approximateExp2(float x) {
#if defined(__CUDACC__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

/// sums += left * right, both of T; products are exact, sums are float.
template <class T>
__device__ inline void multiplyAdd(SumFragment &sums, const LeftFragment &left, const RightFragment &right) {
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, Bfloat16>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
                 : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]), "r"(right.pairs[0]),
                   "r"(right.pairs[1]));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
                 : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]), "r"(right.pairs[0]),
                   "r"(right.pairs[1]));
#else
  emulated::multiplyAdd<T>(sums.values, left.pairs, right.pairs);
#endif
}

/// Four matrices of 8 x 8 in shared memory: lane 8m + i passes the address of row i of matrix m, 16 bytes, aligned.
/// Lane 4g + t gets row g, columns 2t and 2t + 1 of each matrix.
__device__ inline void loadMatrices(std::uint32_t (&pairs)[4], const void *row) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(address)
               : "memory");
#else
  emulated::loadMatrices(pairs, row);
#endif
}

/// As above, but lane 4g + t gets rows 2t and 2t + 1, column g.
__device__ inline void loadMatricesTransposed(std::uint32_t (&pairs)[4], const void *row) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(address)
               : "memory");
#else
  emulated::loadMatricesTransposed(pairs, row);
#endif
}

/// Starts to copy `bytes` (4 or 16; both addresses are multiples of it) to shared memory. If the source does not exist,
/// writes zeros: `from` is not read, but must be an address in device memory.
template <int bytes>
__device__ void startCopy(void *shared, const void *from, bool exists) {
  static_assert(bytes == 4 || bytes == 16);
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int length = exists ? bytes : 0;
  if constexpr (bytes == 16) // bypasses the L1 cache: only this block's shared memory needs it
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(length) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(length) : "memory");
#else
  emulated::startCopy(shared, exists ? from : nullptr, bytes);
#endif
}

/// Waits until all copies started by this thread are complete.
__device__ inline void waitForCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated::waitForCopies();
#endif
}

} // namespace fsdpc::rt

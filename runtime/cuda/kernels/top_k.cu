// Each thread has an element and counts the elements of its row that precede it. If these are fewer than k, their
// number is its position in the result. It stops counting at k, which is early for most elements. No element waits for
// another.
#include "runtime/cuda/kernels/top_k.h"

#include "runtime/cuda/launch.h"

#include <type_traits>

namespace fsdpc::rt {

namespace {

/// Among floats NaN is the largest.
template <class T>
__device__ bool isLarger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a > b || (a != a && b == b);
  else
    return a > b;
}

template <class T>
__global__ void placeElements(TopKShape shape, const T *x, T *values, std::int64_t *indices) {
  const std::int64_t elements = shape.rows * shape.count, step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < elements; e += step) {
    const std::int64_t row = e / shape.count, own = e - row * shape.count;
    const T *const elementsOfRow = x + row * shape.count;
    const T mine = elementsOfRow[own];
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < shape.count && before < shape.k; ++i) {
      const T other = elementsOfRow[i];
      const bool isAhead = shape.smallest ? isLarger(mine, other) : isLarger(other, mine);
      const bool isAfter = shape.smallest ? isLarger(other, mine) : isLarger(mine, other);
      before += isAhead || (!isAfter && i < own);
    }
    if (before < shape.k) {
      values[row * shape.k + before] = mine;
      indices[row * shape.k + before] = own;
    }
  }
}

} // namespace

template <class T>
void topK(const Context &c, const TopKShape &shape, const T *x, T *values, std::int64_t *indices) {
  if (shape.rows > 0)
    launch(c, gridFor(c, shape.rows * shape.count), placeElements<T>, shape, x, values, indices);
}

#define FSDPC_TOP_K(T) template void topK(const Context &, const TopKShape &, const T *, T *, std::int64_t *);
FSDPC_TOP_K(float)
FSDPC_TOP_K(double)
FSDPC_TOP_K(std::int64_t)
FSDPC_TOP_K(std::int32_t)
FSDPC_TOP_K(std::uint8_t)

} // namespace fsdpc::rt

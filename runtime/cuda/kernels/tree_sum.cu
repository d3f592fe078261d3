// A thread sums one element over all ranks. Partial sums of 1, 2, 4, ... ranks stay on a small stack until their other
// half is complete, like the digits of a binary counter. The remaining ones are added from the right at the end. This
// is the recursion
//   sum(r0 .. rn-1) = sum(first p) + sum(the other n - p),  p the largest power of two below n
#include "runtime/cuda/kernels/tree_sum.h"

#include "runtime/common/float16.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

constexpr int maxLevels = 31; ///< enough for an int number of ranks

/// The type in which elements are added.
template <class T>
using Added = std::conditional_t<isHalf<T>, float, T>;

template <class T>
__global__ void sumOverRanks(const T *sources, int count, T *destination, std::int64_t elements) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += stride) {
    Added<T> partial[maxLevels];
    int depth = 0;
    for (int rank = 0; rank < count; ++rank) {
      auto sum = static_cast<Added<T>>(sources[rank * elements + i]);
      for (int taken = rank + 1; taken % 2 == 0; taken /= 2)
        sum = partial[--depth] + sum;
      partial[depth++] = sum;
    }
    Added<T> sum = partial[--depth];
    while (depth > 0)
      sum = partial[--depth] + sum;
    destination[i] = T(sum);
  }
}

template <class T>
void sumAll(const Context &c, cudaStream_t stream, const void *sources, int count, void *destination,
            std::int64_t elements) {
  launchOn(stream, gridFor(c, elements), sumOverRanks<T>, static_cast<const T *>(sources), count,
           static_cast<T *>(destination), elements);
}

} // namespace

void treeSum(const Context &c, cudaStream_t stream, const void *sources, int count, void *destination,
             std::int64_t elements, DType dtype) {
  if (elements == 0)
    return;
  switch (dtype) {
  case DType::f64: return sumAll<double>(c, stream, sources, count, destination, elements);
  case DType::f32: return sumAll<float>(c, stream, sources, count, destination, elements);
  case DType::bf16: return sumAll<Bfloat16>(c, stream, sources, count, destination, elements);
  case DType::f16: return sumAll<Float16>(c, stream, sources, count, destination, elements);
  // Unsigned: bitwise identical, and wrapping is defined.
  case DType::i64: return sumAll<std::uint64_t>(c, stream, sources, count, destination, elements);
  case DType::i32: return sumAll<std::uint32_t>(c, stream, sources, count, destination, elements);
  default: throw Failure(ExitCode::internal, "a collective sums a type that has no sum over ranks");
  }
}

} // namespace fsdpc::rt

#include "runtime/cuda/kernels/linear_cross_entropy.h"

#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

template <class T>
__global__ void cap(float limit, std::int64_t count, T *x) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    x[i] = static_cast<T>(limit * scalar::tanh(static_cast<float>(x[i]) / limit));
}

__global__ void add(std::int64_t count, const float *x, float *sum) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    sum[i] += x[i];
}

} // namespace

template <class T>
void capLogits(const Context &c, float limit, std::int64_t count, T *x) {
  if (count > 0)
    launch(c, gridFor(c, count), cap<T>, limit, count, x);
}

void addTo(const Context &c, std::int64_t count, const float *x, float *sum) {
  if (count > 0)
    launch(c, gridFor(c, count), add, count, x, sum);
}

template void capLogits(const Context &, float, std::int64_t, float *);
template void capLogits(const Context &, float, std::int64_t, Bfloat16 *);
template void capLogits(const Context &, float, std::int64_t, Float16 *);

} // namespace fsdpc::rt

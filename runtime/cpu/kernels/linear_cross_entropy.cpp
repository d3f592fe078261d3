#include "runtime/cpu/kernels/linear_cross_entropy.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

constexpr std::int64_t grain = 4096;

template <class Body>
void forEach(const Context &c, std::int64_t count, const Body &body) {
  parallelFor(c, count, grain, [&body](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      body(i);
  });
}

} // namespace

void roundTo(const Context &c, DType dtype, std::int64_t count, float *x) {
  if (dtype == DType::bf16)
    forEach(c, count, [x](std::int64_t i) { x[i] = static_cast<float>(Bfloat16(x[i])); });
  else if (dtype == DType::f16)
    forEach(c, count, [x](std::int64_t i) { x[i] = static_cast<float>(Float16(x[i])); });
}

void capLogits(const Context &c, float cap, std::int64_t count, float *x) {
  forEach(c, count, [=](std::int64_t i) { x[i] = cap * scalar::tanh(x[i] / cap); });
}

void addTo(const Context &c, std::int64_t count, const float *x, float *sum) {
  forEach(c, count, [=](std::int64_t i) { sum[i] += x[i]; });
}

} // namespace fsdpc::rt

#include "runtime/cpu/kernels/rotary.h"

#include "runtime/common/parallel.h"

namespace fsdpc::rt {

namespace {

/// Minimum elements per work item: for fewer, starting a thread takes longer than rotating them.
constexpr std::int64_t minElements = 4096;

void rotate(const float *x, const float *cos, const float *sin, std::int64_t half, float *y) {
#pragma omp simd
  for (std::int64_t j = 0; j < half; ++j) {
    const float low = x[j], high = x[j + half];
    y[j] = low * cos[j] - high * sin[j];
    y[j + half] = high * cos[j + half] + low * sin[j + half];
  }
}

void rotateBack(const float *x, const float *cos, const float *sin, std::int64_t half, float *y) {
#pragma omp simd
  for (std::int64_t j = 0; j < half; ++j) {
    const float low = x[j], high = x[j + half];
    y[j] = low * cos[j] + high * sin[j + half];
    y[j + half] = high * cos[j + half] - low * sin[j];
  }
}

} // namespace

void rotary(const Context &c, const RotaryShape &shape, const float *x, const float *cos, const float *sin, float *y) {
  const std::int64_t vectors = shape.dims[0] * shape.dims[1] * shape.dims[2], width = shape.width;
  const auto turn = shape.transposed ? rotateBack : rotate;
  const std::int64_t grain = std::max<std::int64_t>(1, minElements / std::max<std::int64_t>(1, width));
  parallelFor(c, vectors, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t table = i / (shape.dims[1] * shape.dims[2]) * shape.tableStrides[0] +
                                 i / shape.dims[2] % shape.dims[1] * shape.tableStrides[1] +
                                 i % shape.dims[2] * shape.tableStrides[2];
      turn(x + i * width, cos + table, sin + table, width / 2, y + i * width);
    }
  });
}

} // namespace fsdpc::rt

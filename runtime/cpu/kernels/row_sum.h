// Sums of updates of one row of a table, as scatter_add and scatter_rows compute them.
#pragma once

#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/scratch_sizes.h"

#include <algorithm>
#include <cstdint>

namespace fsdpc::rt {

/// out[k] = the sum of updates[places[i] * inner + k] for k < width, for more updates than a tree has terms.
inline void addManyUpdates(const std::int32_t *places, std::int64_t count, const float *updates, std::int64_t inner,
                           std::int64_t width, float *out) {
  constexpr std::int64_t strip = 256;
  double sums[strip];
  for (std::int64_t start = 0; start < width; start += strip) {
    const std::int64_t columns = std::min(strip, width - start);
    std::fill_n(sums, columns, 0.0);
    std::int64_t i = 0;
    const auto update = [&](std::int64_t row) { return updates + places[i + row] * inner + start; };
    for (; i + treeRows <= count; i += treeRows) {
      const float *rows[treeRows];
      for (std::int64_t row = 0; row < treeRows; ++row)
        rows[row] = update(row);
#pragma omp simd
      for (std::int64_t k = 0; k < columns; ++k)
        sums[k] += static_cast<double>(treeOf([&](std::int64_t row) { return rows[row][k]; }));
    }
    for (; i < count; ++i) {
      const float *const row = update(0);
#pragma omp simd
      for (std::int64_t k = 0; k < columns; ++k)
        sums[k] += static_cast<double>(row[k]);
    }
    for (std::int64_t k = 0; k < columns; ++k)
      out[start + k] = static_cast<float>(sums[k]);
  }
}

/// The same for any number of updates of a row of `inner` elements, width <= 256: what scatter_add stores. Few updates
/// are added in f32, in their order; those of a narrow row in f64.
inline void sumUpdates(const std::int32_t *places, std::int64_t count, const float *updates, std::int64_t inner,
                       std::int64_t width, float *out) {
  if (inner > scratch_sizes::narrowRow && count > treeRows)
    return addManyUpdates(places, count, updates, inner, width, out);
  if (inner > scratch_sizes::narrowRow) {
    std::fill_n(out, width, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const float *const update = updates + places[i] * inner;
#pragma omp simd
      for (std::int64_t k = 0; k < width; ++k)
        out[k] += update[k];
    }
    return;
  }
  double sums[scratch_sizes::narrowRow] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < width; ++k)
      sums[k] += static_cast<double>(updates[places[i] * inner + k]);
  for (std::int64_t k = 0; k < width; ++k)
    out[k] = static_cast<float>(sums[k]);
}

} // namespace fsdpc::rt

#include "runtime/cpu/kernels/rows.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/index_range.h"
#include "runtime/cpu/kernels/row_sum.h"

#include <bit>
#include <cstring>
#include <utility>

namespace fsdpc::rt {

namespace {

constexpr std::int64_t strip = 256; ///< columns that are summed at once

/// The positions of the indices of this rank's rows, row by row, ascending. ends[row] is the end of a row's positions,
/// which begin at the end of those of the row before it.
struct OwnPlaces {
  std::int32_t *ends, *places;

  template <class Index>
  OwnPlaces(const RowsShape &shape, std::int64_t first, const Index *indices, std::int32_t *scratch)
      : ends(scratch), places(scratch + shape.own) {
    const auto ownRow = [&](std::int64_t i) {
      const std::int64_t row = position(indices[i], shape.size) - first;
      return row >= 0 && row < shape.own ? row : -1;
    };
    std::fill_n(ends, shape.own, 0);
    for (std::int64_t i = 0; i < shape.count; ++i)
      if (const std::int64_t row = ownRow(i); row >= 0)
        ++ends[row];
    std::int32_t begin = 0;
    for (std::int64_t row = 0; row < shape.own; ++row)
      begin += std::exchange(ends[row], begin);
    for (std::int64_t i = 0; i < shape.count; ++i)
      if (const std::int64_t row = ownRow(i); row >= 0)
        places[ends[row]++] = static_cast<std::int32_t>(i);
  }
};

/// The sum over ranks of the updates of one row, for `width` <= strip columns of it.
class RowSum {
public:
  RowSum(const RowsShape &shape, const float *updates, std::int64_t width)
      : shape(shape), perRank(shape.count / shape.ranks), updates(updates), width(width) {}

  /// Over the ranks [first, first + ranks), whose updates are at the positions [begin, end). No sum is -0, so a rank
  /// without updates can be left out.
  void into(float *out, const std::int32_t *begin, const std::int32_t *end, std::int64_t first,
            std::int64_t ranks) const {
    if (ranks == 1)
      return sumUpdates(begin, end - begin, updates, shape.inner, width, out);
    const auto left = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks - 1)));
    const std::int32_t *const middle = std::lower_bound(begin, end, (first + left) * perRank);
    if (middle == end)
      return into(out, begin, end, first, left);
    if (middle == begin)
      return into(out, begin, end, first + left, ranks - left);
    float right[strip];
    into(out, begin, middle, first, left);
    into(right, middle, end, first + left, ranks - left);
#pragma omp simd
    for (std::int64_t k = 0; k < width; ++k)
      out[k] += right[k];
  }

private:
  const RowsShape &shape;
  std::int64_t perRank;
  const float *updates;
  std::int64_t width;
};

} // namespace

template <class T, class Index>
void gatherRows(const Context &c, const RowsShape &shape, const T *shard, const Index *indices, T *answers) {
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
  constexpr T minusZero = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  const std::int64_t first = shape.firstOf(c.rank);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(shape.inner, 1));
  parallelFor(c, shape.count, grain, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = position(indices[i], shape.size) - first;
      T *const answer = answers + i * shape.inner;
      if (row >= 0 && row < shape.own)
        std::memcpy(answer, shard + row * shape.inner, sizeof(T) * static_cast<std::size_t>(shape.inner));
      else
        std::fill_n(answer, shape.inner, minusZero);
    }
  });
}

std::int64_t scatterRowsScratchBytes(const RowsShape &shape) {
  return scratch_sizes::scatterRowsBytes(shape.own, shape.count);
}

template <class Index>
void scatterRows(const Context &c, const RowsShape &shape, const Index *indices, const float *updates, float *x,
                 Workspace workspace) {
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
  if (workspace.bytes < scatterRowsScratchBytes(shape) || shape.count > INT32_MAX)
    throw Failure(ExitCode::internal, "scatter_rows has less scratch than it needs");
  const OwnPlaces own(shape, shape.firstOf(c.rank), indices, reinterpret_cast<std::int32_t *>(workspace.data));
  parallelFor(c, shape.own, 256, [=, &shape](std::int64_t begin, std::int64_t end) {
    std::memset(x + begin * shape.inner, 0, sizeof(float) * static_cast<std::size_t>((end - begin) * shape.inner));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t *const first = own.places + (row == 0 ? 0 : own.ends[row - 1]);
      const std::int32_t *const last = own.places + own.ends[row];
      for (std::int64_t start = 0; first != last && start < shape.inner; start += strip)
        RowSum(shape, updates + start, std::min(strip, shape.inner - start))
            .into(x + row * shape.inner + start, first, last, 0, shape.ranks);
    }
  });
}

FSDPC_ROWS(, std::int64_t)
FSDPC_ROWS(, std::int32_t)

} // namespace fsdpc::rt

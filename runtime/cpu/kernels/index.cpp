#include "runtime/cpu/kernels/index.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/index_range.h"
#include "runtime/cpu/kernels/row_sum.h"
#include "runtime/cpu/kernels/scratch_sizes.h"

namespace fsdpc::rt {

namespace {

template <class T>
void copyRow(const T *from, T *to, std::int64_t count) {
  if (count == 1)
    *to = *from;
  else
    std::memcpy(to, from, sizeof(T) * count);
}

/// True for rows so narrow that f64 sums of all rows cost less than finding the updates of one row.
bool isNarrow(const GatherShape &shape) { return shape.inner <= scratch_sizes::narrowRow; }

template <class Index>
void addNarrowRows(const GatherShape &shape, const Index *indices, const float *updates, float *x, double *sums) {
  const std::int64_t inner = shape.inner, elements = shape.size * inner;
  for (std::int64_t o = 0; o < shape.outer; ++o) {
    std::fill_n(sums, elements, 0.0);
    for (std::int64_t i = 0; i < shape.count; ++i, updates += inner) {
      double *const row = sums + position(indices[i], shape.size) * inner;
      for (std::int64_t k = 0; k < inner; ++k)
        row[k] += static_cast<double>(updates[k]);
    }
    for (std::int64_t j = 0; j < elements; ++j)
      x[o * elements + j] = static_cast<float>(sums[j]);
  }
}

/// The positions of the updates of rows that have more updates than a tree has terms. ends[row] is the end of a row's
/// positions, which begin at the end of those of the previous such row. For other rows it is `few`.
struct Places {
  static constexpr std::int32_t few = -1;
  std::int32_t *ends, *places;

  template <class Index>
  Places(const GatherShape &shape, const Index *indices, std::int32_t *scratch)
      : ends(scratch), places(scratch + shape.size) {
    std::fill_n(ends, shape.size, 0);
    for (std::int64_t i = 0; i < shape.count; ++i)
      ++ends[position(indices[i], shape.size)];
    std::int32_t begin = 0;
    for (std::int64_t row = 0; row < shape.size; ++row) {
      const std::int32_t count = ends[row];
      ends[row] = count <= treeRows ? few : begin;
      begin += count <= treeRows ? 0 : count;
    }
    for (std::int64_t i = 0; begin > 0 && i < shape.count; ++i) {
      std::int32_t &end = ends[position(indices[i], shape.size)];
      if (end != few)
        places[end++] = static_cast<std::int32_t>(i);
    }
  }
};

/// Adds the updates to elements [begin, end) of the rows of one table.
template <class Index>
void addColumns(const GatherShape &shape, const Places &places, const Index *indices, const float *updates,
                std::int64_t begin, std::int64_t end, float *table) {
  const std::int64_t inner = shape.inner, width = end - begin;
  for (std::int64_t row = 0; row < shape.size; ++row)
    std::memset(table + row * inner + begin, 0, sizeof(float) * static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const std::int64_t at = position(indices[i], shape.size);
    if (places.ends[at] != Places::few)
      continue;
    float *const row = table + at * inner;
    const float *const update = updates + i * inner;
#pragma omp simd
    for (std::int64_t k = begin; k < end; ++k)
      row[k] += update[k];
  }
  std::int32_t first = 0;
  for (std::int64_t row = 0; row < shape.size; ++row)
    if (const std::int32_t last = places.ends[row]; last != Places::few) {
      addManyUpdates(places.places + first, last - first, updates + begin, inner, width, table + row * inner + begin);
      first = last;
    }
}

/// Distributes columns over threads, so that one thread computes the sum of an element.
template <class Index>
void addRows(const Context &c, const GatherShape &shape, const Index *indices, const float *updates, float *x,
             std::int32_t *scratch) {
  const Places places(shape, indices, scratch);
  parallelFor(c, shape.inner, 64, [=, &shape, &places](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = 0; o < shape.outer; ++o)
      addColumns(shape, places, indices, updates + o * shape.count * shape.inner, begin, end,
                 x + o * shape.size * shape.inner);
  });
}

} // namespace

template <class T, class Index>
void gather(const Context &c, const GatherShape &shape, const T *x, const Index *indices, T *y) {
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(shape.inner, 1));
  parallelFor(c, shape.outer * shape.count, grain, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / shape.count * shape.size + position(indices[i % shape.count], shape.size);
      copyRow(x + row * shape.inner, y + i * shape.inner, shape.inner);
    }
  });
}

std::int64_t scatterAddScratchBytes(const GatherShape &shape) {
  return scratch_sizes::scatterAddBytes(shape.size, shape.count, shape.inner);
}

template <class T, class Index>
void scatterAdd(const Context &c, const GatherShape &shape, const Index *indices, const T *updates, T *x,
                Workspace workspace) {
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
  if constexpr (std::is_same_v<T, float>) {
    if (workspace.bytes < scatterAddScratchBytes(shape) || shape.count > INT32_MAX)
      throw Failure(ExitCode::internal, "scatter_add has less scratch than it needs");
    if (isNarrow(shape))
      addNarrowRows(shape, indices, updates, x, reinterpret_cast<double *>(workspace.data));
    else
      addRows(c, shape, indices, updates, x, reinterpret_cast<std::int32_t *>(workspace.data));
  } else {
    // Distributes columns over threads, so that one thread computes the sum of an element, in the order of the indices.
    parallelFor(c, shape.inner, 64, [=, &shape](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = 0; o < shape.outer; ++o) {
        T *const table = x + o * shape.size * shape.inner;
        for (std::int64_t i = 0; i < shape.size; ++i)
          std::memset(table + i * shape.inner + begin, 0, sizeof(T) * (end - begin));
        for (std::int64_t i = 0; i < shape.count; ++i) {
          T *const row = table + position(indices[i], shape.size) * shape.inner;
          const T *const update = updates + (o * shape.count + i) * shape.inner;
#pragma omp simd
          for (std::int64_t k = begin; k < end; ++k)
            row[k] = static_cast<T>(row[k] + update[k]);
        }
      }
    });
  }
}

template <class T, class Index>
void gatherNd(const Context &c, const GatherNdShape &shape, const T *x, const Index *indices, T *y) {
  checkTuples(shape, indices);
  const std::int64_t table = shape.rows();
  parallelFor(c, shape.batch * shape.count, 256, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = rowOfTuple(shape, indices + i * shape.depth);
      copyRow(x + (i / shape.count * table + row) * shape.inner, y + i * shape.inner, shape.inner);
    }
  });
}

FSDPC_INDEXING(, std::int64_t)
FSDPC_INDEXING(, std::int32_t)

} // namespace fsdpc::rt

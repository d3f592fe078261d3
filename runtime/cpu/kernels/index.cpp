#include "runtime/cpu/kernels/index.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"

#include <string>

namespace fsdpc::rt {

namespace {

/// All indices lie in [-size, size): looked at once, before any thread starts, so that the loops need not.
template <class Index>
void checkIndices(const Index *indices, std::int64_t count, std::int64_t step, std::int64_t size) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = indices[i * step];
    if (index < -size || index >= size)
      throw Failure(ExitCode::corrupt,
                    "index " + std::to_string(index) + " is outside an axis of " + std::to_string(size) + " elements");
  }
}

template <class Index>
std::int64_t position(Index index, std::int64_t size) {
  return index < 0 ? index + size : static_cast<std::int64_t>(index);
}

template <class T>
void copyRow(const T *from, T *to, std::int64_t count) {
  if (count == 1)
    *to = *from;
  else
    std::memcpy(to, from, sizeof(T) * count);
}

} // namespace

template <class T, class Index>
void gather(const Context &c, const GatherShape &shape, const T *x, const Index *indices, T *y) {
  checkIndices(indices, shape.count, 1, shape.size);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(shape.inner, 1));
  parallelFor(c, shape.outer * shape.count, grain, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / shape.count * shape.size + position(indices[i % shape.count], shape.size);
      copyRow(x + row * shape.inner, y + i * shape.inner, shape.inner);
    }
  });
}

template <class T, class Index>
void scatterAdd(const Context &c, const GatherShape &shape, const Index *indices, const T *updates, T *x) {
  checkIndices(indices, shape.count, 1, shape.size);
  // Threads share columns out, so that each element has its sum from one thread, in the order of the indices.
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

template <class T, class Index>
void gatherNd(const Context &c, const GatherNdShape &shape, const T *x, const Index *indices, T *y) {
  std::int64_t table = 1;
  for (int d = 0; d < shape.depth; ++d) {
    checkIndices(indices + d, shape.batch * shape.count, shape.depth, shape.dims[d]);
    table *= shape.dims[d];
  }
  parallelFor(c, shape.batch * shape.count, 256, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t row = 0;
      for (int d = 0; d < shape.depth; ++d)
        row = row * shape.dims[d] + position(indices[i * shape.depth + d], shape.dims[d]);
      copyRow(x + (i / shape.count * table + row) * shape.inner, y + i * shape.inner, shape.inner);
    }
  });
}

FSDPC_INDEXING(, std::int64_t)
FSDPC_INDEXING(, std::int32_t)

} // namespace fsdpc::rt

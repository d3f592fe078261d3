#include "runtime/cpu/kernels/index.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/index_range.h"

namespace fsdpc::rt {

namespace {

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
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
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
  checkIndices(indices, shape.count, 1, shape.size, shape.node);
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

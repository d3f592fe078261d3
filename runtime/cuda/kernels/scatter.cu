// Each thread has a column of one batch and every parts-th row of that batch. It walks all tuples of the batch and
// applies those that name one of its rows. So one thread changes an element, in the order of the tuples, without
// atomics or scratch. Threads of a warp have adjacent columns, or the same column, and so read the same indices.
// `parts` is large enough to fill the device if there are few columns.
#include "runtime/cuda/kernels/scatter.h"

#include "runtime/cuda/kernels/index_position.h"
#include "runtime/cuda/launch.h"

#include <type_traits>

namespace fsdpc::rt {

namespace {

constexpr unsigned threads = 256;

template <class T>
__device__ bool isNotANumber(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x;
  else
    return false;
}

template <class T>
__device__ T changed(Reduction reduction, T x, T update) {
  switch (reduction) {
  case Reduction::none: break;
  case Reduction::add: return static_cast<T>(x + update);
  case Reduction::mul: return static_cast<T>(x * update);
  case Reduction::max: return x < update || isNotANumber(update) ? update : x;
  case Reduction::min: return update < x || isNotANumber(update) ? update : x;
  }
  return update;
}

template <class T, class Index>
__global__ void changeRows(GatherNdShape shape, IndexFaults faults, Reduction reduction, std::int64_t rowsOfBatch,
                           std::int64_t parts, const Index *indices, const T *updates, T *y) {
  const std::int64_t tasks = shape.batch * parts * shape.inner, step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t task = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; task < tasks; task += step) {
    const std::int64_t column = task % shape.inner, part = task / shape.inner % parts;
    const std::int64_t batch = task / shape.inner / parts;
    const Index *const tuples = indices + batch * shape.count * shape.depth;
    for (std::int64_t i = 0; i < shape.count; ++i) {
      const std::int64_t row = rowOfTuple(shape, tuples + i * shape.depth, faults);
      if (row < 0 || row % parts != part)
        continue;
      T *const element = y + (batch * rowsOfBatch + row) * shape.inner + column;
      *element = changed(reduction, *element, updates[(batch * shape.count + i) * shape.inner + column]);
    }
  }
}

} // namespace

template <class T, class Index>
void scatterNd(const Context &c, const GatherNdShape &shape, Reduction reduction, const T *x, const Index *indices,
               const T *updates, T *y) {
  const std::int64_t elements = shape.batch * shape.rows() * shape.inner;
  if (elements == 0)
    return;
  checkCuda(cudaMemcpyAsync(y, x, static_cast<std::size_t>(elements) * sizeof(T), cudaMemcpyDeviceToDevice,
                            deviceOf(c).compute),
            "copy");
  if (shape.count == 0)
    return;
  const std::int64_t rows = shape.rows(), columns = shape.batch * shape.inner;
  const std::int64_t enough = std::int64_t{deviceOf(c).multiprocessors} * 2048;
  const std::int64_t parts = std::max<std::int64_t>(1, std::min({rows, shape.count, enough / columns}));
  launch(c, gridFor(c, columns * parts, threads), changeRows<T, Index>, shape, indexFaults(c, shape.node), reduction,
         rows, parts, indices, updates, y);
}

#define FSDPC_SCATTER_ND(T)                                                                                            \
  template void scatterNd(const Context &, const GatherNdShape &, Reduction, const T *, const std::int64_t *,          \
                          const T *, T *);                                                                             \
  template void scatterNd(const Context &, const GatherNdShape &, Reduction, const T *, const std::int32_t *,          \
                          const T *, T *);
FSDPC_SCATTER_ND(float)
FSDPC_SCATTER_ND(double)
FSDPC_SCATTER_ND(std::int64_t)
FSDPC_SCATTER_ND(std::int32_t)
FSDPC_SCATTER_ND(std::uint8_t)
FSDPC_SCATTER_ND(std::uint16_t)
FSDPC_SCATTER_ND(std::uint32_t)
FSDPC_SCATTER_ND(std::uint64_t)

} // namespace fsdpc::rt

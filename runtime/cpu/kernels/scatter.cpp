#include "runtime/cpu/kernels/scatter.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/index_range.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::rt {

namespace {

template <class T>
bool isNaN(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(x);
  else
    return false;
}

/// Calls change(element of y, update) for the columns of a batch that belong to one thread.
template <class T, class Index, class Change>
void changeColumns(const GatherNdShape &shape, const Index *indices, const T *updates, T *y, std::int64_t begin,
                   std::int64_t end, Change change) {
  for (std::int64_t i = 0; i < shape.count; ++i) {
    T *const row = y + rowOfTuple(shape, indices + i * shape.depth) * shape.inner;
    const T *const update = updates + i * shape.inner;
    for (std::int64_t k = begin; k < end; ++k)
      change(row[k], update[k]);
  }
}

/// Distributes the columns of all batches over threads, so that one thread changes an element, in the order of the
/// tuples.
template <class T, class Index, class Change>
void changeRows(const Context &c, const GatherNdShape &shape, const Index *indices, const T *updates, T *y,
                Change change) {
  parallelFor(c, shape.batch * shape.inner, 16, [=, &shape](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t batch = begin / shape.inner, first = begin - batch * shape.inner;
      const std::int64_t last = std::min(shape.inner, first + end - begin);
      changeColumns(shape, indices + batch * shape.count * shape.depth, updates + batch * shape.count * shape.inner,
                    y + batch * shape.rows() * shape.inner, first, last, change);
      begin += last - first;
    }
  });
}

} // namespace

template <class T, class Index>
void scatterNd(const Context &c, const GatherNdShape &shape, Reduction reduction, const T *x, const Index *indices,
               const T *updates, T *y) {
  checkTuples(shape, indices);
  const std::int64_t elements = shape.batch * shape.rows() * shape.inner;
  parallelFor(c, elements, 65536, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(y + begin, x + begin, sizeof(T) * static_cast<std::size_t>(end - begin));
  });
  const auto change = [&](auto how) { changeRows(c, shape, indices, updates, y, how); };
  switch (reduction) {
  case Reduction::none: return change([](T &element, T update) { element = update; });
  case Reduction::add: return change([](T &element, T update) { element = static_cast<T>(element + update); });
  case Reduction::mul: return change([](T &element, T update) { element = static_cast<T>(element * update); });
  case Reduction::max:
    return change([](T &element, T update) { element = element < update || isNaN(update) ? update : element; });
  case Reduction::min:
    return change([](T &element, T update) { element = update < element || isNaN(update) ? update : element; });
  }
}

FSDPC_SCATTERING()

} // namespace fsdpc::rt

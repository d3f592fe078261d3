// One thread per row keeps the k best positions in a heap, the worst on top, in the memory of the result.
#include "runtime/cpu/kernels/top_k.h"

#include "runtime/common/parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fsdpc::rt {

namespace {

template <class T>
bool isLarger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a > b || (std::isnan(a) && !std::isnan(b));
  else
    return a > b;
}

template <bool smallest, class T>
void choose(const TopKShape &shape, const T *x, T *values, std::int64_t *indices) {
  const auto comesFirst = [x](std::int64_t a, std::int64_t b) {
    const T first = smallest ? x[b] : x[a], second = smallest ? x[a] : x[b];
    return isLarger(first, second) || (!isLarger(second, first) && a < b);
  };
  std::int64_t *const end = indices + shape.k;
  std::iota(indices, end, std::int64_t{0});
  std::make_heap(indices, end, comesFirst);
  for (std::int64_t i = shape.k; i < shape.count; ++i)
    if (comesFirst(i, indices[0])) {
      std::pop_heap(indices, end, comesFirst);
      end[-1] = i;
      std::push_heap(indices, end, comesFirst);
    }
  std::sort_heap(indices, end, comesFirst);
  for (std::int64_t i = 0; i < shape.k; ++i)
    values[i] = x[indices[i]];
}

} // namespace

template <class T>
void topK(const Context &c, const TopKShape &shape, const T *x, T *values, std::int64_t *indices) {
  parallelFor(c, shape.rows, std::max<std::int64_t>(1, 4096 / shape.count),
              [=, &shape](std::int64_t begin, std::int64_t end) {
                for (std::int64_t row = begin; row < end; ++row) {
                  const T *const from = x + row * shape.count;
                  if (shape.smallest)
                    choose<true>(shape, from, values + row * shape.k, indices + row * shape.k);
                  else
                    choose<false>(shape, from, values + row * shape.k, indices + row * shape.k);
                }
              });
}

FSDPC_TOP_KS()

} // namespace fsdpc::rt

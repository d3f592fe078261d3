#include "runtime/cpu/kernels/reduce.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

template <class T>
constexpr T lowest() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
}
template <class T>
constexpr T highest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
}

/// A reduction: `Wide` carries over runs and rows, `merge` folds one value in.
template <class T>
struct Sum {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  static constexpr T empty = 0;
  static T merge(T a, T b) { return static_cast<T>(a + b); }
  static Wide widen(Wide a, Wide b) { return static_cast<Wide>(a + b); }
};
template <class T>
struct Product {
  using Wide = T;
  static constexpr T empty = 1;
  static T merge(T a, T b) { return static_cast<T>(a * b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
};
template <class T>
struct Maximum {
  using Wide = T;
  static constexpr T empty = lowest<T>();
  static T merge(T a, T b) { return scalar::max(a, b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
};
template <class T>
struct Minimum {
  using Wide = T;
  static constexpr T empty = highest<T>();
  static T merge(T a, T b) { return scalar::min(a, b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
};

/// Dims of one kind (kept or reduced) with their strides in x; adjacent ones of a kind are merged.
struct Dims {
  int rank = 0;
  std::int64_t dims[maxRank], strides[maxRank];
  std::int64_t count = 1;
  void append(std::int64_t dim, std::int64_t stride, bool adjacent) {
    count *= dim;
    if (rank > 0 && adjacent && strides[rank - 1] == dim * stride) {
      dims[rank - 1] *= dim;
      strides[rank - 1] = stride;
      return;
    }
    dims[rank] = dim;
    strides[rank++] = stride;
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t total = 0;
    for (int i = rank - 1; i > 0; --i) {
      total += index % dims[i] * strides[i];
      index /= dims[i];
    }
    return rank > 0 ? total + index * strides[0] : 0;
  }
};

/// The kept dims and the reduced dims, without the last dim, which is contiguous and has its own loop.
struct Plan {
  Dims kept, reduced;
  std::int64_t last = 1;
  bool lastReduced = true;
};

Plan planOf(const ReduceShape &shape) {
  Plan plan;
  int end = shape.rank;
  if (end > 0) {
    plan.lastReduced = shape.reduced[end - 1];
    while (end > 0 && (shape.reduced[end - 1] == plan.lastReduced || shape.dims[end - 1] == 1))
      plan.last *= shape.dims[--end];
  }
  std::int64_t strides[maxRank], stride = plan.last;
  for (int i = end - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape.dims[i];
  }
  for (int i = 0; i < end; ++i)
    (shape.reduced[i] ? plan.reduced : plan.kept)
        .append(shape.dims[i], strides[i], i > 0 && shape.reduced[i - 1] == shape.reduced[i]);
  return plan;
}

constexpr std::int64_t columnBlock = 256;

/// A separate function, so that short ranges do not pay for its registers.
template <class T>
[[gnu::noinline]] T sumLongRuns(const Plan &plan, const T *x) {
  if (plan.reduced.count == 1)
    return static_cast<T>(sumOf(plan.last, [x](std::int64_t i) { return x[i]; }));
  LongSum total;
  for (std::int64_t i = 0; i < plan.reduced.count; ++i) {
    const T *const run = x + plan.reduced.offset(i);
    total.add(0, plan.last, [run](std::int64_t j) { return run[j]; });
  }
  return static_cast<T>(total.total());
}

// For so few elements f64 costs no time, and it avoids rounding errors where they cancel, as in the derivative of a
// softmax.
constexpr std::int64_t fewElements = 64;

template <class R, class T>
typename R::Wide reduceShortRun(const T *x, std::int64_t count) {
  typename R::Wide total = R::empty;
  if constexpr (std::is_same_v<R, Sum<T>>) {
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i)
      total += static_cast<typename R::Wide>(x[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      total = R::merge(total, x[i]);
  }
  return total;
}

template <class R, class T>
T reduceRuns(const Plan &plan, const T *x) {
  if constexpr (std::is_same_v<R, Sum<T>> && std::is_floating_point_v<T>)
    if (plan.last > fewElements)
      return sumLongRuns(plan, x);
  typename R::Wide total = R::empty;
  for (std::int64_t i = 0; i < plan.reduced.count; ++i)
    total = R::widen(total, reduceShortRun<R>(x + plan.reduced.offset(i), plan.last));
  return static_cast<T>(total);
}

/// Reduces columns [first, first + columns) of the last dim over all reduced rows.
template <class R, class T>
void reduceColumns(const Plan &plan, const T *x, std::int64_t first, std::int64_t columns, T *out) {
  typename R::Wide total[columnBlock];
  for (std::int64_t j = 0; j < columns; ++j)
    total[j] = R::empty;
  std::int64_t i = 0;
  for (; i + treeRows <= plan.reduced.count; i += treeRows) {
    const T *rows[treeRows];
    for (std::int64_t row = 0; row < treeRows; ++row)
      rows[row] = x + plan.reduced.offset(i + row) + first;
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      total[j] = R::widen(total[j], treeOf([&](std::int64_t row) { return rows[row][j]; }, R::merge));
  }
  for (; i < plan.reduced.count; ++i) {
    const T *const row = x + plan.reduced.offset(i) + first;
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      total[j] = R::widen(total[j], row[j]);
  }
  for (std::int64_t j = 0; j < columns; ++j)
    out[j] = static_cast<T>(total[j]);
}

template <class R, class T>
void reduce(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  const Plan plan = planOf(shape);
  const std::int64_t work =
      std::max<std::int64_t>(1, plan.reduced.count * (plan.lastReduced ? plan.last : columnBlock));
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / work);
  if (plan.lastReduced)
    return parallelFor(c, plan.kept.count, grain, [&plan, x, out](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        out[i] = reduceRuns<R>(plan, x + plan.kept.offset(i));
    });
  const std::int64_t blocks = (plan.last + columnBlock - 1) / columnBlock;
  parallelFor(c, plan.kept.count * blocks, grain, [&plan, blocks, x, out](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / blocks, first = i % blocks * columnBlock;
      reduceColumns<R>(plan, x + plan.kept.offset(row), first, std::min(columnBlock, plan.last - first),
                       out + row * plan.last + first);
    }
  });
}

/// Sums batches of four elements independently, so that the total is the bottleneck for only one addition in four.
template <bool exclusive, class T>
void sumAlong(const T *x, std::int64_t count, std::int64_t step, T *out) {
  using Wide = typename Sum<T>::Wide;
  constexpr int batch = 4;
  Wide total = 0;
  std::int64_t k = 0;
  for (; k + batch <= count; k += batch) {
    Wide sums[batch + 1] = {};
    for (int i = 0; i < batch; ++i)
      sums[i + 1] = Sum<T>::widen(sums[i], x[(k + i) * step]);
    for (int i = 0; i < batch; ++i)
      out[(k + i) * step] = static_cast<T>(Sum<T>::widen(total, sums[exclusive ? i : i + 1]));
    total = Sum<T>::widen(total, sums[batch]);
  }
  for (; k < count; ++k) {
    const Wide before = total;
    total = Sum<T>::widen(total, x[k * step]);
    out[k * step] = static_cast<T>(exclusive ? before : total);
  }
}

} // namespace

template <class T>
void reduceSum(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Sum<T>>(c, shape, x, out);
}
template <class T>
void reduceMax(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Maximum<T>>(c, shape, x, out);
}
template <class T>
void reduceMin(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Minimum<T>>(c, shape, x, out);
}
template <class T>
void reduceProd(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Product<T>>(c, shape, x, out);
}

template <class T>
void argMax(const Context &c, const AxisShape &shape, const T *x, std::int64_t *out) {
  parallelFor(c, shape.outer * shape.inner, 256, [&shape, x, out](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T *const row = x + i / shape.inner * shape.count * shape.inner + i % shape.inner;
      std::int64_t best = 0;
      for (std::int64_t j = 1; j < shape.count; ++j) {
        const T value = row[j * shape.inner], largest = row[best * shape.inner];
        if (largest == largest && (value > largest || value != value))
          best = j;
      }
      out[i] = best;
    }
  });
}

template <class T>
void cumulativeSum(const Context &c, const AxisShape &shape, bool exclusive, bool reverse, const T *x, T *out) {
  parallelFor(c, shape.outer * shape.inner, 256, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i / shape.inner * shape.count * shape.inner + i % shape.inner;
      const std::int64_t last = first + (shape.count - 1) * shape.inner, step = reverse ? -shape.inner : shape.inner;
      const std::int64_t start = reverse ? last : first;
      if (exclusive)
        sumAlong<true>(x + start, shape.count, step, out + start);
      else
        sumAlong<false>(x + start, shape.count, step, out + start);
    }
  });
}

FSDPC_REDUCTIONS(, float)
FSDPC_REDUCTIONS(, double)
FSDPC_REDUCTIONS(, std::int64_t)
FSDPC_REDUCTIONS(, std::int32_t)
FSDPC_REDUCTIONS(, std::uint8_t)

} // namespace fsdpc::rt

#include "runtime/cpu/kernels/reduce.h"

#include "runtime/common/parallel.h"
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

/// A reduction: `Wide` carries over blocks, `run` reduces a contiguous block, `merge` folds one value in.
template <class T>
struct Sum {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  static constexpr T empty = 0;
  static T merge(T a, T b) { return static_cast<T>(a + b); }
  static Wide widen(Wide a, Wide b) { return static_cast<Wide>(a + b); }
  static Wide run(const T *x, std::int64_t count) { return count <= few ? sumOf<Wide>(x, count) : sumOf<T>(x, count); }

private:
  /// So few elements cost no time in f64, and where they cancel, as the derivative of a softmax does, nothing is left.
  static constexpr std::int64_t few = 64;
  template <class Total>
  static Total sumOf(const T *x, std::int64_t count) {
    Total total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i)
      total = static_cast<Total>(total + x[i]);
    return total;
  }
};
template <class Reduction, class T>
T mergeAll(const T *x, std::int64_t count) {
  T total = Reduction::empty;
  for (std::int64_t i = 0; i < count; ++i)
    total = Reduction::merge(total, x[i]);
  return total;
}
template <class T>
struct Product {
  using Wide = T;
  static constexpr T empty = 1;
  static T merge(T a, T b) { return static_cast<T>(a * b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
  static T run(const T *x, std::int64_t count) { return mergeAll<Product>(x, count); }
};
template <class T>
struct Maximum {
  using Wide = T;
  static constexpr T empty = lowest<T>();
  static T merge(T a, T b) { return scalar::max(a, b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
  static T run(const T *x, std::int64_t count) { return mergeAll<Maximum>(x, count); }
};
template <class T>
struct Minimum {
  using Wide = T;
  static constexpr T empty = highest<T>();
  static T merge(T a, T b) { return scalar::min(a, b); }
  static Wide widen(Wide a, T b) { return merge(a, b); }
  static T run(const T *x, std::int64_t count) { return mergeAll<Minimum>(x, count); }
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
    for (int i = rank - 1; i >= 0; --i) {
      total += index % dims[i] * strides[i];
      index /= dims[i];
    }
    return total;
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

constexpr std::int64_t runBlock = 4096; // elements summed before f64 takes over
constexpr std::int64_t rowBlock = 128;  // rows, likewise
constexpr std::int64_t columnBlock = 256;

template <class R, class T>
T reduceRuns(const Plan &plan, const T *x) {
  typename R::Wide total = R::empty;
  for (std::int64_t i = 0; i < plan.reduced.count; ++i) {
    const T *const run = x + plan.reduced.offset(i);
    for (std::int64_t begin = 0; begin < plan.last; begin += runBlock)
      total = R::widen(total, R::run(run + begin, std::min(runBlock, plan.last - begin)));
  }
  return static_cast<T>(total);
}

/// Columns [first, first + columns) of the last dim, over all reduced rows.
template <class R, class T>
void reduceColumns(const Plan &plan, const T *x, std::int64_t first, std::int64_t columns, T *out) {
  typename R::Wide total[columnBlock];
  T block[columnBlock];
  for (std::int64_t j = 0; j < columns; ++j)
    total[j] = R::empty;
  for (std::int64_t begin = 0; begin < plan.reduced.count; begin += rowBlock) {
    for (std::int64_t j = 0; j < columns; ++j)
      block[j] = R::empty;
    const std::int64_t end = std::min(plan.reduced.count, begin + rowBlock);
    for (std::int64_t i = begin; i < end; ++i) {
      const T *const row = x + plan.reduced.offset(i) + first;
#pragma omp simd
      for (std::int64_t j = 0; j < columns; ++j)
        block[j] = R::merge(block[j], row[j]);
    }
    for (std::int64_t j = 0; j < columns; ++j)
      total[j] = R::widen(total[j], block[j]);
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
      const std::int64_t start = i / shape.inner * shape.count * shape.inner + i % shape.inner;
      T total = 0;
      for (std::int64_t k = 0; k < shape.count; ++k) {
        const std::int64_t j = start + (reverse ? shape.count - 1 - k : k) * shape.inner;
        const T before = total, value = x[j];
        total = static_cast<T>(total + value);
        out[j] = exclusive ? before : total;
      }
    }
  });
}

FSDPC_REDUCTIONS(, float)
FSDPC_REDUCTIONS(, double)
FSDPC_REDUCTIONS(, std::int64_t)
FSDPC_REDUCTIONS(, std::int32_t)
FSDPC_REDUCTIONS(, std::uint8_t)

} // namespace fsdpc::rt

// Reductions. The host sorts the axes into kept and reduced ones, and merges adjacent axes of a kind, so that most
// shapes become rows [kept, reduced] or columns [reduced, kept]. The contiguous axis then decides:
//
//   the last axis is reduced   a team (block.h) per element of the result
//   the last axis is kept      blocks of columns x lanes: the lanes of a column share the reduced elements; a thread
//                              takes as many adjacent columns as it loads at a time
//
// Either way adjacent threads read adjacent elements, partial results are merged as trees, and the number of threads
// depends only on the shape. Other axes cost a few divisions per element.
#include "runtime/cuda/kernels/reduce.h"

#include "runtime/cuda/kernels/block.h"
#include "runtime/cuda/kernels/pack.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace fsdpc::rt {

namespace {

// ---- types and reductions

/// The type in which an element is computed.
template <class T>
using Computed = std::conditional_t<isHalf<T>, float, T>;

/// Reductions of values V: `Merge` joins two, `Wide` is the type in which partial results are merged.
template <class V>
struct Sum {
  using Wide = std::conditional_t<std::is_floating_point_v<V>, double, V>;
  using Merge = Plus;
  static constexpr V empty = 0;
};
template <class V>
struct Product {
  using Wide = V;
  using Merge = Times;
  static constexpr V empty = 1;
};
template <class V>
struct Maximum {
  using Wide = V;
  using Merge = Larger;
  static constexpr V empty =
      std::numeric_limits<V>::has_infinity ? -std::numeric_limits<V>::infinity() : std::numeric_limits<V>::min();
};
template <class V>
struct Minimum {
  using Wide = V;
  using Merge = Smaller;
  static constexpr V empty =
      std::numeric_limits<V>::has_infinity ? std::numeric_limits<V>::infinity() : std::numeric_limits<V>::max();
};

// ---- the axes

/// Axes of one kind, outermost first, with their strides in x.
struct Axes {
  int rank = 0;
  std::int64_t count = 1; ///< elements
  std::int64_t dims[maxRank] = {}, strides[maxRank] = {};

  void append(std::int64_t dim, std::int64_t stride) {
    count *= dim;
    if (rank > 0 && strides[rank - 1] == dim * stride) {
      dims[rank - 1] *= dim;
      strides[rank - 1] = stride;
      return;
    }
    dims[rank] = dim;
    strides[rank++] = stride;
  }

  /// Not inlined: few reductions need it, and inlining doubles the code to compile.
  __device__ __noinline__ std::int64_t offset(std::int64_t index) const {
    std::int64_t total = 0;
    for (int i = rank - 1; i > 0; --i) {
      const std::int64_t above = index / dims[i];
      total += (index - above * dims[i]) * strides[i];
      index = above;
    }
    return total + index * strides[0];
  }
};

/// For a result [kept, columns]. `columns` are contiguous in x too, and 1 if the last axis is reduced.
struct Plan {
  Axes kept, reduced;
  std::int64_t columns = 1;
};

Plan planOf(const ReduceShape &shape) {
  Plan plan;
  int end = shape.rank;
  for (; end > 0 && (!shape.reduced[end - 1] || shape.dims[end - 1] == 1); --end)
    plan.columns *= shape.dims[end - 1];
  std::int64_t strides[maxRank], stride = plan.columns;
  for (int i = end - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape.dims[i];
  }
  for (int i = 0; i < end; ++i)
    if (shape.dims[i] != 1)
      (shape.reduced[i] ? plan.reduced : plan.kept).append(shape.dims[i], strides[i]);
  return plan;
}

// ---- the kernels

constexpr std::int64_t runLength = 16;  ///< elements summed before they are added to a double
constexpr std::int64_t longRow = 65536; ///< rows at least this long use the largest block
constexpr unsigned longRowThreads = 1024;

/// Results of `width` adjacent columns.
template <class V, int width>
struct Columns {
  V values[width];

  /// Each value merged with `next` of its column.
  template <class Merge, class Next>
  __device__ void add(Merge merge, Next next) {
    for (int j = 0; j < width; ++j)
      values[j] = merge(values[j], next(j));
  }
};

template <class V, int width>
__device__ Columns<V, width> allColumns(V value) {
  Columns<V, width> columns;
  for (int j = 0; j < width; ++j)
    columns.values[j] = value;
  return columns;
}

/// Elements begin, begin + step, ... before `end`, in order, of `width` columns. Four loads are in flight at a time.
template <class Reduction, int width, class T, class Offset>
__device__ Columns<Computed<T>, width> reduceRun(const T *x, std::int64_t begin, std::int64_t end, std::int64_t step,
                                                 Offset offset) {
  using V = Computed<T>;
  constexpr int batch = 4;
  const typename Reduction::Merge merge;
  auto run = allColumns<V, width>(Reduction::empty);
  std::int64_t i = begin;
  for (; i + (batch - 1) * step < end; i += batch * step) {
    Pack<T, width> loaded[batch];
    for (int k = 0; k < batch; ++k)
      loaded[k] = loadPack<width>(x + offset(i + k * step));
    const auto value = [&](int k, int j) { return scalar::cast<V>(loaded[k].values[j]); };
    run.add(merge, [&](int j) { return merge(merge(value(0, j), value(1, j)), merge(value(2, j), value(3, j))); });
  }
  for (; i < end; i += step) {
    const Pack<T, width> loaded = loadPack<width>(x + offset(i));
    run.add(merge, [&](int j) { return scalar::cast<V>(loaded.values[j]); });
  }
  return run;
}

/// Elements first, first + step, ... of the reduced ones, of `width` columns from x on.
template <class Reduction, int width, class T>
__device__ Columns<typename Reduction::Wide, width> reduceShare(const T *x, const Axes &reduced, std::int64_t first,
                                                                std::int64_t step) {
  using Wide = typename Reduction::Wide;
  const auto along = [&](std::int64_t i) { return i * reduced.strides[0]; };
  const auto anywhere = [&](std::int64_t i) { return reduced.offset(i); };
  auto total = allColumns<Wide, width>(Reduction::empty);
  for (std::int64_t begin = first; begin < reduced.count; begin += runLength * step) {
    const std::int64_t limit = begin + runLength * step, end = limit < reduced.count ? limit : reduced.count;
    const auto run = reduced.rank > 1 ? reduceRun<Reduction, width>(x, begin, end, step, anywhere)
                                      : reduceRun<Reduction, width>(x, begin, end, step, along);
    total.add(typename Reduction::Merge{}, [&](int j) { return static_cast<Wide>(run.values[j]); });
  }
  return total;
}

template <class Reduction, class Team, class T, class R>
__global__ void __launch_bounds__(longRowThreads) reduceRows(const __grid_constant__ Plan plan, const T *x, R *out) {
  using Wide = typename Reduction::Wide;
  using Merge = typename Reduction::Merge;
  for (std::int64_t row = Team::firstRow(); row < plan.kept.count; row += Team::rowStep()) {
    const T *const first = x + plan.kept.offset(row);
    Wide total = reduceShare<Reduction, 1>(first, plan.reduced, Team::thread(), Team::threads()).values[0];
    total = Team::reduce(total, static_cast<Wide>(Reduction::empty), Merge{});
    if (Team::thread() == 0)
      out[row] = scalar::cast<R>(total);
  }
}

/// Each row of columns has `columnBlocks` blocks. A thread reduces `width` adjacent columns, a divisor of their number.
template <class Reduction, int width, class T, class R>
__global__ void __launch_bounds__(maxColumnThreads)
    reduceColumns(const __grid_constant__ Plan plan, std::int64_t columnBlocks, const T *x, R *out) {
  for (std::int64_t block = blockIdx.x; block < plan.kept.count * columnBlocks; block += gridDim.x) {
    const std::int64_t row = block / columnBlocks;
    const std::int64_t column = (block % columnBlocks * blockDim.x + threadIdx.x) * width;
    const bool exists = column < plan.columns;
    auto total = allColumns<typename Reduction::Wide, width>(Reduction::empty);
    if (exists)
      total = reduceShare<Reduction, width>(x + plan.kept.offset(row) + column, plan.reduced, threadIdx.y, blockDim.y);
    for (int j = 0; j < width; ++j) {
      const auto merged = mergeLanes(total.values[j], typename Reduction::Merge{});
      if (threadIdx.y == 0 && exists)
        out[row * plan.columns + column + j] = scalar::cast<R>(merged);
    }
  }
}

template <class Reduction, class T, class R>
void startRows(const Context &c, const Plan &plan, const T *x, R *out) {
  const std::int64_t rows = plan.kept.count, length = plan.reduced.count;
  const unsigned threads = length < longRow ? rowThreads : longRowThreads;
  if (length <= longestWarpRow)
    launch(c, gridFor(c, rows * warpLanes, rowThreads), reduceRows<Reduction, WarpTeam, T, R>, plan, x, out);
  else
    launch(c, gridFor(c, rows * threads, threads), reduceRows<Reduction, BlockTeam, T, R>, plan, x, out);
}

/// Columns x lanes of a block, for columns of `width` elements. Narrower blocks mean more blocks, which helps with few
/// columns, but a memory transaction is 32 bytes. Lanes beyond the reduced elements would be idle.
dim3 columnThreads(const Plan &plan, std::int64_t width, std::int64_t elementBytes) {
  constexpr std::int64_t enoughBlocks = 128, transactionBytes = 32, usualThreads = 256;
  const std::int64_t all = plan.columns / width;
  const auto blocks = [&](std::int64_t columns) { return (all + columns - 1) / columns * plan.kept.count; };
  std::int64_t columns = warpLanes, lanes = 1;
  while (columns / 2 * width * elementBytes >= transactionBytes && blocks(columns) < enoughBlocks)
    columns /= 2;
  while (columns / 2 >= all)
    columns /= 2;
  while (columns * lanes < maxColumnThreads && lanes < plan.reduced.count)
    lanes *= 2;
  while (columns * lanes < usualThreads && columns < all)
    columns *= 2;
  while (columns * lanes < warpLanes) // at least a warp
    lanes *= 2;
  return dim3(static_cast<unsigned>(columns), static_cast<unsigned>(lanes));
}

template <class Reduction, int width, class T, class R>
void startColumns(const Context &c, const Plan &plan, const T *x, R *out) {
  const dim3 threads = columnThreads(plan, width, sizeof(T));
  const std::int64_t ofBlock = std::int64_t{threads.x} * width, columnBlocks = (plan.columns + ofBlock - 1) / ofBlock;
  Grid grid = gridFor(c, plan.kept.count * columnBlocks, 1);
  grid.threads = threads;
  launch(c, grid, reduceColumns<Reduction, width, T, R>, plan, columnBlocks, x, out);
}

template <template <class> class Reduction, class T, class R>
void reduce(const Context &c, const ReduceShape &shape, const T *x, R *out) {
  constexpr int width = std::min<int>(8, 16 / sizeof(T)); // one load of a thread
  const Plan plan = planOf(shape);
  if (plan.kept.count * plan.columns == 0)
    return;
  if (plan.columns == 1)
    startRows<Reduction<Computed<T>>>(c, plan, x, out);
  else if (plan.columns % width == 0)
    startColumns<Reduction<Computed<T>>, width>(c, plan, x, out);
  else
    startColumns<Reduction<Computed<T>>, 1>(c, plan, x, out);
}

// ---- along an axis

/// The largest value so far and its position; -1: none yet. The position is a wide type to avoid padding (shuffleXor).
template <class T>
struct Best {
  using Value = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  Value value;
  std::int64_t index;
};

/// The larger, then the earlier one.
template <class T>
struct MergeBest {
  __device__ Best<T> operator()(const Best<T> &a, const Best<T> &b) const {
    if (a.index < 0 || b.index < 0)
      return a.index < 0 ? b : a;
    const bool aIsNaN = a.value != a.value, bIsNaN = b.value != b.value;
    if (aIsNaN == bIsNaN && (aIsNaN || a.value == b.value))
      return a.index < b.index ? a : b;
    return aIsNaN || a.value > b.value ? a : b;
  }
};

/// The best of elements first, first + step, ... of a line.
template <class T>
__device__ Best<T> bestOf(const T *line, std::int64_t count, std::int64_t stride, std::int64_t first,
                          std::int64_t step) {
  using Value = typename Best<T>::Value;
  Best<T> best{0, -1};
  for (std::int64_t j = first; j < count; j += step)
    best = MergeBest<T>{}(best, Best<T>{static_cast<Value>(scalar::cast<Computed<T>>(line[j * stride])), j});
  return best;
}

template <class Team, class T>
__global__ void argMaxOfRows(std::int64_t rows, std::int64_t count, const T *x, std::int64_t *out) {
  for (std::int64_t row = Team::firstRow(); row < rows; row += Team::rowStep()) {
    const Best<T> mine = bestOf(x + row * count, count, 1, Team::thread(), Team::threads());
    const Best<T> best = Team::reduce(mine, Best<T>{0, -1}, MergeBest<T>{});
    if (Team::thread() == 0)
      out[row] = best.index < 0 ? 0 : best.index;
  }
}

/// Calls visit(line, start) for every line of this thread, with its first element.
template <class Visit>
__device__ void forEachLine(const AxisShape &shape, Visit visit) {
  const std::int64_t inner = shape.inner, step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < shape.outer * inner; i += step)
    visit(i, i / inner * shape.count * inner + i % inner);
}

template <class T>
__global__ void argMaxOfLines(AxisShape shape, const T *x, std::int64_t *out) {
  forEachLine(shape, [&](std::int64_t line, std::int64_t start) {
    const Best<T> best = bestOf(x + start, shape.count, shape.inner, 0, 1);
    out[line] = best.index < 0 ? 0 : best.index;
  });
}

/// One thread handles a line, so its sums are the serial ones.
template <class T>
__global__ void sumAlong(AxisShape shape, bool exclusive, bool reverse, const T *x, T *out) {
  using V = Computed<T>;
  forEachLine(shape, [&](std::int64_t, std::int64_t start) {
    typename Sum<V>::Wide total = 0;
    for (std::int64_t k = 0; k < shape.count; ++k) {
      const std::int64_t at = start + (reverse ? shape.count - 1 - k : k) * shape.inner;
      const auto before = total;
      total = Plus{}(total, static_cast<typename Sum<V>::Wide>(scalar::cast<V>(x[at])));
      out[at] = scalar::cast<T>(exclusive ? before : total);
    }
  });
}

} // namespace

template <class T, class R>
void reduceSum(const Context &c, const ReduceShape &shape, const T *x, R *out) {
  reduce<Sum>(c, shape, x, out);
}
template <class T>
void reduceMax(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Maximum>(c, shape, x, out);
}
template <class T>
void reduceMin(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Minimum>(c, shape, x, out);
}
template <class T>
void reduceProd(const Context &c, const ReduceShape &shape, const T *x, T *out) {
  reduce<Product>(c, shape, x, out);
}

template <class T>
void argMax(const Context &c, const AxisShape &shape, const T *x, std::int64_t *out) {
  const std::int64_t lines = shape.outer * shape.inner;
  if (lines == 0)
    return;
  if (shape.inner != 1)
    launch(c, gridFor(c, lines), argMaxOfLines<T>, shape, x, out);
  else if (shape.count <= longestWarpRow)
    launch(c, gridFor(c, lines * warpLanes, rowThreads), argMaxOfRows<WarpTeam, T>, lines, shape.count, x, out);
  else
    launch(c, gridFor(c, lines * rowThreads, rowThreads), argMaxOfRows<BlockTeam, T>, lines, shape.count, x, out);
}

template <class T>
void cumulativeSum(const Context &c, const AxisShape &shape, bool exclusive, bool reverse, const T *x, T *out) {
  if (shape.outer * shape.count * shape.inner > 0)
    launch(c, gridFor(c, shape.outer * shape.inner), sumAlong<T>, shape, exclusive, reverse, x, out);
}

#define FSDPC_REDUCTIONS(T)                                                                                            \
  template void reduceSum(const Context &, const ReduceShape &, const T *, T *);                                       \
  template void reduceMax(const Context &, const ReduceShape &, const T *, T *);                                       \
  template void reduceMin(const Context &, const ReduceShape &, const T *, T *);                                       \
  template void reduceProd(const Context &, const ReduceShape &, const T *, T *);                                      \
  template void argMax(const Context &, const AxisShape &, const T *, std::int64_t *);                                 \
  template void cumulativeSum(const Context &, const AxisShape &, bool, bool, const T *, T *);
FSDPC_REDUCTIONS(float)
FSDPC_REDUCTIONS(double)
FSDPC_REDUCTIONS(Bfloat16)
FSDPC_REDUCTIONS(Float16)
FSDPC_REDUCTIONS(std::int64_t)
FSDPC_REDUCTIONS(std::int32_t)
FSDPC_REDUCTIONS(std::uint8_t)
template void reduceSum(const Context &, const ReduceShape &, const Bfloat16 *, float *);
template void reduceSum(const Context &, const ReduceShape &, const Float16 *, float *);

} // namespace fsdpc::rt

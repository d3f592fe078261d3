// Softmax, log-softmax and their derivatives have one form: a total over the line, then every element of the result
// from the same element of the operands and the total. A function is a struct that defines the total and how it is
// applied.
//
// Lines along the last axis are rows, with a team (block.h) each. Lines along another axis have a thread each: adjacent
// threads have adjacent lines, so their loads coalesce.
#include "runtime/cuda/kernels/softmax.h"

#include "runtime/cuda/kernels/block.h"

namespace fsdpc::rt {

namespace {

/// The total of both functions: the largest and the sum of exponentials, in one pass.
struct ForwardTotal {
  using Total = ShiftedSum;
  struct Finished {
    float largest, ofSum;
  };
  static constexpr bool hasSecond = false;
  static __device__ Total empty() { return noShiftedSum; }
  template <class Team>
  static __device__ Total reduced(const Total &total) {
    return reduceShifted<Team>(total);
  }
  template <int width>
  static __device__ void add(Total &total, const float (&x)[width], const float (&)[width]) {
    include(total, x);
  }
};
struct BackwardTotal {
  using Total = double;
  using Finished = float;
  static constexpr bool hasSecond = true;
  static __device__ Total empty() { return 0; }
  template <class Team>
  static __device__ Total reduced(Total total) {
    return Team::sum(total);
  }
  static __device__ Finished finish(Total total) { return static_cast<float>(total); }
};

struct Softmax : ForwardTotal {
  static __device__ Finished finish(const Total &total) {
    return {static_cast<float>(total.shift), static_cast<float>(1 / total.sum)};
  }
  static __device__ float apply(const Finished &total, float x, float) {
    return scalar::exp(x - total.largest) * total.ofSum;
  }
};

struct LogSoftmax : ForwardTotal {
  static __device__ Finished finish(const Total &total) {
    return {static_cast<float>(total.shift), scalar::log(static_cast<float>(total.sum))};
  }
  static __device__ float apply(const Finished &total, float x, float) { return x - total.largest - total.ofSum; }
};

struct SoftmaxGrad : BackwardTotal {
  template <int width>
  static __device__ void add(Total &total, const float (&y)[width], const float (&dy)[width]) {
    float products[width];
    for (int i = 0; i < width; ++i)
      products[i] = y[i] * dy[i];
    total += static_cast<double>(treeSum(products));
  }
  static __device__ float apply(float total, float y, float dy) { return y * (dy - total); }
};

struct LogSoftmaxGrad : BackwardTotal {
  template <int width>
  static __device__ void add(Total &total, const float (&)[width], const float (&dy)[width]) {
    total += static_cast<double>(treeSum(dy));
  }
  static __device__ float apply(float total, float y, float dy) { return dy - scalar::exp(y) * total; }
};

/// A pack of both operands. A function of one operand gets zeros for the other.
template <class Function, class T, class Pack, int width>
__device__ void loadBoth(const T *first, const T *second, Pack pack, float (&a)[width], float (&b)[width]) {
  load(first, pack, a);
  if constexpr (Function::hasSecond)
    load(second, pack, b);
  else
    for (int i = 0; i < width; ++i)
      b[i] = 0;
}

template <class Function, class T, class Pack>
__device__ void addPack(typename Function::Total &total, const T *first, const T *second, Pack pack) {
  float a[Pack::width], b[Pack::width];
  loadBoth<Function>(first, second, pack, a, b);
  Function::add(total, a, b);
}

template <class Function, class T, class Pack>
__device__ void writePack(const typename Function::Finished &total, const T *first, const T *second, Pack pack,
                          T *out) {
  float a[Pack::width], b[Pack::width];
  loadBoth<Function>(first, second, pack, a, b);
  for (int i = 0; i < Pack::width; ++i)
    a[i] = Function::apply(total, a[i], b[i]);
  store(a, out, pack);
}

/// The start of this row or line in `second`, which may be null.
template <class Function, class T>
__device__ const T *secondAt(const T *second, std::int64_t start) {
  return Function::hasSecond ? second + start : nullptr;
}

template <class Function, class Rows, class T>
__global__ void overRows(std::int64_t rows, std::int64_t count, const T *first, const T *second, T *out) {
  using Team = typename Rows::Team;
  for (std::int64_t row = Team::firstRow(); row < rows; row += Team::rowStep()) {
    const std::int64_t start = row * count;
    const T *const a = first + start, *const b = secondAt<Function>(second, start);
    typename Function::Total total = Function::empty();
    Rows::forEachPack(count, [&](auto pack) { addPack<Function>(total, a, b, pack); });
    const auto finished = Function::finish(Function::template reduced<Team>(total));
    Rows::forEachPack(count, [&](auto pack) { writePack<Function>(finished, a, b, pack, out + start); });
  }
}

template <class Function, class T>
__global__ void overLines(SoftmaxShape shape, const T *first, const T *second, T *out) {
  const std::int64_t inner = shape.inner, lines = shape.outer * inner, step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t line = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; line < lines; line += step) {
    const std::int64_t start = line / inner * shape.count * inner + line % inner;
    const T *const a = first + start, *const b = secondAt<Function>(second, start);
    typename Function::Total total = Function::empty();
    for (std::int64_t j = 0; j < shape.count; ++j)
      addPack<Function>(total, a, b, AlignedPack<1>{j * inner});
    const auto finished = Function::finish(total);
    for (std::int64_t j = 0; j < shape.count; ++j)
      writePack<Function>(finished, a, b, AlignedPack<1>{j * inner}, out + start);
  }
}

template <class Function, class T>
void overAxis(const Context &c, const SoftmaxShape &shape, const T *first, const T *second, T *out) {
  if (shape.outer * shape.count * shape.inner == 0)
    return;
  if (shape.inner != 1)
    return launch(c, gridFor(c, shape.outer * shape.inner), overLines<Function, T>, shape, first, second, out);
  const auto start = [&](auto rows, const Grid &grid) {
    launch(c, grid, overRows<Function, decltype(rows), T>, shape.outer, shape.count, first, second, out);
  };
  withRowGeometry(c, shape.outer, shape.count, start, first, second, out);
}

} // namespace

template <class T>
void softmax(const Context &c, const SoftmaxShape &shape, const T *x, T *y) {
  overAxis<Softmax>(c, shape, x, static_cast<const T *>(nullptr), y);
}
template <class T>
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const T *y, const T *dy, T *dx) {
  overAxis<SoftmaxGrad>(c, shape, y, dy, dx);
}
template <class T>
void logSoftmax(const Context &c, const SoftmaxShape &shape, const T *x, T *y) {
  overAxis<LogSoftmax>(c, shape, x, static_cast<const T *>(nullptr), y);
}
template <class T>
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const T *y, const T *dy, T *dx) {
  overAxis<LogSoftmaxGrad>(c, shape, y, dy, dx);
}

#define FSDPC_SOFTMAX(T)                                                                                               \
  template void softmax(const Context &, const SoftmaxShape &, const T *, T *);                                        \
  template void softmaxGrad(const Context &, const SoftmaxShape &, const T *, const T *, T *);                         \
  template void logSoftmax(const Context &, const SoftmaxShape &, const T *, T *);                                     \
  template void logSoftmaxGrad(const Context &, const SoftmaxShape &, const T *, const T *, T *);
FSDPC_SOFTMAX(float)
FSDPC_SOFTMAX(Bfloat16)
FSDPC_SOFTMAX(Float16)

} // namespace fsdpc::rt

// Layer normalisation and RMS normalisation. RMS is the same without mean and beta: `centered` distinguishes them.
//
// A team (block.h) handles a row. The derivative has two parts that traverse the matrix in different directions. dx
// needs sums along rows: again a team per row. dgamma and dbeta need sums along columns: blocks of columns x lanes each
// sum a chunk of rows into the workspace, and a second kernel sums the chunks. This part runs first, since dx may
// overwrite dy.
#include "runtime/cuda/kernels/norm.h"

#include "runtime/common/failure.h"
#include "runtime/cuda/kernels/block.h"
#include "runtime/cuda/kernels/scratch_sizes.h"

#include <algorithm>

namespace fsdpc::rt {

namespace {

template <class T>
struct Forward {
  NormShape shape;
  const T *x, *gamma, *beta, *residual;
  T *y;
  float *mean, *rstd;
  T *sum; ///< if there is a residual
};

template <class T>
__device__ float roundedTo(float value) {
  return static_cast<float>(static_cast<T>(value));
}

/// A pack of the row that is normalised, at its first read. Adds the residual. A thread later reads back what it stores
/// here.
template <class T, class Pack>
__device__ void readFirst(const Forward<T> &f, std::int64_t row, const Pack &pack, float (&values)[Pack::width]) {
  const std::int64_t start = row * f.shape.columns;
  load(f.x + start, pack, values);
  if (!f.residual)
    return;
  float residual[Pack::width];
  load(f.residual + start, pack, residual);
  for (int i = 0; i < Pack::width; ++i)
    values[i] = roundedTo<T>(values[i] + residual[i]);
  store(values, f.sum + start, pack);
}

/// `read(pack, values)` reads the row.
template <class Rows, class Read>
__device__ double sumOfRow(std::int64_t columns, Read read) {
  double sum = 0;
  Rows::forEachPack(columns, [&](auto pack) {
    float values[pack.width];
    read(pack, values);
    sum += static_cast<double>(treeSum(values));
  });
  return Rows::Team::sum(sum);
}

template <class Rows, class Read>
__device__ double sumOfSquares(std::int64_t columns, float mean, Read read) {
  double sum = 0;
  Rows::forEachPack(columns, [&](auto pack) {
    float values[pack.width];
    read(pack, values);
    for (int i = 0; i < pack.width; ++i)
      values[i] = (values[i] - mean) * (values[i] - mean);
    sum += static_cast<double>(treeSum(values));
  });
  return Rows::Team::sum(sum);
}

template <bool centered, class Rows, class T, class Read>
__device__ void writeNormalized(const Forward<T> &f, std::int64_t row, float mean, float rstd, Read read) {
  const std::int64_t columns = f.shape.columns;
  Rows::forEachPack(columns, [&](auto pack) {
    float values[pack.width], gamma[pack.width], beta[pack.width] = {};
    read(pack, values);
    load(f.gamma, pack, gamma);
    if constexpr (centered)
      load(f.beta, pack, beta);
    for (int i = 0; i < pack.width; ++i) {
      const float scaled = (values[i] - mean) * rstd * gamma[i];
      values[i] = centered ? scaled + beta[i] : scaled;
    }
    store(values, f.y + row * columns, pack);
  });
}

template <bool centered, class Rows, class T>
__global__ void normalizeRows(Forward<T> f) {
  using Team = typename Rows::Team;
  const std::int64_t columns = f.shape.columns;
  for (std::int64_t row = Team::firstRow(); row < f.shape.rows; row += Team::rowStep()) {
    const T *const x = (f.residual ? f.sum : f.x) + row * columns;
    const auto first = [&](const auto &pack, auto &values) { readFirst(f, row, pack, values); };
    const auto again = [&](const auto &pack, auto &values) { load(x, pack, values); };
    float mean = 0;
    double squares;
    if constexpr (centered) {
      mean = static_cast<float>(sumOfRow<Rows>(columns, first) / static_cast<double>(columns));
      squares = sumOfSquares<Rows>(columns, mean, again);
    } else {
      squares = sumOfSquares<Rows>(columns, mean, first);
    }
    const float rstd = static_cast<float>(1.0 / sqrt(squares / static_cast<double>(columns) + f.shape.epsilon));
    writeNormalized<centered, Rows>(f, row, mean, rstd, again);
    if (Team::thread() == 0) {
      f.rstd[row] = rstd;
      if constexpr (centered)
        f.mean[row] = mean;
    }
  }
}

template <class T>
struct Backward {
  NormShape shape;
  const T *dy, *x, *gamma;
  const float *mean, *rstd;
  const T *addend; ///< null: none
  T *dx;
};

/// Of a row of dy * gamma: the sum, and the sum weighted by the normalized x.
struct RowGradientSums {
  double plain, weighted;
};
struct AddRowGradientSums {
  __device__ RowGradientSums operator()(const RowGradientSums &a, const RowGradientSums &b) const {
    return {a.plain + b.plain, a.weighted + b.weighted};
  }
};

template <class Rows, class T>
__device__ RowGradientSums rowGradientSums(const Backward<T> &b, std::int64_t row, float mean, float rstd) {
  RowGradientSums sums{0, 0};
  const std::int64_t columns = b.shape.columns, start = row * columns;
  Rows::forEachPack(columns, [&](auto pack) {
    float x[pack.width], dy[pack.width], gamma[pack.width];
    load(b.x + start, pack, x);
    load(b.dy + start, pack, dy);
    load(b.gamma, pack, gamma);
    for (int i = 0; i < pack.width; ++i) {
      dy[i] *= gamma[i];
      x[i] = dy[i] * ((x[i] - mean) * rstd);
    }
    sums.plain += static_cast<double>(treeSum(dy));
    sums.weighted += static_cast<double>(treeSum(x));
  });
  return Rows::Team::reduce(sums, RowGradientSums{0, 0}, AddRowGradientSums{});
}

/// dx = rstd * (dy * gamma - average(dy * gamma) - normalized x * average(dy * gamma * normalized x)); without a mean
/// the first average is dropped. An addend is added after rounding to T.
template <bool centered, class Rows, class T>
__global__ void inputGradient(Backward<T> b) {
  using Team = typename Rows::Team;
  const std::int64_t columns = b.shape.columns;
  for (std::int64_t row = Team::firstRow(); row < b.shape.rows; row += Team::rowStep()) {
    const std::int64_t start = row * columns;
    const float mean = centered ? b.mean[row] : 0.0f, rstd = b.rstd[row];
    const RowGradientSums sums = rowGradientSums<Rows>(b, row, mean, rstd);
    const double count = static_cast<double>(columns);
    const float average = centered ? static_cast<float>(sums.plain / count) : 0.0f;
    const float weightedAverage = static_cast<float>(sums.weighted / count);
    Rows::forEachPack(columns, [&](auto pack) {
      float x[pack.width], dy[pack.width], gamma[pack.width];
      load(b.x + start, pack, x);
      load(b.dy + start, pack, dy);
      load(b.gamma, pack, gamma);
      for (int i = 0; i < pack.width; ++i)
        dy[i] = rstd * (dy[i] * gamma[i] - average - (x[i] - mean) * rstd * weightedAverage);
      if (b.addend) {
        load(b.addend + start, pack, x);
        for (int i = 0; i < pack.width; ++i)
          dy[i] = roundedTo<T>(dy[i]) + x[i];
      }
      store(dy, b.dx + start, pack);
    });
  }
}

// ---- dgamma and dbeta

constexpr int columnLanes = 8;                              ///< threads that share a column of a block
constexpr int columnWidth = scratch_sizes::normColumnWidth; ///< columns of a thread
static_assert(scratch_sizes::normBlockColumns == warpLanes * columnWidth);

std::int64_t chunksOf(const NormShape &shape) { return scratch_sizes::normGradChunks(shape.rows, shape.columns); }

/// partial[chunk] = the chunk's dgamma and, if centered, its dbeta.
template <bool centered, int width, class T>
__global__ void sumChunk(Backward<T> b, float *partial) {
  const std::int64_t columns = b.shape.columns, rows = b.shape.rows;
  const std::int64_t column = (std::int64_t{blockIdx.x} * warpLanes + threadIdx.x) * width;
  const std::int64_t chunk = blockIdx.y, chunks = gridDim.y, end = rows * (chunk + 1) / chunks;
  double dgamma[width] = {}, dbeta[width] = {};
  float runGamma[width] = {}, runBeta[width] = {};
  const auto widen = [&] {
    for (int i = 0; i < width; ++i) {
      dgamma[i] += static_cast<double>(runGamma[i]);
      dbeta[i] += static_cast<double>(runBeta[i]);
      runGamma[i] = runBeta[i] = 0;
    }
  };
  int added = 0;
  if (column < columns)
    for (std::int64_t row = rows * chunk / chunks + threadIdx.y; row < end; row += columnLanes) {
      const float mean = centered ? b.mean[row] : 0.0f, rstd = b.rstd[row];
      float x[width], dy[width];
      load(b.x + row * columns, AlignedPack<width>{column}, x);
      load(b.dy + row * columns, AlignedPack<width>{column}, dy);
      for (int i = 0; i < width; ++i) {
        runGamma[i] += dy[i] * ((x[i] - mean) * rstd);
        runBeta[i] += dy[i];
      }
      if (++added % floatTerms == 0)
        widen();
    }
  widen();
  float *const out = partial + chunk * columns * (centered ? 2 : 1) + column;
  const bool writes = threadIdx.y == 0 && column < columns;
  for (int i = 0; i < width; ++i) {
    const double gammaSum = mergeLanes(dgamma[i], Plus{});
    if (writes)
      out[i] = static_cast<float>(gammaSum);
    if constexpr (centered) {
      const double betaSum = mergeLanes(dbeta[i], Plus{});
      if (writes)
        out[columns + i] = static_cast<float>(betaSum);
    }
  }
}

/// The sums over chunks of `width` floats: the first `columns` are dgamma, the others dbeta.
template <class G>
__global__ void sumChunks(const float *partial, std::int64_t chunks, std::int64_t width, std::int64_t columns,
                          G *dgamma, G *dbeta) {
  const std::int64_t i = std::int64_t{blockIdx.x} * warpLanes + threadIdx.x;
  double sum = 0;
  if (i < width)
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += columnLanes)
      sum += static_cast<double>(partial[chunk * width + i]);
  sum = mergeLanes(sum, Plus{});
  if (threadIdx.y == 0 && i < width)
    (i < columns ? dgamma[i] : dbeta[i - columns]) = static_cast<G>(static_cast<float>(sum));
}

Grid columnGrid(std::int64_t columns, std::int64_t chunks, int width) {
  const std::int64_t ofBlock = std::int64_t{warpLanes} * width;
  return {dim3(static_cast<unsigned>((columns + ofBlock - 1) / ofBlock), static_cast<unsigned>(chunks)),
          dim3(warpLanes, columnLanes)};
}

template <bool centered, class T, class G>
void parameterGradients(const Context &c, const Backward<T> &b, G *dgamma, G *dbeta, float *partial) {
  const std::int64_t columns = b.shape.columns, chunks = chunksOf(b.shape), width = columns * (centered ? 2 : 1);
  if (columns == 0)
    return;
  if (arePacked<columnWidth>(columns, b.dy, b.x))
    launch(c, columnGrid(columns, chunks, columnWidth), sumChunk<centered, columnWidth, T>, b, partial);
  else
    launch(c, columnGrid(columns, chunks, 1), sumChunk<centered, 1, T>, b, partial);
  launch(c, columnGrid(width, 1, 1), sumChunks<G>, partial, chunks, width, columns, dgamma, dbeta);
}

// ---- both norms

template <bool centered, class T>
void forward(const Context &c, const Forward<T> &f) {
  if (f.shape.rows == 0)
    return;
  const auto start = [&](auto rows, const Grid &grid) {
    launch(c, grid, normalizeRows<centered, decltype(rows), T>, f);
  };
  withRowGeometry(c, f.shape.rows, f.shape.columns, start, f.x, f.y, f.gamma, centered ? f.beta : f.gamma, f.residual,
                  f.sum);
}

template <bool centered, class T, class G>
void backward(const Context &c, const Backward<T> &b, G *dgamma, G *dbeta, Workspace workspace) {
  parameterGradients<centered>(c, b, dgamma, dbeta, reinterpret_cast<float *>(workspace.data));
  if (b.shape.rows == 0 || b.shape.columns == 0)
    return;
  const auto start = [&](auto rows, const Grid &grid) {
    launch(c, grid, inputGradient<centered, decltype(rows), T>, b);
  };
  withRowGeometry(c, b.shape.rows, b.shape.columns, start, b.dy, b.x, b.gamma, b.dx, b.addend);
}

} // namespace

template <class T>
void layerNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *beta, const T *residual,
               T *y, float *mean, float *rstd, T *sum) {
  forward<true>(c, Forward<T>{shape, x, gamma, beta, residual, y, mean, rstd, sum});
}

std::int64_t layerNormGradScratchBytes(const NormShape &shape) {
  return scratch_sizes::normGradBytes(shape.rows, shape.columns, 2);
}

template <class T, class G>
void layerNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *mean,
                   const float *rstd, const T *addend, T *dx, G *dgamma, G *dbeta, Workspace workspace) {
  if (workspace.bytes < layerNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "layer_norm_grad has less scratch than it needs");
  backward<true>(c, Backward<T>{shape, dy, x, gamma, mean, rstd, addend, dx}, dgamma, dbeta, workspace);
}

template <class T>
void rmsNorm(const Context &c, const NormShape &shape, const T *x, const T *gamma, const T *residual, T *y, float *rstd,
             T *sum) {
  forward<false>(c, Forward<T>{shape, x, gamma, nullptr, residual, y, nullptr, rstd, sum});
}

std::int64_t rmsNormGradScratchBytes(const NormShape &shape) {
  return scratch_sizes::normGradBytes(shape.rows, shape.columns, 1);
}

template <class T, class G>
void rmsNormGrad(const Context &c, const NormShape &shape, const T *dy, const T *x, const T *gamma, const float *rstd,
                 const T *addend, T *dx, G *dgamma, Workspace workspace) {
  if (workspace.bytes < rmsNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "rms_norm_grad has less scratch than it needs");
  backward<false>(c, Backward<T>{shape, dy, x, gamma, nullptr, rstd, addend, dx}, dgamma, static_cast<G *>(nullptr),
                  workspace);
}

#define FSDPC_NORM(T)                                                                                                  \
  template void layerNorm(const Context &, const NormShape &, const T *, const T *, const T *, const T *, T *,         \
                          float *, float *, T *);                                                                      \
  template void rmsNorm(const Context &, const NormShape &, const T *, const T *, const T *, T *, float *, T *);
#define FSDPC_NORM_GRAD(T, G)                                                                                          \
  template void layerNormGrad(const Context &, const NormShape &, const T *, const T *, const T *, const float *,      \
                              const float *, const T *, T *, G *, G *, Workspace);                                     \
  template void rmsNormGrad(const Context &, const NormShape &, const T *, const T *, const T *, const float *,        \
                            const T *, T *, G *, Workspace);
FSDPC_NORM(float)
FSDPC_NORM(Bfloat16)
FSDPC_NORM(Float16)
FSDPC_NORM_GRAD(float, float)
FSDPC_NORM_GRAD(Bfloat16, Bfloat16)
FSDPC_NORM_GRAD(Bfloat16, float)
FSDPC_NORM_GRAD(Float16, Float16)
FSDPC_NORM_GRAD(Float16, float)

} // namespace fsdpc::rt

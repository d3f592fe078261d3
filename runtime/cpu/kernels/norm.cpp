#include "runtime/cpu/kernels/norm.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/scratch_sizes.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

using scratch_sizes::gradientParts; // independent of the number of threads

/// Returns the row to normalise: x, or x + residual if there is one, which is stored in `sum`.
const float *addResidual(const float *x, const float *residual, std::int64_t columns, float *sum) {
  if (!residual)
    return x;
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    sum[j] = x[j] + residual[j];
  return sum;
}

/// dx[j] = slope(j), plus addend[j] if there is one.
template <class Slope>
void writeGradients(const float *addend, std::int64_t columns, float *dx, Slope slope) {
  if (addend) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      dx[j] = slope(j) + addend[j];
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      dx[j] = slope(j);
  }
}

/// Row i of a matrix, or null if there is none.
template <class T>
T *rowOf(T *matrix, std::int64_t i, std::int64_t columns) {
  return matrix ? matrix + i * columns : nullptr;
}

/// 1 / sqrt(squares / columns + epsilon)
float reciprocalDeviation(double squares, std::int64_t columns, double epsilon) {
  return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(columns) + epsilon));
}

void normalizeRow(const float *x, const float *gamma, const float *beta, std::int64_t columns, double epsilon, float *y,
                  float *meanOut, float *rstdOut) {
  const double sum = sumOf(columns, [x](std::int64_t j) { return x[j]; });
  const float mean = static_cast<float>(sum / static_cast<double>(columns));
  const double squares = sumOf(columns, [x, mean](std::int64_t j) { return (x[j] - mean) * (x[j] - mean); });
  const float rstd = reciprocalDeviation(squares, columns, epsilon);
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
  *meanOut = mean;
  *rstdOut = rstd;
}

/// The number of columns of a row whose gradients are added in f32 before they are added to an f64 sum.
constexpr std::int64_t rowBlock = 256;

void normalizeRowGrad(const float *dy, const float *x, const float *gamma, std::int64_t columns, float mean, float rstd,
                      const float *addend, float *dx, float *dgamma, float *dbeta) {
  double sum = 0, weighted = 0;
  for (std::int64_t begin = 0; begin < columns; begin += rowBlock) {
    float ofBlock = 0, weightedOfBlock = 0;
    const std::int64_t end = std::min(columns, begin + rowBlock);
#pragma omp simd reduction(+ : ofBlock, weightedOfBlock)
    for (std::int64_t j = begin; j < end; ++j) {
      const float normalized = (x[j] - mean) * rstd;
      const float slope = dy[j] * gamma[j];
      ofBlock += slope;
      weightedOfBlock += slope * normalized;
      dgamma[j] += dy[j] * normalized;
      dbeta[j] += dy[j];
    }
    sum += static_cast<double>(ofBlock);
    weighted += static_cast<double>(weightedOfBlock);
  }
  const double share = 1 / static_cast<double>(columns); // multiplication has a shorter latency than division
  const float average = static_cast<float>(sum * share), weightedAverage = static_cast<float>(weighted * share);
  writeGradients(addend, columns, dx, [=](std::int64_t j) {
    return rstd * (dy[j] * gamma[j] - average - (x[j] - mean) * rstd * weightedAverage);
  });
}

void scaleRow(const float *x, const float *gamma, std::int64_t columns, double epsilon, float *y, float *rstdOut) {
  const double squares = sumOf(columns, [x](std::int64_t j) { return x[j] * x[j]; });
  const float rstd = reciprocalDeviation(squares, columns, epsilon);
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    y[j] = x[j] * rstd * gamma[j];
  *rstdOut = rstd;
}

void scaleRowGrad(const float *dy, const float *x, const float *gamma, std::int64_t columns, float rstd,
                  const float *addend, float *dx, float *dgamma) {
  double weighted = 0;
  for (std::int64_t begin = 0; begin < columns; begin += rowBlock) {
    float ofBlock = 0;
    const std::int64_t end = std::min(columns, begin + rowBlock);
#pragma omp simd reduction(+ : ofBlock)
    for (std::int64_t j = begin; j < end; ++j) {
      const float normalized = x[j] * rstd;
      ofBlock += dy[j] * gamma[j] * normalized;
      dgamma[j] += dy[j] * normalized;
    }
    weighted += static_cast<double>(ofBlock);
  }
  const double share = 1 / static_cast<double>(columns);
  const float weightedAverage = static_cast<float>(weighted * share);
  writeGradients(addend, columns, dx,
                 [=](std::int64_t j) { return rstd * (dy[j] * gamma[j] - x[j] * rstd * weightedAverage); });
}

/// out[j] = parts[0][j] + parts[1][j] + ...
void sumParts(const double *parts, std::int64_t count, std::int64_t stride, std::int64_t columns, float *out) {
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j) {
    double sum = parts[j];
    for (std::int64_t part = 1; part < count; ++part)
      sum += parts[part * stride + j];
    out[j] = static_cast<float>(sum);
  }
}

/// The number of rows that are added in f32 before they are added to an f64 sum.
constexpr std::int64_t gradientRows = 16;

/// Calls row(i, sums) for every row, in order within a part. It adds to `width` sums, which are reset to zero every
/// gradientRows rows. Returns the totals of all parts: [gradientParts, width].
template <class Row>
const double *forEachPart(const Context &c, std::int64_t rows, std::int64_t width, Workspace workspace, Row row) {
  double *const totals = reinterpret_cast<double *>(workspace.data);
  float *const sums = reinterpret_cast<float *>(totals + gradientParts * width);
  parallelFor(c, gradientParts, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      double *const total = totals + part * width;
      float *const own = sums + part * width;
      std::fill_n(total, width, 0.0);
      std::fill_n(own, width, 0.0f);
      const std::int64_t first = rows * part / gradientParts, last = rows * (part + 1) / gradientParts;
      for (std::int64_t i = first; i < last; ++i) {
        row(i, own);
        if ((i - first) % gradientRows != gradientRows - 1 && i != last - 1)
          continue;
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j) {
          total[j] += static_cast<double>(own[j]);
          own[j] = 0;
        }
      }
    }
  });
  return totals;
}

/// The distance between neighbours of a row. `Dense`: the softmax axis is the last one, the fast case.
struct Dense {
  constexpr std::int64_t operator*(std::int64_t j) const { return j; }
};
struct Strided {
  std::int64_t distance;
  std::int64_t operator*(std::int64_t j) const { return distance * j; }
};

template <class Step>
float maximumOf(const float *x, std::int64_t count, Step step) {
  float largest = -scalar::infinity;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j)
    largest = x[step * j] > largest ? x[step * j] : largest;
  return largest;
}

/// y = exp(x - largest); returns the sum.
template <class Step>
double writeExponentials(const float *x, float *y, std::int64_t count, float largest, Step step) {
  if (count <= shortSum) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) {
      const float value = scalar::exp(x[step * j] - largest);
      y[step * j] = value;
      sum += value;
    }
    return static_cast<double>(sum);
  }
  constexpr std::int64_t block = 1024; // small enough that the exponentials stay in the first-level cache
  LongSum sum;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t end = std::min(count, begin + block);
#pragma omp simd
    for (std::int64_t j = begin; j < end; ++j)
      y[step * j] = scalar::exp(x[step * j] - largest);
    sum.add(begin, end, [=](std::int64_t j) { return y[step * j]; });
  }
  return sum.total();
}

struct Softmax {
  template <class Step>
  void operator()(const float *x, const float *, float *y, std::int64_t count, Step step) const {
    const float largest = maximumOf(x, count, step);
    const float factor = 1 / static_cast<float>(writeExponentials(x, y, count, largest, step));
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      y[step * j] *= factor;
  }
};

struct LogSoftmax {
  template <class Step>
  void operator()(const float *x, const float *, float *y, std::int64_t count, Step step) const {
    const float largest = maximumOf(x, count, step);
    const double sum = sumOfExponentials(x, count, largest, [step](std::int64_t j) { return step * j; });
    const float logOfSum = std::log(static_cast<float>(sum));
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      y[step * j] = x[step * j] - largest - logOfSum;
  }
};

struct SoftmaxGrad {
  template <class Step>
  void operator()(const float *y, const float *dy, float *dx, std::int64_t count, Step step) const {
    const float sum = static_cast<float>(sumOf(count, [=](std::int64_t j) { return y[step * j] * dy[step * j]; }));
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      dx[step * j] = y[step * j] * (dy[step * j] - sum);
  }
};

struct LogSoftmaxGrad {
  template <class Step>
  void operator()(const float *y, const float *dy, float *dx, std::int64_t count, Step step) const {
    const float sum = static_cast<float>(sumOf(count, [=](std::int64_t j) { return dy[step * j]; }));
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      dx[step * j] = dy[step * j] - scalar::exp(y[step * j]) * sum;
  }
};

/// Calls `row` for every row of [outer, count, inner].
template <class Row>
void forEachRow(const Context &c, const SoftmaxShape &shape, const float *a, const float *b, float *out, Row row) {
  const std::int64_t count = shape.count, inner = shape.inner, rows = shape.outer * inner;
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(count, 1));
  parallelFor(c, rows, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t start = inner == 1 ? i * count : i / inner * count * inner + i % inner;
      const float *const second = b ? b + start : nullptr;
      if (inner == 1)
        row(a + start, second, out + start, count, Dense{});
      else
        row(a + start, second, out + start, count, Strided{inner});
    }
  });
}

} // namespace

void layerNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *beta,
               const float *residual, float *y, float *mean, float *rstd, float *sum) {
  const std::int64_t columns = shape.columns;
  const double epsilon = shape.epsilon;
  parallelFor(c, shape.rows, 16, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float *const row =
          addResidual(x + i * columns, rowOf(residual, i, columns), columns, rowOf(sum, i, columns));
      normalizeRow(row, gamma, beta, columns, epsilon, y + i * columns, mean + i, rstd + i);
    }
  });
}

std::int64_t layerNormGradScratchBytes(const NormShape &shape) {
  return scratch_sizes::normGradBytes(shape.columns, 2);
}

void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                   const float *mean, const float *rstd, const float *addend, float *dx, float *dgamma, float *dbeta,
                   Workspace workspace) {
  const std::int64_t columns = shape.columns, rows = shape.rows;
  if (workspace.bytes < layerNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "layer_norm_grad has less scratch than it needs");
  const double *const sums = forEachPart(c, rows, 2 * columns, workspace, [=](std::int64_t i, float *part) {
    normalizeRowGrad(dy + i * columns, x + i * columns, gamma, columns, mean[i], rstd[i], rowOf(addend, i, columns),
                     dx + i * columns, part, part + columns);
  });
  sumParts(sums, gradientParts, 2 * columns, columns, dgamma);
  sumParts(sums + columns, gradientParts, 2 * columns, columns, dbeta);
}

void rmsNorm(const Context &c, const NormShape &shape, const float *x, const float *gamma, const float *residual,
             float *y, float *rstd, float *sum) {
  const std::int64_t columns = shape.columns;
  const double epsilon = shape.epsilon;
  parallelFor(c, shape.rows, 16, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float *const row =
          addResidual(x + i * columns, rowOf(residual, i, columns), columns, rowOf(sum, i, columns));
      scaleRow(row, gamma, columns, epsilon, y + i * columns, rstd + i);
    }
  });
}

std::int64_t rmsNormGradScratchBytes(const NormShape &shape) { return scratch_sizes::normGradBytes(shape.columns, 1); }

void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                 const float *rstd, const float *addend, float *dx, float *dgamma, Workspace workspace) {
  const std::int64_t columns = shape.columns;
  if (workspace.bytes < rmsNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "rms_norm_grad has less scratch than it needs");
  const double *const sums = forEachPart(c, shape.rows, columns, workspace, [=](std::int64_t i, float *part) {
    scaleRowGrad(dy + i * columns, x + i * columns, gamma, columns, rstd[i], rowOf(addend, i, columns),
                 dx + i * columns, part);
  });
  sumParts(sums, gradientParts, columns, columns, dgamma);
}

void softmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y) {
  forEachRow(c, shape, x, nullptr, y, Softmax{});
}
void softmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx) {
  forEachRow(c, shape, y, dy, dx, SoftmaxGrad{});
}
void logSoftmax(const Context &c, const SoftmaxShape &shape, const float *x, float *y) {
  forEachRow(c, shape, x, nullptr, y, LogSoftmax{});
}
void logSoftmaxGrad(const Context &c, const SoftmaxShape &shape, const float *y, const float *dy, float *dx) {
  forEachRow(c, shape, y, dy, dx, LogSoftmaxGrad{});
}

} // namespace fsdpc::rt

#include "runtime/cpu/kernels/norm.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

/// dgamma and dbeta are summed in so many parts of the rows, whatever the number of threads.
constexpr std::int64_t gradientParts = 16;

/// The row that is normalised: x, or x + residual if there is one, which is stored in `sum`.
const float *addResidual(const float *x, const float *residual, std::int64_t columns, float *sum) {
  if (!residual)
    return x;
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    sum[j] = x[j] + residual[j];
  return sum;
}

/// dx[j] = slope(j), with addend[j] if there is one.
template <class Slope>
void writeSlopes(const float *addend, std::int64_t columns, float *dx, Slope slope) {
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

void normalizeRow(const float *x, const float *gamma, const float *beta, std::int64_t columns, double epsilon, float *y,
                  float *meanOut, float *rstdOut) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < columns; ++j)
    sum += x[j];
  const float mean = sum / static_cast<float>(columns);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < columns; ++j) {
    const float centered = x[j] - mean;
    squares += centered * centered;
  }
  const float rstd =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares) / static_cast<double>(columns) + epsilon));
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
  *meanOut = mean;
  *rstdOut = rstd;
}

void normalizeRowGrad(const float *dy, const float *x, const float *gamma, std::int64_t columns, float mean, float rstd,
                      const float *addend, float *dx, float *dgamma, float *dbeta) {
  float sum = 0, weighted = 0;
#pragma omp simd reduction(+ : sum, weighted)
  for (std::int64_t j = 0; j < columns; ++j) {
    const float normalized = (x[j] - mean) * rstd;
    const float slope = dy[j] * gamma[j];
    sum += slope;
    weighted += slope * normalized;
    dgamma[j] += dy[j] * normalized;
    dbeta[j] += dy[j];
  }
  const float average = sum / static_cast<float>(columns), weightedAverage = weighted / static_cast<float>(columns);
  writeSlopes(addend, columns, dx, [=](std::int64_t j) {
    return rstd * (dy[j] * gamma[j] - average - (x[j] - mean) * rstd * weightedAverage);
  });
}

void scaleRow(const float *x, const float *gamma, std::int64_t columns, double epsilon, float *y, float *rstdOut) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < columns; ++j)
    squares += x[j] * x[j];
  const float rstd =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares) / static_cast<double>(columns) + epsilon));
#pragma omp simd
  for (std::int64_t j = 0; j < columns; ++j)
    y[j] = x[j] * rstd * gamma[j];
  *rstdOut = rstd;
}

void scaleRowGrad(const float *dy, const float *x, const float *gamma, std::int64_t columns, float rstd,
                  const float *addend, float *dx, float *dgamma) {
  float weighted = 0;
#pragma omp simd reduction(+ : weighted)
  for (std::int64_t j = 0; j < columns; ++j) {
    const float normalized = x[j] * rstd;
    weighted += dy[j] * gamma[j] * normalized;
    dgamma[j] += dy[j] * normalized;
  }
  const float weightedAverage = weighted / static_cast<float>(columns);
  writeSlopes(addend, columns, dx,
              [=](std::int64_t j) { return rstd * (dy[j] * gamma[j] - x[j] * rstd * weightedAverage); });
}

/// out[j] = parts[0][j] + parts[1][j] + ...
void sumParts(const float *parts, std::int64_t count, std::int64_t stride, std::int64_t columns, float *out) {
  std::memcpy(out, parts, sizeof(float) * columns);
  for (std::int64_t part = 1; part < count; ++part) {
    const float *const from = parts + part * stride;
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      out[j] += from[j];
  }
}

/// Calls `row(i, sums)` for every row, in order within a part; each part has sums of its own, zero at first.
template <class Row>
void forEachPart(const Context &c, std::int64_t rows, float *sums, std::int64_t width, Row row) {
  parallelFor(c, gradientParts, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      float *const own = sums + part * width;
      std::memset(own, 0, sizeof(float) * width);
      for (std::int64_t i = rows * part / gradientParts; i < rows * (part + 1) / gradientParts; ++i)
        row(i, own);
    }
  });
}

/// The distance between neighbours of a row: `Dense` where the softmax axis is the last one, which is what is fast.
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

struct Softmax {
  template <class Step>
  void operator()(const float *x, const float *, float *y, std::int64_t count, Step step) const {
    const float largest = maximumOf(x, count, step);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) {
      const float value = scalar::exp(x[step * j] - largest);
      y[step * j] = value;
      sum += value;
    }
    const float factor = 1 / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      y[step * j] *= factor;
  }
};

struct LogSoftmax {
  template <class Step>
  void operator()(const float *x, const float *, float *y, std::int64_t count, Step step) const {
    const float largest = maximumOf(x, count, step);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j)
      sum += scalar::exp(x[step * j] - largest);
    const float logOfSum = std::log(sum);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      y[step * j] = x[step * j] - largest - logOfSum;
  }
};

struct SoftmaxGrad {
  template <class Step>
  void operator()(const float *y, const float *dy, float *dx, std::int64_t count, Step step) const {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j)
      sum += y[step * j] * dy[step * j];
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      dx[step * j] = y[step * j] * (dy[step * j] - sum);
  }
};

struct LogSoftmaxGrad {
  template <class Step>
  void operator()(const float *y, const float *dy, float *dx, std::int64_t count, Step step) const {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j)
      sum += dy[step * j];
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
  return gradientParts * 2 * shape.columns * static_cast<std::int64_t>(sizeof(float));
}

void layerNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                   const float *mean, const float *rstd, const float *addend, float *dx, float *dgamma, float *dbeta,
                   Workspace workspace) {
  const std::int64_t columns = shape.columns, rows = shape.rows;
  float *const sums = reinterpret_cast<float *>(workspace.data);
  if (workspace.bytes < layerNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "layer_norm_grad has less scratch than it needs");
  forEachPart(c, rows, sums, 2 * columns, [=](std::int64_t i, float *part) {
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

std::int64_t rmsNormGradScratchBytes(const NormShape &shape) {
  return gradientParts * shape.columns * static_cast<std::int64_t>(sizeof(float));
}

void rmsNormGrad(const Context &c, const NormShape &shape, const float *dy, const float *x, const float *gamma,
                 const float *rstd, const float *addend, float *dx, float *dgamma, Workspace workspace) {
  const std::int64_t columns = shape.columns;
  float *const sums = reinterpret_cast<float *>(workspace.data);
  if (workspace.bytes < rmsNormGradScratchBytes(shape))
    throw Failure(ExitCode::internal, "rms_norm_grad has less scratch than it needs");
  forEachPart(c, shape.rows, sums, columns, [=](std::int64_t i, float *part) {
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

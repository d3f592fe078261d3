// One thread per element of the result, in both directions. Forward, it walks its window. Backward, an element of dx
// walks the windows that may contain it, in ascending order, and gathers its share of each. Nothing is scattered, so
// there are no atomics and the order of summation is fixed. Adjacent threads have overlapping windows, which the caches
// serve.
#include "runtime/cuda/kernels/pool.h"

#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

FSDPC_HOST_DEVICE std::int64_t volume(const std::int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

/// The coordinates of an element of x or y.
struct Position {
  std::int64_t plane, at[3];
};

__device__ Position positionOf(const std::int64_t (&dims)[3], std::int64_t flat) {
  const std::int64_t row = flat / dims[2], slice = row / dims[1], plane = slice / dims[0];
  return {plane, {slice - plane * dims[0], row - slice * dims[1], flat - row * dims[2]}};
}

/// The kernel positions of one output coordinate that are inside the input: taps [first, last), tap t reads start + t *
/// dilation.
struct Taps {
  std::int64_t first, last, start;
};

__device__ Taps tapsOf(const PoolShape &shape, int axis, std::int64_t output) {
  const std::int64_t dilation = shape.dilations[axis];
  const std::int64_t start = output * shape.strides[axis] - shape.padsBefore[axis];
  const std::int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  return {first, scalar::min(shape.kernel[axis], (shape.input[axis] - 1 - start) / dilation + 1), start};
}

struct Window {
  Taps axes[3];
};

__device__ Window windowOf(const PoolShape &shape, const std::int64_t (&output)[3]) {
  return {{tapsOf(shape, 0, output[0]), tapsOf(shape, 1, output[1]), tapsOf(shape, 2, output[2])}};
}

/// visit(flat index within the input plane) for every element of a window, ascending.
template <class Visit>
__device__ void forEachElement(const PoolShape &shape, const Window &window, Visit &&visit) {
  const auto &[depth, rows, columns] = window.axes;
  for (std::int64_t k = depth.first; k < depth.last; ++k)
    for (std::int64_t i = rows.first; i < rows.last; ++i) {
      const std::int64_t slice = (depth.start + k * shape.dilations[0]) * shape.input[1];
      const std::int64_t row = (slice + rows.start + i * shape.dilations[1]) * shape.input[2];
      for (std::int64_t j = columns.first; j < columns.last; ++j)
        visit(row + columns.start + j * shape.dilations[2]);
    }
}

__device__ float divisorOf(const PoolShape &shape, const Window &window) {
  if (shape.countIncludePad)
    return static_cast<float>(volume(shape.kernel));
  std::int64_t count = 1;
  for (const Taps &taps : window.axes)
    count *= taps.last - taps.first;
  return static_cast<float>(count);
}

/// The output coordinates whose windows span an input coordinate: [first, last). With a dilation, some of them skip it.
struct Spans {
  std::int64_t first, last;
};

__device__ Spans spansOf(const PoolShape &shape, int axis, std::int64_t input) {
  const std::int64_t stride = shape.strides[axis], end = input + shape.padsBefore[axis];
  const std::int64_t begin = end - (shape.kernel[axis] - 1) * shape.dilations[axis];
  const std::int64_t first = begin <= 0 ? 0 : (begin + stride - 1) / stride;
  return {first, scalar::min(shape.output[axis], end / stride + 1)};
}

/// visit(coordinates of the output) for every window that spans an element of the input, ascending.
template <class Visit>
__device__ void forEachSpanning(const PoolShape &shape, const std::int64_t (&input)[3], Visit &&visit) {
  const Spans depth = spansOf(shape, 0, input[0]), rows = spansOf(shape, 1, input[1]),
              columns = spansOf(shape, 2, input[2]);
  std::int64_t output[3];
  for (output[0] = depth.first; output[0] < depth.last; ++output[0])
    for (output[1] = rows.first; output[1] < rows.last; ++output[1])
      for (output[2] = columns.first; output[2] < columns.last; ++output[2])
        visit(output);
}

__device__ std::int64_t flatIndex(const std::int64_t (&dims)[3], const std::int64_t (&at)[3]) {
  return (at[0] * dims[1] + at[1]) * dims[2] + at[2];
}

/// Whether a window that spans an input coordinate reads it.
__device__ bool reads(const PoolShape &shape, int axis, std::int64_t output, std::int64_t input) {
  return (input + shape.padsBefore[axis] - output * shape.strides[axis]) % shape.dilations[axis] == 0;
}

// ---- kernels

__global__ void maxOfWindows(PoolShape shape, std::int64_t count, const float *x, float *y, std::int32_t *indices) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Position position = positionOf(shape.output, i);
    const float *const plane = x + position.plane * volume(shape.input);
    float best = 0;
    std::int64_t at = -1;
    forEachElement(shape, windowOf(shape, position.at), [&](std::int64_t candidate) {
      const float value = plane[candidate];
      // A NaN that is the best stays; a later NaN replaces a number.
      if (at < 0 || (best == best && (value > best || value != value))) {
        best = value;
        at = candidate;
      }
    });
    y[i] = best;
    indices[i] = static_cast<std::int32_t>(at);
  }
}

__global__ void maxOfWindowsGrad(PoolShape shape, std::int64_t count, const float *dy, const std::int32_t *indices,
                                 float *dx) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Position position = positionOf(shape.input, i);
    const std::int64_t outputs = position.plane * volume(shape.output), self = flatIndex(shape.input, position.at);
    float sum = 0;
    forEachSpanning(shape, position.at, [&](const std::int64_t(&output)[3]) {
      const std::int64_t window = outputs + flatIndex(shape.output, output);
      if (indices[window] == self)
        sum += dy[window];
    });
    dx[i] = sum;
  }
}

__global__ void averageOfWindows(PoolShape shape, std::int64_t count, const float *x, float *y) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Position position = positionOf(shape.output, i);
    const float *const plane = x + position.plane * volume(shape.input);
    const Window window = windowOf(shape, position.at);
    double sum = 0; // a window may be an entire plane
    forEachElement(shape, window, [&](std::int64_t at) { sum += static_cast<double>(plane[at]); });
    y[i] = static_cast<float>(sum / static_cast<double>(divisorOf(shape, window)));
  }
}

__global__ void averageOfWindowsGrad(PoolShape shape, std::int64_t count, const float *dy, float *dx) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Position position = positionOf(shape.input, i);
    const std::int64_t outputs = position.plane * volume(shape.output);
    float sum = 0;
    forEachSpanning(shape, position.at, [&](const std::int64_t(&output)[3]) {
      for (int axis = 0; axis < 3; ++axis)
        if (!reads(shape, axis, output[axis], position.at[axis]))
          return;
      sum += dy[outputs + flatIndex(shape.output, output)] / divisorOf(shape, windowOf(shape, output));
    });
    dx[i] = sum;
  }
}

} // namespace

void maxPool(const Context &c, const PoolShape &shape, const float *x, float *y, std::int32_t *indices) {
  const std::int64_t count = shape.planes * volume(shape.output);
  if (count > 0)
    launch(c, gridFor(c, count), maxOfWindows, shape, count, x, y, indices);
}

void maxPoolGrad(const Context &c, const PoolShape &shape, const float *dy, const std::int32_t *indices, float *dx) {
  const std::int64_t count = shape.planes * volume(shape.input);
  if (count > 0)
    launch(c, gridFor(c, count), maxOfWindowsGrad, shape, count, dy, indices, dx);
}

void averagePool(const Context &c, const PoolShape &shape, const float *x, float *y) {
  const std::int64_t count = shape.planes * volume(shape.output);
  if (count > 0)
    launch(c, gridFor(c, count), averageOfWindows, shape, count, x, y);
}

void averagePoolGrad(const Context &c, const PoolShape &shape, const float *dy, float *dx) {
  const std::int64_t count = shape.planes * volume(shape.input);
  if (count > 0)
    launch(c, gridFor(c, count), averageOfWindowsGrad, shape, count, dy, dx);
}

} // namespace fsdpc::rt

#include "runtime/cpu/kernels/pool.h"

#include "runtime/common/parallel.h"

namespace fsdpc::rt {

namespace {

std::int64_t volume(const std::int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

/// The kernel positions of one output coordinate that are inside the input: taps [first, last). Tap t reads start + t *
/// dilation.
struct Taps {
  std::int64_t first, last, start;
};

Taps tapsOf(const PoolShape &shape, int axis, std::int64_t output) {
  const std::int64_t dilation = shape.dilations[axis], size = shape.input[axis], kernel = shape.kernel[axis];
  Taps taps;
  taps.start = output * shape.strides[axis] - shape.padsBefore[axis];
  taps.first = taps.start < 0 ? (-taps.start + dilation - 1) / dilation : 0;
  taps.last = std::min(kernel, (size - 1 - taps.start) / dilation + 1);
  return taps;
}

/// Calls visit(output index, taps of the three axes) for every output of a plane.
template <class Visit>
void forEachWindow(const PoolShape &shape, const Visit &visit) {
  std::int64_t index = 0;
  for (std::int64_t z = 0; z < shape.output[0]; ++z) {
    const Taps depth = tapsOf(shape, 0, z);
    for (std::int64_t y = 0; y < shape.output[1]; ++y) {
      const Taps rows = tapsOf(shape, 1, y);
      for (std::int64_t x = 0; x < shape.output[2]; ++x, ++index)
        visit(index, depth, rows, tapsOf(shape, 2, x));
    }
  }
}

/// Calls visit(flat index within the input plane) for every element of a window, ascending.
template <class Visit>
void forEachElement(const PoolShape &shape, const Taps &depth, const Taps &rows, const Taps &columns,
                    const Visit &visit) {
  for (std::int64_t k = depth.first; k < depth.last; ++k)
    for (std::int64_t i = rows.first; i < rows.last; ++i) {
      const std::int64_t row =
          ((depth.start + k * shape.dilations[0]) * shape.input[1] + rows.start + i * shape.dilations[1]) *
          shape.input[2];
      for (std::int64_t j = columns.first; j < columns.last; ++j)
        visit(row + columns.start + j * shape.dilations[2]);
    }
}

template <class Body>
void forEachPlane(const Context &c, const PoolShape &shape, const Body &body) {
  const std::int64_t work = std::max<std::int64_t>(1, volume(shape.output) * volume(shape.kernel));
  parallelFor(c, shape.planes, std::max<std::int64_t>(1, 8192 / work), [&body](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane)
      body(plane);
  });
}

float divisorOf(const PoolShape &shape, const Taps &depth, const Taps &rows, const Taps &columns) {
  if (shape.countIncludePad)
    return static_cast<float>(volume(shape.kernel));
  return static_cast<float>((depth.last - depth.first) * (rows.last - rows.first) * (columns.last - columns.first));
}

/// True for windows of 2 x 2 with stride 2 and without padding, which most networks have.
bool isHalving(const PoolShape &shape) {
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t wanted = axis == 0 ? 1 : 2;
    if (shape.kernel[axis] != wanted || (axis > 0 && shape.strides[axis] != 2) || shape.dilations[axis] != 1 ||
        shape.padsBefore[axis] != 0 || shape.output[axis] > shape.input[axis] / wanted)
      return false;
  }
  return shape.input[0] == 1;
}

/// Takes the value at `index` as the maximum if it is greater or the first NaN. Masks instead of conditions, because
/// GCC makes branches of those and leaves the loop scalar.
inline void considerElement(float value, std::int32_t index, float &best, std::int32_t &at) {
  const std::int32_t greater = !(value <= best) ? -1 : 0, number = best == best ? -1 : 0;
  const std::int32_t better = greater & number;
  best = better ? value : best;
  at = better ? index : at;
}

/// The maxima of `count` windows side by side whose upper rows start at `upper`, at flat index `first` of their plane.
[[gnu::always_inline]] inline void maxOfWindows(const float *upper, std::int64_t width, std::int32_t first,
                                                std::int64_t count, float *y, std::int32_t *indices) {
  const float *const lower = upper + width;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int32_t left = first + static_cast<std::int32_t>(2 * j), below = left + static_cast<std::int32_t>(width);
    float best = upper[2 * j];
    std::int32_t at = left;
    considerElement(upper[2 * j + 1], left + 1, best, at);
    considerElement(lower[2 * j], below, best, at);
    considerElement(lower[2 * j + 1], below + 1, best, at);
    y[j] = best;
    indices[j] = at;
  }
}

void maxPoolHalving(const PoolShape &shape, const float *x, float *y, std::int32_t *indices) {
  const std::int64_t width = shape.input[2], outputs = shape.output[2];
  for (std::int64_t row = 0; row < shape.output[1]; ++row) {
    const std::int64_t first = 2 * row * width;
    std::int64_t j = 0;
    const auto next = [&](std::int64_t count) {
      maxOfWindows(x + first + 2 * j, width, static_cast<std::int32_t>(first + 2 * j), count, y + row * outputs + j,
                   indices + row * outputs + j);
      j += count;
    };
    // Rows are short, so the length of a vector is a constant: a loop of unknown length leaves most of a row to
    // scalars.
    while (j + 8 <= outputs)
      next(8);
    if (j + 4 <= outputs)
      next(4);
    if (j < outputs)
      next(outputs - j);
  }
}

} // namespace

void maxPool(const Context &c, const PoolShape &shape, const float *x, float *y, std::int32_t *indices) {
  const std::int64_t inputs = volume(shape.input), outputs = volume(shape.output);
  const bool halving = isHalving(shape);
  forEachPlane(c, shape, [=, &shape](std::int64_t plane) {
    const float *const source = x + plane * inputs;
    if (halving)
      return maxPoolHalving(shape, source, y + plane * outputs, indices + plane * outputs);
    forEachWindow(shape, [&](std::int64_t index, const Taps &depth, const Taps &rows, const Taps &columns) {
      std::int64_t best = -1;
      forEachElement(shape, depth, rows, columns, [&](std::int64_t at) {
        if (best < 0 || (source[best] == source[best] && (source[at] > source[best] || source[at] != source[at])))
          best = at;
      });
      y[plane * outputs + index] = source[best];
      indices[plane * outputs + index] = static_cast<std::int32_t>(best);
    });
  });
}

void maxPoolGrad(const Context &c, const PoolShape &shape, const float *dy, const std::int32_t *indices, float *dx) {
  const std::int64_t inputs = volume(shape.input), outputs = volume(shape.output);
  forEachPlane(c, shape, [=](std::int64_t plane) {
    float *const destination = dx + plane * inputs;
    std::memset(destination, 0, sizeof(float) * inputs);
    for (std::int64_t i = plane * outputs; i < (plane + 1) * outputs; ++i)
      destination[indices[i]] += dy[i];
  });
}

void averagePool(const Context &c, const PoolShape &shape, const float *x, float *y) {
  const std::int64_t inputs = volume(shape.input), outputs = volume(shape.output);
  forEachPlane(c, shape, [=, &shape](std::int64_t plane) {
    const float *const source = x + plane * inputs;
    forEachWindow(shape, [&](std::int64_t index, const Taps &depth, const Taps &rows, const Taps &columns) {
      double sum = 0; // a window may be the entire plane
      forEachElement(shape, depth, rows, columns, [&](std::int64_t at) { sum += static_cast<double>(source[at]); });
      y[plane * outputs + index] = static_cast<float>(sum / divisorOf(shape, depth, rows, columns));
    });
  });
}

void averagePoolGrad(const Context &c, const PoolShape &shape, const float *dy, float *dx) {
  const std::int64_t inputs = volume(shape.input), outputs = volume(shape.output);
  forEachPlane(c, shape, [=, &shape](std::int64_t plane) {
    float *const destination = dx + plane * inputs;
    std::memset(destination, 0, sizeof(float) * inputs);
    forEachWindow(shape, [&](std::int64_t index, const Taps &depth, const Taps &rows, const Taps &columns) {
      const float share = dy[plane * outputs + index] / divisorOf(shape, depth, rows, columns);
      forEachElement(shape, depth, rows, columns, [&](std::int64_t at) { destination[at] += share; });
    });
  });
}

} // namespace fsdpc::rt

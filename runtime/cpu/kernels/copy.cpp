#include "runtime/cpu/kernels/copy.h"

#include "runtime/common/parallel.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace fsdpc::rt {

namespace {

constexpr std::int64_t conversionGrain = 16384; ///< elements per work item

/// Removes dims of size 1 and merges neighbours if both sides allow it. At least one dim remains.
CopyShape collapse(const CopyShape &shape) {
  CopyShape out;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i] == 1)
      continue;
    const int last = out.rank - 1;
    if (last >= 0 && out.fromStrides[last] == shape.fromStrides[i] * shape.dims[i] &&
        out.toStrides[last] == shape.toStrides[i] * shape.dims[i]) {
      out.dims[last] *= shape.dims[i];
      out.fromStrides[last] = shape.fromStrides[i];
      out.toStrides[last] = shape.toStrides[i];
      continue;
    }
    out.dims[out.rank] = shape.dims[i];
    out.fromStrides[out.rank] = shape.fromStrides[i];
    out.toStrides[out.rank++] = shape.toStrides[i];
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.dims[0] = 1;
  }
  return out;
}

void swapDims(CopyShape &shape, int a, int b) {
  std::swap(shape.dims[a], shape.dims[b]);
  std::swap(shape.fromStrides[a], shape.fromStrides[b]);
  std::swap(shape.toStrides[a], shape.toStrides[b]);
}

template <class T>
void copyRow(std::int64_t count, const T *from, std::int64_t fromStride, T *to, std::int64_t toStride) {
  if (fromStride == 1 && toStride == 1)
    std::memcpy(to, from, sizeof(T) * count);
  else if (fromStride == 0 && toStride == 1)
    std::fill(to, to + count, *from);
  else
    for (std::int64_t i = 0; i < count; ++i)
      to[i * toStride] = from[i * fromStride];
}

/// Copies the last two dims. If one side is contiguous along the other side's rows, copies in square blocks that fit in
/// the first-level cache.
template <class T>
void copyPlane(const CopyShape &shape, const T *from, T *to) {
  const int y = shape.rank - 2, x = shape.rank - 1;
  const std::int64_t rows = shape.dims[y], columns = shape.dims[x];
  const bool transposes = shape.toStrides[x] == 1 && shape.fromStrides[y] == 1 && shape.fromStrides[x] != 0;
  const std::int64_t block = transposes ? 16 : columns;
  for (std::int64_t column = 0; column < columns; column += block)
    for (std::int64_t row = 0; row < rows; ++row)
      copyRow(std::min(block, columns - column), from + row * shape.fromStrides[y] + column * shape.fromStrides[x],
              shape.fromStrides[x], to + row * shape.toStrides[y] + column * shape.toStrides[x], shape.toStrides[x]);
}

} // namespace

template <class T>
void copyStrided(const Context &c, const CopyShape &given, const T *from, T *to) {
  CopyShape shape = collapse(given);
  for (int i = 0; i < shape.rank; ++i)
    if (shape.dims[i] == 0)
      return;
  if (shape.rank == 1)
    return copyRow(shape.dims[0], from, shape.fromStrides[0], to, shape.toStrides[0]);
  // If the source is contiguous along an axis other than the last, that axis becomes the second to last.
  if (shape.fromStrides[shape.rank - 1] != 1)
    for (int i = 0; i < shape.rank - 2; ++i)
      if (shape.fromStrides[i] == 1 && shape.dims[i] > 1)
        swapDims(shape, i, shape.rank - 2);
  std::int64_t planes = 1;
  for (int i = 0; i < shape.rank - 2; ++i)
    planes *= shape.dims[i];
  const std::int64_t planeElements = shape.dims[shape.rank - 1] * shape.dims[shape.rank - 2];
  parallelFor(c, planes, std::max<std::int64_t>(1, 16384 / planeElements),
              [&shape, from, to](std::int64_t begin, std::int64_t end) {
                for (std::int64_t plane = begin; plane < end; ++plane) {
                  const T *source = from;
                  T *destination = to;
                  std::int64_t rest = plane;
                  for (int i = shape.rank - 3; i >= 0; --i) {
                    source += rest % shape.dims[i] * shape.fromStrides[i];
                    destination += rest % shape.dims[i] * shape.toStrides[i];
                    rest /= shape.dims[i];
                  }
                  copyPlane(shape, source, destination);
                }
              });
}

template void copyStrided(const Context &, const CopyShape &, const std::uint8_t *, std::uint8_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint16_t *, std::uint16_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint32_t *, std::uint32_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint64_t *, std::uint64_t *);

void copyBytes(const Context &c, const void *from, void *to, std::int64_t bytes) {
  if (from == to)
    return;
  parallelFor(c, bytes, 1 << 18, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte *>(to) + begin, static_cast<const std::byte *>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void takeShard(const Context &c, const void *from, void *to, std::int64_t shardBytes, int groupSize, int stride) {
  copyBytes(c, static_cast<const std::byte *>(from) + c.rank / stride % groupSize * shardBytes, to, shardBytes);
}

void zeroBytes(const Context &c, void *to, std::int64_t bytes) {
  parallelFor(c, bytes, 1 << 18, [=](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte *>(to) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

template <class T>
float *promoted(const Context &c, const T *from, float *to, std::int64_t count) {
  parallelFor(c, count, conversionGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = static_cast<float>(from[i]);
  });
  return to;
}

template <class T>
void narrow(const Context &c, const float *from, T *to, std::int64_t count) {
  parallelFor(c, count, conversionGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      storeRounded(to[i], from[i]);
  });
}

template float *promoted(const Context &, const Bfloat16 *, float *, std::int64_t);
template float *promoted(const Context &, const Float16 *, float *, std::int64_t);
template void narrow(const Context &, const float *, Bfloat16 *, std::int64_t);
template void narrow(const Context &, const float *, Float16 *, std::int64_t);

} // namespace fsdpc::rt

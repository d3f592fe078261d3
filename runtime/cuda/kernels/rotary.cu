// A thread rotates the pairs of one pack: one load of adjacent elements from the first half of a vector, and their
// partners in the second half. Adjacent threads have adjacent packs, so both loads and both stores coalesce. The tables
// are small and shared by heads, and stay in the cache. Both partners are read before either is written, so y may be x.
#include "runtime/cuda/kernels/rotary.h"

#include "runtime/cuda/kernels/block.h"

namespace fsdpc::rt {

namespace {

/// The offset of a vector's angles in the tables.
__device__ std::int64_t tableOffset(const RotaryShape &shape, std::int64_t vector) {
  const std::int64_t last = vector % shape.dims[2], others = vector / shape.dims[2];
  return others / shape.dims[1] * shape.tableStrides[0] + others % shape.dims[1] * shape.tableStrides[1] +
         last * shape.tableStrides[2];
}

/// low, high <- low * cosLow - high * sinLow, high * cosHigh + low * sinHigh
template <int width>
__device__ void turn(float (&low)[width], float (&high)[width], const float (&cosLow)[width],
                     const float (&cosHigh)[width], const float (&sinLow)[width], const float (&sinHigh)[width]) {
  for (int i = 0; i < width; ++i) {
    const float first = low[i], second = high[i];
    low[i] = first * cosLow[i] - second * sinLow[i];
    high[i] = second * cosHigh[i] + first * sinHigh[i];
  }
}

/// The same with the signs of the sines as the transpose has them.
template <int width>
__device__ void turnBack(float (&low)[width], float (&high)[width], const float (&cosLow)[width],
                         const float (&cosHigh)[width], const float (&sinLow)[width], const float (&sinHigh)[width]) {
  for (int i = 0; i < width; ++i) {
    const float first = low[i], second = high[i];
    low[i] = first * cosLow[i] + second * sinHigh[i];
    high[i] = second * cosHigh[i] - first * sinLow[i];
  }
}

template <int width, class T>
__global__ void turnPairs(RotaryShape shape, std::int64_t packs, const T *x, const T *cos, const T *sin, T *y) {
  const std::int64_t half = shape.width / 2, packsPerVector = half / width;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    const std::int64_t vector = i / packsPerVector, table = tableOffset(shape, vector);
    const AlignedPack<width> first{i % packsPerVector * width}, second{first.first + half};
    float low[width], high[width], cosLow[width], cosHigh[width], sinLow[width], sinHigh[width];
    load(x + vector * shape.width, first, low);
    load(x + vector * shape.width, second, high);
    load(cos + table, first, cosLow);
    load(cos + table, second, cosHigh);
    load(sin + table, first, sinLow);
    load(sin + table, second, sinHigh);
    if (shape.transposed)
      turnBack(low, high, cosLow, cosHigh, sinLow, sinHigh);
    else
      turn(low, high, cosLow, cosHigh, sinLow, sinHigh);
    store(low, y + vector * shape.width, first);
    store(high, y + vector * shape.width, second);
  }
}

/// Table strides are multiples of the width, so if halves consist of packs, all rows do.
template <int width, class T>
bool isPacked(const RotaryShape &shape, const T *x, const T *cos, const T *sin, T *y) {
  return arePacked<width>(shape.width / 2, x, cos, sin, y);
}

} // namespace

template <class T>
void rotary(const Context &c, const RotaryShape &shape, const T *x, const T *cos, const T *sin, T *y) {
  constexpr int widest = packWidth<T>;
  const std::int64_t pairs = shape.dims[0] * shape.dims[1] * shape.dims[2] * (shape.width / 2);
  if (pairs == 0)
    return;
  if (isPacked<widest>(shape, x, cos, sin, y))
    launch(c, gridFor(c, pairs / widest), turnPairs<widest, T>, shape, pairs / widest, x, cos, sin, y);
  else
    launch(c, gridFor(c, pairs), turnPairs<1, T>, shape, pairs, x, cos, sin, y);
}

template void rotary(const Context &, const RotaryShape &, const float *, const float *, const float *, float *);
template void rotary(const Context &, const RotaryShape &, const Bfloat16 *, const Bfloat16 *, const Bfloat16 *,
                     Bfloat16 *);
template void rotary(const Context &, const RotaryShape &, const Float16 *, const Float16 *, const Float16 *,
                     Float16 *);

} // namespace fsdpc::rt

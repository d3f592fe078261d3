// The host brings a strided copy into a normal form and then chooses one of four methods:
//
//   one range     both sides contiguous: a memcpy
//   rows          the innermost dim contiguous on both sides: element by element, in the widest words (up to 16 bytes)
//                 that sizes, strides and addresses allow
//   transpose     the destination is contiguous along one dim, the source along another: square tiles through shared
//                 memory, so that reads and writes are both coalesced
//   anything else element by element; writes are coalesced if the destination is dense
//
// The normal form: no dims of size 1, dims in the order of the destination's strides, adjacent dims merged if both
// sides go through them with one stride. The regions do not overlap, so the order of the dims is free.
#include "runtime/cuda/kernels/copy.h"

#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace fsdpc::rt {

namespace {

void swapDims(CopyShape &shape, int a, int b) {
  std::swap(shape.dims[a], shape.dims[b]);
  std::swap(shape.fromStrides[a], shape.fromStrides[b]);
  std::swap(shape.toStrides[a], shape.toStrides[b]);
}

std::int64_t elementsOf(const CopyShape &shape) {
  std::int64_t count = 1;
  for (int d = 0; d < shape.rank; ++d)
    count *= shape.dims[d];
  return count;
}

/// The dims larger than 1, the destination's largest stride first.
CopyShape ordered(const CopyShape &shape) {
  CopyShape out;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i] == 1)
      continue;
    out.dims[out.rank] = shape.dims[i];
    out.fromStrides[out.rank] = shape.fromStrides[i];
    out.toStrides[out.rank] = shape.toStrides[i];
    for (int d = out.rank++; d > 0 && std::abs(out.toStrides[d - 1]) < std::abs(out.toStrides[d]); --d)
      swapDims(out, d - 1, d);
  }
  return out;
}

/// The normal form, with at least one dim.
CopyShape collapse(const CopyShape &given) {
  const CopyShape shape = ordered(given);
  CopyShape out;
  for (int i = 0; i < shape.rank; ++i) {
    const int last = out.rank - 1;
    const bool continues = last >= 0 && out.fromStrides[last] == shape.fromStrides[i] * shape.dims[i] &&
                           out.toStrides[last] == shape.toStrides[i] * shape.dims[i];
    const int at = continues ? last : out.rank++;
    out.dims[at] = continues ? out.dims[at] * shape.dims[i] : shape.dims[i];
    out.fromStrides[at] = shape.fromStrides[i];
    out.toStrides[at] = shape.toStrides[i];
  }
  if (out.rank == 0)
    out = {1, {1}, {1}, {1}};
  return out;
}

// ---- element by element

/// Offset is the type in which the position is divided: 32 bits if they suffice, since division is most of the work.
template <class Word, class Offset>
__global__ void copyElements(CopyShape shape, std::int64_t elements, const Word *from, Word *to) {
  const Offset count = static_cast<Offset>(elements), step = blockDim.x * gridDim.x;
  for (Offset i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    Offset rest = i;
    std::int64_t source = 0, destination = 0;
    for (int d = shape.rank - 1; d >= 0; --d) {
      const Offset size = static_cast<Offset>(shape.dims[d]), quotient = rest / size;
      const std::int64_t at = static_cast<std::int64_t>(rest - quotient * size);
      source += at * shape.fromStrides[d];
      destination += at * shape.toStrides[d];
      rest = quotient;
    }
    to[destination] = from[source];
  }
}

template <class Word>
void copyInWords(const Context &c, const CopyShape &shape, const void *from, void *to) {
  const std::int64_t count = elementsOf(shape);
  const auto kernel = count <= INT32_MAX ? copyElements<Word, std::uint32_t> : copyElements<Word, std::uint64_t>;
  launch(c, gridFor(c, count), kernel, shape, count, static_cast<const Word *>(from), static_cast<Word *>(to));
}

/// The widest word, in bytes, that divides both sides.
std::int64_t widestWord(const CopyShape &shape, std::int64_t elementBytes, const void *from, const void *to) {
  const int last = shape.rank - 1;
  if (shape.fromStrides[last] != 1 || shape.toStrides[last] != 1)
    return elementBytes;
  std::uint64_t bytes = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) |
                        static_cast<std::uint64_t>(shape.dims[last] * elementBytes) | 16;
  for (int d = 0; d < last; ++d)
    bytes |= static_cast<std::uint64_t>(shape.fromStrides[d] * elementBytes) |
             static_cast<std::uint64_t>(shape.toStrides[d] * elementBytes);
  return static_cast<std::int64_t>(bytes & (~bytes + 1)); // the lowest bit: the largest power of two that divides all
}

void copyRows(const Context &c, CopyShape shape, std::int64_t elementBytes, const void *from, void *to) {
  const std::int64_t word = widestWord(shape, elementBytes, from, to), factor = word / elementBytes;
  const int last = shape.rank - 1;
  if (factor > 1) {
    shape.dims[last] /= factor;
    for (int d = 0; d < last; ++d) {
      shape.fromStrides[d] /= factor;
      shape.toStrides[d] /= factor;
    }
  }
  switch (word) {
  case 16: return copyInWords<uint4>(c, shape, from, to);
  case 8: return copyInWords<std::uint64_t>(c, shape, from, to);
  case 4: return copyInWords<std::uint32_t>(c, shape, from, to);
  case 2: return copyInWords<std::uint16_t>(c, shape, from, to);
  default: return copyInWords<std::uint8_t>(c, shape, from, to);
  }
}

// ---- transposes

constexpr int lanes = 32, tileRows = 8;   ///< of a block of threads
constexpr std::int64_t minTransposed = 8; ///< for smaller dims a tile would be mostly empty

/// Small elements need larger tiles to fill entire memory sectors on both sides.
template <class T>
constexpr int tileEdge = sizeof(T) <= 2 ? 64 : 32;

/// The last dim is the destination's contiguous one, the one before it the source's. A block copies one tile.
template <class T>
__global__ void transposeTiles(CopyShape shape, std::int64_t tilesAlongFrom, std::int64_t tilesAlongTo, const T *from,
                               T *to) {
  constexpr int edge = tileEdge<T>;
  constexpr int pad =
      sizeof(T) < 4 ? 4 / sizeof(T) : 1; // an odd number of banks per row, so that columns have no bank conflicts
  __shared__ T tile[edge][edge + pad];
  const int alongTo = shape.rank - 1, alongFrom = shape.rank - 2;
  const std::int64_t x = blockIdx.x % tilesAlongTo * edge, y = blockIdx.x / tilesAlongTo % tilesAlongFrom * edge;
  std::int64_t rest = blockIdx.x / tilesAlongTo / tilesAlongFrom;
  for (int d = shape.rank - 3; d >= 0; --d) {
    from += rest % shape.dims[d] * shape.fromStrides[d];
    to += rest % shape.dims[d] * shape.toStrides[d];
    rest /= shape.dims[d];
  }
  const std::int64_t width = scalar::min(std::int64_t{edge}, shape.dims[alongTo] - x);
  const std::int64_t height = scalar::min(std::int64_t{edge}, shape.dims[alongFrom] - y);
  for (int i = threadIdx.y; i < width; i += tileRows)
    for (int j = threadIdx.x; j < height; j += lanes)
      tile[i][j] = from[(x + i) * shape.fromStrides[alongTo] + y + j];
  __syncthreads();
  for (int j = threadIdx.y; j < height; j += tileRows)
    for (int i = threadIdx.x; i < width; i += lanes)
      to[(y + j) * shape.toStrides[alongFrom] + x + i] = tile[i][j];
}

/// The dim along which the source is contiguous, if a copy by tiles is worthwhile; else -1.
int transposedDim(const CopyShape &shape) {
  const int last = shape.rank - 1;
  if (shape.toStrides[last] != 1 || shape.fromStrides[last] == 1 || shape.fromStrides[last] == 0 ||
      shape.dims[last] < minTransposed)
    return -1;
  int found = -1;
  for (int d = 0; d < last; ++d)
    if (shape.fromStrides[d] == 1 && shape.dims[d] >= minTransposed && (found < 0 || shape.dims[d] > shape.dims[found]))
      found = d;
  return found;
}

template <class T>
void transpose(const Context &c, CopyShape shape, int dim, const T *from, T *to) {
  const int alongTo = shape.rank - 1, alongFrom = shape.rank - 2;
  swapDims(shape, dim, alongFrom);
  const auto tiles = [](std::int64_t size) { return (size + tileEdge<T> - 1) / tileEdge<T>; };
  const std::int64_t tilesAlongFrom = tiles(shape.dims[alongFrom]), tilesAlongTo = tiles(shape.dims[alongTo]);
  std::int64_t blocks = tilesAlongFrom * tilesAlongTo;
  for (int d = 0; d < alongFrom; ++d)
    blocks *= shape.dims[d];
  // A tile has at least 64 elements, so a tensor that fits in memory has fewer tiles than a grid may have blocks.
  launch(c, {dim3(static_cast<unsigned>(blocks)), dim3(lanes, tileRows)}, transposeTiles<T>, shape, tilesAlongFrom,
         tilesAlongTo, from, to);
}

// ---- one value

template <class Bits>
__global__ void fillElements(std::int64_t count, Bits value, Bits *to) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = value;
}

void setBytes(const Context &c, void *to, int value, std::int64_t bytes) {
  if (bytes > 0)
    checkCuda(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), deviceOf(c).compute), "memset");
}

template <class From, class To>
__global__ void convertElements(std::int64_t count, const From *from, To *to) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    to[i] = static_cast<To>(from[i]);
}

} // namespace

template <class T>
void copyStrided(const Context &c, const CopyShape &given, const T *from, T *to) {
  if (elementsOf(given) == 0)
    return;
  const CopyShape shape = collapse(given);
  if (shape.rank == 1 && shape.fromStrides[0] == 1 && shape.toStrides[0] == 1)
    return copyBytes(c, from, to, shape.dims[0] * static_cast<std::int64_t>(sizeof(T)));
  const int dim = transposedDim(shape);
  if (dim >= 0)
    transpose(c, shape, dim, from, to);
  else
    copyRows(c, shape, sizeof(T), from, to);
}

template void copyStrided(const Context &, const CopyShape &, const std::uint8_t *, std::uint8_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint16_t *, std::uint16_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint32_t *, std::uint32_t *);
template void copyStrided(const Context &, const CopyShape &, const std::uint64_t *, std::uint64_t *);

void copyBytes(const Context &c, const void *from, void *to, std::int64_t bytes) {
  if (from != to && bytes > 0)
    checkCuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, deviceOf(c).compute),
              "memcpy");
}

void takeShard(const Context &c, const void *from, void *to, std::int64_t shardBytes, int groupSize, int stride) {
  copyBytes(c, static_cast<const std::byte *>(from) + c.rank / stride % groupSize * shardBytes, to, shardBytes);
}

void zeroBytes(const Context &c, void *to, std::int64_t bytes) { setBytes(c, to, 0, bytes); }

template <class T>
void fill(const Context &c, T *to, std::int64_t count, std::type_identity_t<T> value) {
  if (count <= 0)
    return;
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  if (std::all_of(bytes, bytes + sizeof(T), [&](unsigned char byte) { return byte == bytes[0]; }))
    return setBytes(c, to, bytes[0], count * static_cast<std::int64_t>(sizeof(T)));
  auto *const destination = bits(to);
  std::remove_pointer_t<decltype(bits(to))> pattern;
  std::memcpy(&pattern, &value, sizeof(T));
  launch(c, gridFor(c, count), fillElements<decltype(pattern)>, count, pattern, destination);
}

template void fill(const Context &, float *, std::int64_t, float);
template void fill(const Context &, double *, std::int64_t, double);
template void fill(const Context &, std::int64_t *, std::int64_t, std::int64_t);
template void fill(const Context &, std::int32_t *, std::int64_t, std::int32_t);
template void fill(const Context &, std::uint8_t *, std::int64_t, std::uint8_t);
template void fill(const Context &, bool *, std::int64_t, bool);
template void fill(const Context &, Bfloat16 *, std::int64_t, Bfloat16);
template void fill(const Context &, Float16 *, std::int64_t, Float16);

template <class T>
float *promoted(const Context &c, const T *from, float *to, std::int64_t count) {
  if (count > 0)
    launch(c, gridFor(c, count), convertElements<T, float>, count, from, to);
  return to;
}
template <class T>
void narrow(const Context &c, const float *from, T *to, std::int64_t count) {
  if (count > 0)
    launch(c, gridFor(c, count), convertElements<float, T>, count, from, to);
}
template float *promoted(const Context &, const Bfloat16 *, float *, std::int64_t);
template float *promoted(const Context &, const Float16 *, float *, std::int64_t);
template void narrow(const Context &, const float *, Bfloat16 *, std::int64_t);
template void narrow(const Context &, const float *, Float16 *, std::int64_t);

} // namespace fsdpc::rt

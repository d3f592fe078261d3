// Building blocks of the attention kernels: tiles of rows in shared memory, and matmuls of tiles whose results a warp
// keeps in registers.
//
// Kernels use one algorithm for both element types. A warp owns 16 rows of a block's tile (or 16 more, if registers
// allow). Its 32 lanes share the results in the layout of tensor cores: lane 4g + t has rows g and g + 8, and some
// columns of each row, so the four lanes of a group together have entire rows. `Sums` maps an element to its row and
// column. 16-bit floats use tensor cores, and their scores and sums stay in float. float uses plain multiplications and
// additions with the same distribution of rows; each element is summed in index order.
//
// A tile's rows are divided into chunks of 16 bytes. The row number permutes the chunks' positions within a row. Both a
// column of eight chunks (which one step of a matrix load reads) and a row of chunks are then in different banks,
// without padding.
#pragma once

#include "runtime/cuda/kernels/block.h"
#include "runtime/cuda/kernels/mma.h"

#include <type_traits>

#if defined(__CUDACC__)
#define FSDPC_UNROLL _Pragma("unroll")
#define FSDPC_UNROLL_TWICE _Pragma("unroll 2")
#define FSDPC_ROLL _Pragma("unroll 1")
#else
#define FSDPC_UNROLL
#define FSDPC_UNROLL_TWICE
#define FSDPC_ROLL
#endif

namespace fsdpc::rt::flash {

template <class T>
inline constexpr bool onTensorCores = isHalf<T>;

/// Elements in 16 bytes.
template <class T>
inline constexpr int chunkElements = 16 / sizeof(T);

/// What a block may use on every device of compute capability 8.0 or later.
inline constexpr int maxSharedBytes = 99 * 1024;

FSDPC_HOST_DEVICE constexpr int tilesOf(int count, int tile) { return (count + tile - 1) / tile; }

__device__ inline int laneGroup() { return static_cast<int>(threadIdx.x) % warpLanes / 4; }
__device__ inline int laneInGroup() { return static_cast<int>(threadIdx.x) % 4; }
__device__ inline int warpOfBlock() { return static_cast<int>(threadIdx.x) / warpLanes; }

/// Words of shared memory, whatever type their elements have.
template <class Word>
__device__ Word loadWord(const void *from) {
#if defined(__CUDACC__)
  return *static_cast<const Word *>(from);
#else
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
#endif
}
template <class Word>
__device__ void storeWord(void *to, const Word &word) {
#if defined(__CUDACC__)
  *static_cast<Word *>(to) = word;
#else
  std::memcpy(to, &word, sizeof word);
#endif
}

/// The rows of one head in device memory: element (i, d) is data[i * stride + d].
template <class T>
struct Rows {
  T *data;
  std::int64_t stride;
  int count, width;
};

/// Rows of `columns` elements in shared memory.
template <class T, int columns>
struct Tile {
  static constexpr int chunks = columns / chunkElements<T>;
  static_assert(chunks % 4 == 0);

  T *data;

  __device__ T *chunk(int row, int index) const {
    const int permutation = chunks % 8 == 0 ? row & 7 : row >> 1 & 3;
    return data + (row * chunks + (index ^ permutation)) * chunkElements<T>;
  }
};

/// Starts to fill a tile of `rows` rows with those from `firstRow` on; zeros outside the source, below and to the
/// right. `packed`: all rows consist of aligned chunks. The block's threads share the work.
template <int rows, int threads, class T, int columns>
__device__ void startTile(const Tile<T, columns> &tile, const Rows<const T> &from, int firstRow, bool packed) {
  using To = Tile<T, columns>;
  static_assert(rows * To::chunks % threads == 0, "all threads run the loop equally often");
  for (int i = static_cast<int>(threadIdx.x); i < rows * To::chunks; i += threads) {
    const int row = i / To::chunks, chunk = i % To::chunks, column = chunk * chunkElements<T>;
    const bool exists = firstRow + row < from.count && column < from.width;
    const T *const source = exists ? from.data + (firstRow + row) * from.stride + column : from.data;
    T *const target = tile.chunk(row, chunk);
    if (packed) {
      startCopy<16>(target, source, exists);
    } else {
      FSDPC_UNROLL
      for (int e = 0; e < chunkElements<T>; ++e)
        target[e] = exists && column + e < from.width ? source[e] : T(0.0f);
    }
  }
}

/// Writes `count` columns of the tile's rows [tileRow, tileRow + rows) to the rows from `firstRow` on, both starting at
/// `firstColumn`. Called by one warp, for rows that it wrote itself.
template <int rows, int count, class T, int columns>
__device__ void storeRows(const Tile<T, columns> &tile, int tileRow, const Rows<T> &to, int firstRow, int firstColumn,
                          bool packed) {
  constexpr int chunks = count / chunkElements<T>;
  __syncwarp();
  for (int i = static_cast<int>(threadIdx.x) % warpLanes; i < rows * chunks; i += warpLanes) {
    const int row = i / chunks, column = firstColumn + i % chunks * chunkElements<T>;
    if (firstRow + row >= to.count || column >= to.width)
      continue;
    const T *const source = tile.chunk(tileRow + row, column / chunkElements<T>);
    T *const target = to.data + (firstRow + row) * to.stride + column;
    if (packed)
      storeWord(target, loadWord<uint4>(source));
    else
      for (int e = 0; e < chunkElements<T> && column + e < to.width; ++e)
        target[e] = source[e];
  }
}

/// A warp's float results, 16 * rowTiles rows of `columns`, distributed over its lanes.
template <class T, int rowTiles, int columns>
struct Sums {
  static constexpr int rowsPerLane = 2 * rowTiles, columnsPerLane = columns / 4;
  static_assert(columns % 16 == 0);

  SumFragment fragments[rowTiles][columns / 8];

  /// The lane's element in its row r and column c.
  __device__ float &at(int r, int c) { return fragments[r / 2][c / 2].values[r % 2 * 2 + c % 2]; }
  __device__ float at(int r, int c) const { return fragments[r / 2][c / 2].values[r % 2 * 2 + c % 2]; }

  /// Their position among the warp's elements.
  static __device__ int row(int r) { return r / 2 * 16 + r % 2 * 8 + laneGroup(); }
  static __device__ int column(int c) {
    if constexpr (onTensorCores<T>)
      return c / 2 * 8 + laneInGroup() * 2 + c % 2;
    else
      return c / 4 * 16 + laneInGroup() * 4 + c % 4;
  }

  template <class Visit>
  __device__ void forEach(Visit visit) {
    FSDPC_UNROLL
    for (int r = 0; r < rowsPerLane; ++r) {
      FSDPC_UNROLL
      for (int c = 0; c < columnsPerLane; ++c)
        visit(r, c, at(r, c));
    }
  }
  __device__ void clear() {
    forEach([](int, int, float &value) { value = 0; });
  }
};

// ---- tensor cores

/// 16 rows, the 16 columns from chunk `chunk` on.
template <class T, int columns>
__device__ void loadLeft(LeftFragment &left, const Tile<T, columns> &tile, int firstRow, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % warpLanes;
  loadMatrices(left.pairs, tile.chunk(firstRow + lane % 16, chunk + lane / 16));
}

/// Two adjacent right fragments: the transpose of 16 rows' 16 columns from chunk `chunk` on.
template <class T, int columns>
__device__ void loadTransposed(RightFragment (&right)[2], const Tile<T, columns> &tile, int firstRow, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % warpLanes;
  std::uint32_t pairs[4];
  loadMatrices(pairs, tile.chunk(firstRow + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
  right[0] = {pairs[0], pairs[1]};
  right[1] = {pairs[2], pairs[3]};
}

/// Two adjacent right fragments: 16 rows' 16 columns from chunk `chunk` on.
template <class T, int columns>
__device__ void loadRight(RightFragment (&right)[2], const Tile<T, columns> &tile, int firstRow, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % warpLanes;
  std::uint32_t pairs[4];
  loadMatricesTransposed(pairs, tile.chunk(firstRow + lane % 16, chunk + lane / 16));
  right[0] = {pairs[0], pairs[1]};
  right[1] = {pairs[2], pairs[3]};
}

/// sums += (rows of `left` from firstRow on) * (the first rows of `right`) transposed
template <class T, int rowTiles, int columns, int width>
  requires onTensorCores<T>
__device__ void addRowProducts(Sums<T, rowTiles, columns> &sums, const Tile<T, width> &left, int firstRow,
                               const Tile<T, width> &right) {
  FSDPC_UNROLL_TWICE // fully unrolled, addresses would need more registers than there are
      for (int chunk = 0; chunk < width / 8; chunk += 2) {
    LeftFragment rows[rowTiles];
    FSDPC_UNROLL
    for (int i = 0; i < rowTiles; ++i)
      loadLeft(rows[i], left, firstRow + 16 * i, chunk);
    FSDPC_UNROLL
    for (int j = 0; j < columns / 16; ++j) {
      RightFragment pair[2];
      loadTransposed(pair, right, 16 * j, chunk);
      FSDPC_UNROLL
      for (int i = 0; i < rowTiles; ++i) {
        multiplyAdd<T>(sums.fragments[i][2 * j], rows[i], pair[0]);
        multiplyAdd<T>(sums.fragments[i][2 * j + 1], rows[i], pair[1]);
      }
    }
  }
}

/// Rounded to T: columns [16 * step, 16 * step + 16).
template <class T, int columns>
__device__ LeftFragment roundedColumns(const SumFragment (&sums)[columns], int step) {
  const SumFragment &a = sums[2 * step], &b = sums[2 * step + 1];
  return {{roundedPair<T>(a.values[0], a.values[1]), roundedPair<T>(a.values[2], a.values[3]),
           roundedPair<T>(b.values[0], b.values[1]), roundedPair<T>(b.values[2], b.values[3])}};
}

/// sums += weights * (the first rows of `right`, columns from firstColumn on); weights are rounded to T.
template <class T, int rowTiles, int columns, int depth, int width>
  requires onTensorCores<T>
__device__ void addWeightedRows(Sums<T, rowTiles, columns> &sums, const Sums<T, rowTiles, depth> &weights,
                                const Tile<T, width> &right, int firstColumn) {
  FSDPC_UNROLL
  for (int step = 0; step < depth / 16; ++step) {
    LeftFragment left[rowTiles];
    FSDPC_UNROLL
    for (int i = 0; i < rowTiles; ++i)
      left[i] = roundedColumns<T>(weights.fragments[i], step);
    FSDPC_UNROLL
    for (int j = 0; j < columns / 16; ++j) {
      RightFragment pair[2];
      loadRight(pair, right, 16 * step, firstColumn / 8 + 2 * j);
      FSDPC_UNROLL
      for (int i = 0; i < rowTiles; ++i) {
        multiplyAdd<T>(sums.fragments[i][2 * j], left[i], pair[0]);
        multiplyAdd<T>(sums.fragments[i][2 * j + 1], left[i], pair[1]);
      }
    }
  }
}

/// Writes the sums, rounded, to the tile at (firstRow, firstColumn).
template <class T, int rowTiles, int columns, int width>
  requires onTensorCores<T>
__device__ void storeSums(const Sums<T, rowTiles, columns> &sums, const Tile<T, width> &tile, int firstRow,
                          int firstColumn) {
  FSDPC_UNROLL
  for (int r = 0; r < sums.rowsPerLane; ++r) {
    FSDPC_UNROLL
    for (int c = 0; c < sums.columnsPerLane; c += 2)
      storeWord(tile.chunk(firstRow + sums.row(r), firstColumn / 8 + c / 2) + 2 * laneInGroup(),
                roundedPair<T>(sums.at(r, c), sums.at(r, c + 1)));
  }
}

// ---- plain float

template <int rowTiles, int columns, int width>
__device__ void addRowProducts(Sums<float, rowTiles, columns> &sums, const Tile<float, width> &left, int firstRow,
                               const Tile<float, width> &right) {
  using Of = Sums<float, rowTiles, columns>;
  FSDPC_ROLL
  for (int chunk = 0; chunk < width / 4; ++chunk) {
    float4 rows[Of::rowsPerLane];
    FSDPC_UNROLL
    for (int r = 0; r < Of::rowsPerLane; ++r)
      rows[r] = loadWord<float4>(left.chunk(firstRow + Of::row(r), chunk));
    FSDPC_UNROLL
    for (int c = 0; c < Of::columnsPerLane; ++c) {
      const float4 other = loadWord<float4>(right.chunk(Of::column(c), chunk));
      FSDPC_UNROLL
      for (int r = 0; r < Of::rowsPerLane; ++r) {
        float &sum = sums.at(r, c);
        sum += rows[r].x * other.x;
        sum += rows[r].y * other.y;
        sum += rows[r].z * other.z;
        sum += rows[r].w * other.w;
      }
    }
  }
}

/// The lanes of a group hold a row's weights between them, and exchange them by shuffles.
template <int rowTiles, int columns, int depth, int width>
__device__ void addWeightedRows(Sums<float, rowTiles, columns> &sums, const Sums<float, rowTiles, depth> &weights,
                                const Tile<float, width> &right, int firstColumn) {
  using Of = Sums<float, rowTiles, columns>;
  using Weights = Sums<float, rowTiles, depth>;
  FSDPC_ROLL
  for (int owner = 0; owner < 4; ++owner) {
    FSDPC_UNROLL
    for (int c = 0; c < Weights::columnsPerLane; ++c) {
      float weight[Of::rowsPerLane];
      FSDPC_UNROLL
      for (int r = 0; r < Of::rowsPerLane; ++r)
        weight[r] = __shfl_sync(fullWarp, weights.at(r, c), laneGroup() * 4 + owner);
      const int row = c / 4 * 16 + owner * 4 + c % 4;
      FSDPC_UNROLL
      for (int j = 0; j < columns / 16; ++j) {
        const float4 other = loadWord<float4>(right.chunk(row, firstColumn / 4 + 4 * j + laneInGroup()));
        FSDPC_UNROLL
        for (int r = 0; r < Of::rowsPerLane; ++r) {
          sums.at(r, 4 * j) += weight[r] * other.x;
          sums.at(r, 4 * j + 1) += weight[r] * other.y;
          sums.at(r, 4 * j + 2) += weight[r] * other.z;
          sums.at(r, 4 * j + 3) += weight[r] * other.w;
        }
      }
    }
  }
}

template <int rowTiles, int columns, int width>
__device__ void storeSums(const Sums<float, rowTiles, columns> &sums, const Tile<float, width> &tile, int firstRow,
                          int firstColumn) {
  FSDPC_UNROLL
  for (int r = 0; r < sums.rowsPerLane; ++r) {
    FSDPC_UNROLL
    for (int j = 0; j < columns / 16; ++j)
      storeWord(tile.chunk(firstRow + sums.row(r), firstColumn / 4 + 4 * j + laneInGroup()),
                make_float4(sums.at(r, 4 * j), sums.at(r, 4 * j + 1), sums.at(r, 4 * j + 2), sums.at(r, 4 * j + 3)));
  }
}

} // namespace fsdpc::rt::flash

#include "runtime/cpu/kernels/attention_tiles.h"

#include "runtime/cpu/kernels/attention_scores.h"
#include "runtime/cpu/kernels/tile_gemm.h"

#include <cstring>

namespace fsdpc::rt {

namespace {

using scratch_sizes::AttentionGradTileLayout;
using scratch_sizes::AttentionTileLayout;
using scratch_sizes::tileQueryBlock;

/// Queries [begin, begin + rows) of a head.
struct Block {
  std::int64_t begin, rows;
  std::int64_t paddedRows() const { return scratch_sizes::roundUp(rows, tileStep); }
};

/// Copies rows of a block without gaps, and zeros below up to tileQueryBlock.
void copyBlock(Head<const Bfloat16> from, Block block, std::int64_t width, Bfloat16 *to) {
  for (std::int64_t i = 0; i < block.rows; ++i)
    std::memcpy(static_cast<void *>(to + i * width), from.row(block.begin + i), sizeof(Bfloat16) * width);
  std::memset(static_cast<void *>(to + block.rows * width), 0,
              sizeof(Bfloat16) * (tileQueryBlock - block.rows) * width);
}

/// Rounds a row of p or ds for products, with zeros beyond the keys seen.
void roundForProduct(const float *row, KeyRange seen, Bfloat16 *rounded) {
  roundRow(row, seen.count(), paddedColumns(seen.count()), rounded);
}

/// Zeros for the rows below the last one of the block.
void clearBelow(Block block, KeyRange seen, std::int64_t stride, Bfloat16 *rounded) {
  for (std::int64_t i = block.rows; i < block.paddedRows(); ++i)
    std::memset(static_cast<void *>(rounded + i * stride), 0, sizeof(Bfloat16) * paddedColumns(seen.count()));
}

/// Panel `column` of packed rows (of k or v), from key `key` on.
const Bfloat16 *rowsFrom(const Bfloat16 *packed, std::int64_t paddedKeys, std::int64_t column, std::int64_t key) {
  return packed + column * paddedKeys + key * panelColumns;
}

float dot(const Bfloat16 *a, const Bfloat16 *b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j)
    sum += static_cast<float>(a[j]) * static_cast<float>(b[j]);
  return sum;
}

/// result[rows, width] = factors[rows, seen] * packed rows of the keys seen.
void multiplyKeys(Block block, KeyRange seen, const Bfloat16 *factors, std::int64_t paddedKeys, const Bfloat16 *packed,
                  std::int64_t width, float *result) {
  for (std::int64_t column = 0; column < width; column += panelColumns)
    tileGemm(block.paddedRows(), panelColumns, paddedColumns(seen.count()), factors, paddedKeys,
             rowsFrom(packed, paddedKeys, column, seen.begin), result + column, width, false);
}

class ForwardTiles {
public:
  ForwardTiles(const AttentionShape &shape, std::int64_t head, const AttentionMasks &masks,
               const AttentionHead<Bfloat16> &of, std::byte *scratch)
      : shape(shape), head(head), masks(masks), of(of), scratch(scratch), layout(sizesOf(shape)),
        paddedKeys(paddedColumns(shape.keys)) {
    packPairsOfColumns(of.k.data, of.k.rowStride, shape.queryWidth, shape.keys, halvesAt(layout.keys));
    packPairsOfRows(of.v.data, of.v.rowStride, shape.keys, paddedKeys, shape.valueWidth, halvesAt(layout.values));
  }

  void run(Block block) const {
    Bfloat16 *const queries = halvesAt(layout.queries), *const probabilities = halvesAt(layout.probabilities);
    float *const scores = floatsAt(layout.scores), *const outputs = floatsAt(layout.outputs);
    copyBlock(of.q, block, shape.queryWidth, queries);
    const auto product = [&](KeyRange keys) {
      tileGemm(block.paddedRows(), paddedColumns(keys.count()), shape.queryWidth, queries, shape.queryWidth,
               halvesAt(layout.keys) + keys.begin * shape.queryWidth, scores, paddedKeys, false);
    };
    float factors[tileQueryBlock];
    const KeyRange seen =
        softmaxOfBlock(shape, masks, head, block.begin, block.rows, scores, of.lse + block.begin, factors, product,
                       [&](std::int64_t i, KeyRange keys) {
                         roundForProduct(scores + i * paddedKeys, keys, probabilities + i * paddedKeys);
                       });
    clearBelow(block, seen, paddedKeys, probabilities);
    multiplyKeys(block, seen, probabilities, paddedKeys, halvesAt(layout.values), shape.valueWidth, outputs);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      float *const row = outputs + i * shape.valueWidth;
#pragma omp simd
      for (std::int64_t d = 0; d < shape.valueWidth; ++d)
        row[d] *= factors[i];
      roundRow(row, shape.valueWidth, shape.valueWidth, of.o.row(block.begin + i));
    }
  }

private:
  Bfloat16 *halvesAt(std::int64_t offset) const { return reinterpret_cast<Bfloat16 *>(scratch + offset); }
  float *floatsAt(std::int64_t offset) const { return reinterpret_cast<float *>(scratch + offset); }

  const AttentionShape &shape;
  const std::int64_t head;
  const AttentionMasks masks;
  const AttentionHead<Bfloat16> of;
  std::byte *const scratch;
  const AttentionTileLayout layout;
  const std::int64_t paddedKeys;
};

/// The heads of q that read one head of k and v. Sums of dk and dv are kept transposed, so that ds and p are operands
/// as they are.
class BackwardTiles {
public:
  BackwardTiles(const AttentionShape &shape, const AttentionMasks &masks, const AttentionGradGroup<Bfloat16> &group,
                std::byte *scratch)
      : shape(shape), masks(masks), group(group), scratch(scratch), layout(sizesOf(shape)),
        paddedKeys(paddedColumns(shape.keys)) {
    packPairsOfColumns(group.k.data, group.k.rowStride, shape.queryWidth, shape.keys, halvesAt(layout.keys));
    packPairsOfRows(group.k.data, group.k.rowStride, shape.keys, paddedKeys, shape.queryWidth,
                    halvesAt(layout.keyRows));
    packPairsOfColumns(group.v.data, group.v.rowStride, shape.valueWidth, shape.keys, halvesAt(layout.values));
    std::memset(floatsAt(layout.dk), 0, sizeof(float) * shape.queryWidth * paddedKeys);
    std::memset(floatsAt(layout.dv), 0, sizeof(float) * shape.valueWidth * paddedKeys);
  }

  /// Computes dq of the block, and adds its part of dk and dv.
  void run(std::int64_t head, const AttentionGradHead<Bfloat16> &of, Block block) const {
    Bfloat16 *const queries = halvesAt(layout.queries), *const outputs = halvesAt(layout.outputs);
    float *const scores = floatsAt(layout.scores), *const slopes = floatsAt(layout.slopes);
    copyBlock(of.q, block, shape.queryWidth, queries);
    copyBlock(of.dO, block, shape.valueWidth, outputs);
    const KeyRange seen = keysOfGradBlock(shape, masks, head, block.begin, block.rows, of.lse + block.begin);
    multiplyTransposed(block, seen, queries, shape.queryWidth, layout.keys, scores);
    multiplyTransposed(block, seen, outputs, shape.valueWidth, layout.values, slopes);
    Bfloat16 *const p = halvesAt(layout.probabilities), *const ds = halvesAt(layout.differences);
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const std::int64_t query = block.begin + i;
      float *const row = scores + i * paddedKeys, *const slope = slopes + i * paddedKeys;
      softmaxGradientOfRow(shape, masks, head, query, seen, of.lse[query],
                           dot(of.dO.row(query), of.o.row(query), shape.valueWidth), row, slope);
      roundForProduct(row, seen, p + i * paddedKeys);
      roundForProduct(slope, seen, ds + i * paddedKeys);
    }
    clearBelow(block, seen, paddedKeys, p);
    clearBelow(block, seen, paddedKeys, ds);
    multiplyKeys(block, seen, ds, paddedKeys, halvesAt(layout.keyRows), shape.queryWidth, floatsAt(layout.dq));
    for (std::int64_t i = 0; i < block.rows; ++i)
      roundRow(floatsAt(layout.dq) + i * shape.queryWidth, shape.queryWidth, shape.queryWidth,
               of.dq.row(block.begin + i));
    addToKeys(block, seen, queries, shape.queryWidth, layout.turnedQueries, ds, layout.dk);
    addToKeys(block, seen, outputs, shape.valueWidth, layout.turnedOutputs, p, layout.dv);
  }

  void finish() const {
    turnRounded(floatsAt(layout.dk), paddedKeys, shape.keys, shape.queryWidth, group.dk.data, group.dk.rowStride);
    turnRounded(floatsAt(layout.dv), paddedKeys, shape.keys, shape.valueWidth, group.dv.data, group.dv.rowStride);
  }

private:
  /// result[rows, seen] = rows[rows, width] * (keys seen)^T
  void multiplyTransposed(Block block, KeyRange seen, const Bfloat16 *rows, std::int64_t width, std::int64_t packed,
                          float *result) const {
    tileGemm(block.paddedRows(), paddedColumns(seen.count()), width, rows, width, halvesAt(packed) + seen.begin * width,
             result, paddedKeys, false);
  }

  /// sums[width, seen] += rows[rows, width]^T * factors[rows, seen]
  void addToKeys(Block block, KeyRange seen, const Bfloat16 *rows, std::int64_t width, std::int64_t turned,
                 const Bfloat16 *factors, std::int64_t sums) const {
    turn(rows, tileQueryBlock, width, halvesAt(turned));
    packPairsOfRows(factors, paddedKeys, block.rows, block.paddedRows(), paddedColumns(seen.count()),
                    halvesAt(layout.pairs));
    tileGemm(width, paddedColumns(seen.count()), block.paddedRows(), halvesAt(turned), tileQueryBlock,
             halvesAt(layout.pairs), floatsAt(sums) + seen.begin, paddedKeys, true);
  }

  Bfloat16 *halvesAt(std::int64_t offset) const { return reinterpret_cast<Bfloat16 *>(scratch + offset); }
  float *floatsAt(std::int64_t offset) const { return reinterpret_cast<float *>(scratch + offset); }

  const AttentionShape &shape;
  const AttentionMasks masks;
  const AttentionGradGroup<Bfloat16> group;
  std::byte *const scratch;
  const AttentionGradTileLayout layout;
  const std::int64_t paddedKeys;
};

/// Calls run(block) from the last block of queries to the first.
template <class Run>
void forEachBlock(const AttentionShape &shape, const Run &run) {
  const std::int64_t blocks = (shape.queries + tileQueryBlock - 1) / tileQueryBlock;
  for (std::int64_t block = blocks - 1; block >= 0; --block)
    run(Block{block * tileQueryBlock, std::min(tileQueryBlock, shape.queries - block * tileQueryBlock)});
}

} // namespace

void forwardOnTiles(const AttentionShape &shape, std::int64_t head, const AttentionMasks &masks,
                    const AttentionTensors<Bfloat16> &tensors, std::byte *scratch) {
  const TileSession tiles;
  const ForwardTiles forward(shape, head, masks, tensors.head(shape, head), scratch);
  forEachBlock(shape, [&](Block block) { forward.run(block); });
}

void backwardOnTiles(const AttentionShape &shape, std::int64_t read, const AttentionMasks &masks,
                     const AttentionGradTensors<Bfloat16> &tensors, std::byte *scratch) {
  const TileSession tiles;
  const AttentionGradGroup<Bfloat16> group = tensors.group(shape, read);
  const BackwardTiles backward(shape, masks, group, scratch);
  for (std::int64_t head = group.begin; head < group.end; ++head)
    forEachBlock(shape, [&](Block block) { backward.run(head, tensors.head(shape, head), block); });
  backward.finish();
}

} // namespace fsdpc::rt

// What attention does to scores, whatever multiplies: the keys that queries see, softmax and its derivative. Internal
// to attention.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/failure.h"
#include "runtime/common/kernel_shapes.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/small_gemm.h"

namespace fsdpc::rt {

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// The first to the last key visible to any of `rows` queries from `query` on, if the mask hides none: in whole panels
/// at its beginning, where packed operands can be entered. `seesAll`: all keys.
KeyRange keysOfBlock(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                     std::int64_t rows, bool seesAll);

/// Scores q k^T of one query with the keys seen, in `row` -> their exponentials; lse, and in `factor` what makes them
/// sum to 1. Returns false if the query sees none of these keys, so that keys that are hidden from it count.
bool softmaxOfRow(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                  KeyRange seen, float *row, float &lse, float &factor);

/// softmaxOfRow for the queries [begin, begin + rows), their scores paddedColumns(shape.keys) apart; returns the keys
/// that they see. product(seen) computes q k^T. finish(i, seen) follows each row, while it is in the cache.
template <class Product, class Finish>
KeyRange softmaxOfBlock(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t begin,
                        std::int64_t rows, float *scores, float *lse, float *factors, const Product &product,
                        const Finish &finish) {
  KeyRange seen = keysOfBlock(shape, masks, head, begin, rows, false);
  product(seen);
  for (std::int64_t i = 0; i < rows; ++i) {
    const bool sees =
        softmaxOfRow(shape, masks, head, begin + i, seen, scores + i * paddedColumns(shape.keys), lse[i], factors[i]);
    if (!sees && (seen.begin > 0 || seen.end < shape.keys)) {
      seen = keysOfBlock(shape, masks, head, begin, rows, true);
      product(seen);
      i = -1;
      continue;
    }
    finish(i, seen);
  }
  return seen;
}

/// The keys that a block sees in the derivative: all if a query saw none, by its lse.
KeyRange keysOfGradBlock(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head,
                         std::int64_t begin, std::int64_t rows, const float *lse);

/// q k^T of one query in `p` and dO v^T in `ds` -> p and scale * ds. `delta`: dO . o.
void softmaxGradientOfRow(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head,
                          std::int64_t query, KeyRange seen, float lse, float delta, float *p, float *ds);

/// Calls run(head, scratch of this part) for all heads, in as many parts as there are threads with scratch.
template <class Run>
void forEachHead(const Context &c, std::int64_t heads, std::int64_t scratchBytes, Workspace workspace, const Run &run) {
  const std::int64_t parts =
      std::min<std::int64_t>({c.threads, heads, workspace.bytes / std::max<std::int64_t>(scratchBytes, 1)});
  if (parts < 1 && heads > 0)
    throw Failure(ExitCode::internal, "attention has less scratch than it needs");
  parallelFor(c, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      for (std::int64_t head = heads * part / parts; head < heads * (part + 1) / parts; ++head)
        run(head, workspace.data + part * scratchBytes);
  });
}

} // namespace fsdpc::rt

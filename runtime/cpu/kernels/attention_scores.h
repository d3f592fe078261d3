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

/// The keys visible to any of `rows` queries from `query` on, if the mask hides none: in whole panels at its beginning,
/// where packed operands can be entered. `seesAll`: all keys.
KeyRange keysOfBlock(const AttentionShape &shape, std::int64_t query, std::int64_t rows, bool seesAll);

float maximumOf(const float *row, std::int64_t count);
/// A query without visible keys has a maximum (and lse) of -infinity. It is shifted by 0 instead, so that its
/// exponentials are 0, not NaN.
inline float finite(float shift) { return shift == -std::numeric_limits<float>::infinity() ? 0 : shift; }
/// row = exp(row - shift); returns the sum.
float exponentials(float *row, std::int64_t count, float shift);

/// Scores q k^T [rows, seen] -> scale * scores + mask, hidden where keys are not visible. Returns whether a query sees
/// none of these keys, so that keys that causal and window hide count for it. Rows are paddedColumns(shape.keys) apart,
/// here and below.
bool finishBlock(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t begin,
                 std::int64_t rows, KeyRange seen, float *scores);

/// The finished scores of a block, and the keys that it sees. product(seen) computes q k^T.
template <class Product>
KeyRange scoresOfBlock(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t begin,
                       std::int64_t rows, float *scores, const Product &product) {
  KeyRange seen = keysOfBlock(shape, begin, rows, false);
  product(seen);
  if (finishBlock(shape, mask, head, begin, rows, seen, scores)) {
    seen = keysOfBlock(shape, begin, rows, true);
    product(seen);
    finishBlock(shape, mask, head, begin, rows, seen, scores);
  }
  return seen;
}

/// Finished scores -> exponentials. Stores lse, and in `factors` what makes each row sum to 1.
void softmaxOfBlock(const AttentionShape &shape, std::int64_t rows, KeyRange seen, float *scores, float *lse,
                    float *factors);

/// The keys that a block sees in the derivative: all if a query saw none, by its lse.
KeyRange keysOfGradBlock(const AttentionShape &shape, std::int64_t begin, std::int64_t rows, const float *lse);

/// q k^T in `scores` and dO v^T in `slopes` -> p and scale * ds, both [rows, seen]. `deltas`: dO . o of each row.
void softmaxGradients(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t begin,
                      std::int64_t rows, KeyRange seen, const float *lse, const float *deltas, float *scores,
                      float *slopes);

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

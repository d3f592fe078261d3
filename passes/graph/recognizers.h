// The patterns of recognizePatterns. Each matches the last node of its pattern and returns a replacement for its
// result, or null.
#pragma once

#include "ir/builder.h"
#include "passes/graph/attention_mask.h"
#include "passes/graph/match.h"

#include <map>
#include <vector>

namespace fsdpc {

/// (x - mean) / sqrt(variance + epsilon) over trailing axes becomes layer_norm. A following product or sum with a value
/// that is the same for each row becomes its gamma or beta. Handles roots as sqrt, rsqrt and powers, squares as
/// products and powers, a mean as sum * 1/n or sum / n, and x * r + (beta - mean * r) with r = gamma / sqrt(variance +
/// epsilon).
Value *recognizeLayerNorm(Node &node, Builder &builder);

/// x / sqrt(mean(x * x) + epsilon) over trailing axes becomes rms_norm. A following product with a value that is the
/// same for each row becomes its gamma. Roots, squares and means as for layer_norm.
Value *recognizeRmsNorm(Node &node, Builder &builder);

/// x * 0.5 * (1 + erf(x / sqrt 2)) and x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x^3))), factors in any order and
/// grouping: `node` is the outermost product.
Value *recognizeGelu(Node &node, Builder &builder);

/// x * sigmoid(x) becomes silu, for which backward keeps only x.
Value *recognizeSilu(Node &node, Builder &builder);

/// x * cos + concat(-second half of x, first half of x) * sin becomes rotary (`node` is the sum), and so does
/// concat(first * cos - second * sin, second * cos + first * sin) of the halves of x (`node` is the concat). cos and
/// sin are any values without a path to a trainable parameter that are broadcast to the shape of x except for its last
/// axis. Factors and terms may be in any order; x may be a slice of a longer vector. A transpose of x is moved after
/// rotary, so that attention can absorb it.
class RotaryRecognizer {
public:
  explicit RotaryRecognizer(const Function &function) : gradients(function) {}
  Value *recognize(Node &node, Builder &builder);

  struct Rotation {
    Value *x = nullptr, *cos = nullptr, *sin = nullptr;
  };

private:
  Rotation rotationOfHalves(const Node &concat, Builder &builder);
  bool areAngles(const Value *cos, const Value *sin) const;
  Value *tableBefore(Value *table, const Shape &permutation, Builder &builder);
  Value *doubled(Value *table, Builder &builder);
  Value *rotated(Rotation rotation, Builder &builder);

  GradientPaths gradients;
  /// Tables for a transposed x, keyed by its permutation, and doubled tables, keyed by none. Shared by all layers,
  /// since a constant would otherwise be folded into a copy for each.
  std::map<std::pair<Value *, std::vector<int64_t>>, Value *> movedTables;
};

/// softmax(scale * q k^T + masks) v becomes attention: `node` is the last matmul.
/// - The scale may be on q, on k, on both or on the scores, which cap * tanh(scores / cap) may bound before masks. k
/// may be transposed in any way. Batch and heads may be one
///   axis or two, also alternately. A guard that turns NaN rows into zeros is dropped, since attention returns zeros
///   there.
/// - Masks are added, subtracted or selected between scores and softmax. One that hides nothing is removed; one that
///   hides keys by their distance from the query becomes `causal` and `window`, one that hides keys of other documents
///   the operand `documents`, at every length (mask_structure.h); any
///   other becomes an additive mask operand, or two of them, on the axes that it depends on. A mask with a path to a
///   trainable parameter (a position bias) would lose its gradient, so such attention is not rewritten. The same holds
///   where the probabilities have other uses.
/// - Heads of k and v that were repeated for the queries of a group are read without the repetition.
/// - If q, k and v all are transposes {0,2,1,3} of [B,S,H,D], attention reads that layout.
class AttentionRecognizer {
public:
  explicit AttentionRecognizer(const Function &function) : gradients(function) {}
  Value *recognize(Node &node, Builder &builder);

private:
  GradientPaths gradients;
  MaskStructures structures;
};

} // namespace fsdpc

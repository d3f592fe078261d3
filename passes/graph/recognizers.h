// The patterns of recognizePatterns. Each looks at the last node of its pattern and gives a value for its result, or
// null.
#pragma once

#include "ir/builder.h"
#include "passes/graph/attention_mask.h"
#include "passes/graph/match.h"

#include <map>
#include <vector>

namespace fsdpc {

/// (x - mean) / sqrt(variance + epsilon) over trailing axes becomes layer_norm; a product or sum with what each row is
/// multiplied by or added to then becomes its gamma or beta. Handles roots as sqrt, rsqrt and powers, squares as
/// products and powers, a mean as sum * 1/n or sum / n, and x * r + (beta - mean * r) with r = gamma / sqrt(variance +
/// epsilon).
Value *recognizeLayerNorm(Node &node, Builder &builder);

/// x / sqrt(mean(x * x) + epsilon) over trailing axes becomes rms_norm; a product with what each row is multiplied by
/// then becomes its gamma. Roots, squares and means as for layer_norm.
Value *recognizeRmsNorm(Node &node, Builder &builder);

/// x * 0.5 * (1 + erf(x / sqrt 2)) and x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x^3))), factors in any order and
/// grouping: `node` is the outermost product.
Value *recognizeGelu(Node &node, Builder &builder);

/// x * sigmoid(x) becomes silu, of which backward keeps x only.
Value *recognizeSilu(Node &node, Builder &builder);

/// x * cos + concat(-second half of x, first half of x) * sin becomes rotary (`node` is the sum), and so does
/// concat(first * cos - second * sin, second * cos + first * sin) of the halves of x (`node` is the concat). cos and
/// sin are anything without a path to a trainable parameter that is repeated to the shape of x but for its last axis.
/// Factors and terms in any order; x may be a part of a longer vector. If x was transposed, the transpose comes after
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
  /// Tables beside a transposed x, by its permutation, and doubled ones, by none: one for all layers, since a constant
  /// would be folded into a copy for each.
  std::map<std::pair<Value *, std::vector<int64_t>>, Value *> movedTables;
};

/// softmax(scale * q k^T + masks) v becomes attention: `node` is the last matmul.
/// - The scale may stand on q, on k, on both or on the scores; k may be transposed in any way; batch and heads may be
/// one axis or two,
///   also alternately; a guard that turns NaN rows into zeros is dropped (attention gives zeros by itself).
/// - Masks are added, subtracted or selected between scores and softmax. A constant one that hides nothing disappears,
/// one that hides
///   exactly the keys after the query becomes `causal`, any other an additive mask operand. A mask with a path to a
///   trainable parameter (a position bias) would lose its gradient: such attention stays as it is. So does one whose
///   probabilities are used elsewhere.
/// - Heads of k and v that were repeated for the queries of a group are read as they were before.
/// - If q, k and v all come from [B,S,H,D] through transpose {0,2,1,3}, attention reads that layout.
class AttentionRecognizer {
public:
  explicit AttentionRecognizer(const Function &function) : gradients(function) {}
  Value *recognize(Node &node, Builder &builder);

private:
  GradientPaths gradients;
  MaskClasses maskClasses;
};

} // namespace fsdpc

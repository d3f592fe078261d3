// Masks between attention scores and their softmax, which hide keys.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// One mask as it appears in the graph.
struct ScoreMask {
  enum class Kind : uint8_t {
    added,         ///< scores + value
    subtracted,    ///< scores - value
    visibleIfTrue, ///< select(value, scores, fill)
    hiddenIfTrue,  ///< select(value, fill, scores)
  };
  Kind kind = Kind::added;
  Value *value = nullptr;
  double fill = 0; ///< for the selecting kinds
  Shape scores;    ///< shape of the scores where the mask applies: [..., queries, keys]
};

/// True for a value that hides a key: its exponential vanishes next to a visible one.
bool isHiding(double number);

/// The effect of a constant mask on a matrix of scores.
enum class MaskClass : uint8_t { hidesNothing, causal, other };

/// Classifies constant masks, each once: the layers of a model share one mask.
class MaskClasses {
public:
  /// other for masks that are not constant.
  MaskClass of(const ScoreMask &mask);

private:
  llvm::DenseMap<std::pair<const Value *, int>, MaskClass> known;
};

/// The mask in additive form, its leading axes regrouped to `leading` (batch, heads), and no larger than necessary.
Value *additiveMask(const ScoreMask &mask, llvm::ArrayRef<int64_t> leading, Builder &builder);

} // namespace fsdpc

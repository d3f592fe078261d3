// What stands between the scores of an attention and their softmax to hide keys.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// One mask as the graph has it.
struct ScoreMask {
  enum class Kind : uint8_t {
    added,         ///< scores + value
    subtracted,    ///< scores - value
    visibleIfTrue, ///< select(value, scores, fill)
    hiddenIfTrue,  ///< select(value, fill, scores)
  };
  Kind kind = Kind::added;
  Value *value = nullptr;
  double fill = 0; ///< of the selecting kinds
  Shape scores;    ///< shape of the scores where it applies: [..., queries, keys]
};

/// A number that hides a key: nothing of its exponential is left beside a visible one.
bool isHiding(double number);

/// What a constant mask does to a matrix of scores.
enum class MaskClass : uint8_t { hidesNothing, causal, other };

/// Looks at constant masks, at each once: the layers of a model share one.
class MaskClasses {
public:
  /// other for masks that are not constant.
  MaskClass of(const ScoreMask &mask);

private:
  llvm::DenseMap<std::pair<const Value *, int>, MaskClass> known;
};

/// The mask in additive form, its leading axes regrouped to `leading` (batch, heads) and no larger than it has to be.
Value *additiveMask(const ScoreMask &mask, llvm::ArrayRef<int64_t> leading, Builder &builder);

} // namespace fsdpc

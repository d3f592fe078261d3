// A mask between attention scores and their softmax, which hides keys.
#pragma once

#include "ir/builder.h"

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

  bool selects() const { return kind == Kind::visibleIfTrue || kind == Kind::hiddenIfTrue; }
  /// For the selecting kinds: the number that gives the fill when it is added to any score. Scores plus the lowest
  /// float are the lowest float: exactly what a finite fill gives for a query all of whose keys are hidden.
  double hidden() const;
};

/// True for a value that hides a key: its exponential vanishes next to a visible one.
bool isHiding(double number);

} // namespace fsdpc

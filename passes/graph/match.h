// Matchers for values, used by the patterns. All look back a bounded number of nodes.
#pragma once

#include "ir/module.h"
#include "ir/op.h"
#include "ir/ops/helpers.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// The defining node if it has the op, else null.
Node *definedBy(const Value *value, Op op);

/// The elements if the value is a constant, else null.
const Dense *constantOf(const Value *value);

/// value = factor * base, with multiplications and divisions by constants and negations removed. The base may be the
/// value itself.
struct Scaled {
  Value *base;
  double factor = 1;
};
Scaled takeScaleOff(Value *value, int maxSteps = 8);

/// The value below reshapes, which keep the order of elements.
Value *belowReshapes(Value *value);
/// The value below broadcasts.
Value *belowBroadcasts(Value *value);
const Value *belowBroadcasts(const Value *value);

/// Equal up to `tolerance`, relative to the expected value: constants are rounded to float, sometimes to four digits.
bool isNear(double value, double expected, double tolerance = 1e-3);

/// Tests whether a path of differentiable values leads from a trainable parameter to a value.
class GradientPaths {
public:
  explicit GradientPaths(const Function &function);
  bool contains(const Value *value) const { return reached.contains(value); }
  /// `replacement` replaces `value`, which is about to be erased.
  void replace(const Value *value, const Value *replacement);

private:
  llvm::DenseSet<const Value *> reached;
};

} // namespace fsdpc

// Questions that patterns ask about values. All look a bounded number of nodes back.
#pragma once

#include "ir/module.h"
#include "ir/op.h"
#include "ir/ops/helpers.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// The defining node if it has the op, else null.
Node *definedBy(const Value *value, Op op);

/// The elements if the value is a constant itself, else null.
const Dense *constantOf(const Value *value);

/// value = factor * base: multiplications and divisions by numbers, and negations, taken off. The base may be the
/// value.
struct Scaled {
  Value *base;
  double factor = 1;
};
Scaled takeScaleOff(Value *value, int mostSteps = 8);

/// The value below reshapes that leave the order of elements alone.
Value *belowReshapes(Value *value);
/// The value below broadcasts.
Value *belowBroadcasts(Value *value);

/// Equal up to `tolerance` of the expected number: constants arrive rounded to float, sometimes to four digits.
bool isNear(double value, double expected, double tolerance = 1e-3);

/// Does some path of differentiable values lead from a trainable parameter to the value?
class GradientPaths {
public:
  explicit GradientPaths(const Function &function);
  bool contains(const Value *value) const { return reached.contains(value); }
  /// `replacement` takes the place of `value`, which is about to go.
  void replace(const Value *value, const Value *replacement);

private:
  llvm::DenseSet<const Value *> reached;
};

} // namespace fsdpc

// The operands of each optimizer op: its state fields and scalars, in operand order (ir/ops/optimizer.cpp). The
// train-stage update and its sharded form are both built from this table.
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "passes/support/update_guard.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

struct OptimizerLayout {
  Op op;
  OptimizerAttributes attributes;
  std::vector<std::string>
      fields; ///< states, in operand order after parameter and gradient; results follow the parameter's
  /// Operands after the states, of parameters in no group; `step` and `optimizer_step` are i64, the others f64. Empty
  /// if derived from a module, see updateScalars.
  std::vector<std::string> scalars;
  double initialState = 0;
  std::optional<UpdateGuard> guard = std::nullopt;
};

/// For resolved options. Momentum 0 means: no momentum buffer.
OptimizerLayout optimizerLayout(const OptimizerOptions &options);

/// Derived from the optimizer nodes of the train stage's update, so that edits of that stage are respected.
OptimizerLayout optimizerLayout(const Module &train);

/// One of the layout's fields for `owner`, a parameter or a segment of several; not yet part of a module.
State optimizerState(const std::string &owner, const Type &type, const std::string &field,
                     const OptimizerLayout &layout);

/// The moving average of a parameter or segment; null: it has none.
const State *averageOf(const Module &module, llvm::StringRef owner);

/// By parameter, the scalar states that its update in the train stage reads, in operand order.
llvm::StringMap<std::vector<std::string>> updateScalars(const Module &train);

/// Reads scalar states, each once.
class ScalarReads {
public:
  explicit ScalarReads(Builder &builder) : builder(builder) {}
  /// Where the builder stands, unless the state has been read.
  Value *read(const std::string &state) {
    Value *&value = values[state];
    return value ? value : value = builder.readState(*builder.module().state(state));
  }

private:
  Builder &builder;
  llvm::StringMap<Value *> values;
};

/// Adds the scalar states that the layout needs, if they do not exist yet.
void addScalarStates(Module &module, const OptimizerLayout &layout, const OptimizerOptions &options);

} // namespace fsdpc

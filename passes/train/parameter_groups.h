// Which scalars the update of each parameter reads: those of all, or its group's (--group, --no_decay, --layer_decay).
#pragma once

#include "passes/support/optimizer_layout.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class ParameterGroups {
public:
  /// Requires: trained parameters have their units. Errors: an expression that matches no trained parameter; two groups
  /// that claim one.
  static llvm::Expected<ParameterGroups> decide(const Module &module, llvm::ArrayRef<const Parameter *> trained,
                                                const OptimizerOptions &options, const OptimizerLayout &layout);

  /// The scalar states of a parameter's update, in the layout's order. Those of a group are named after the scalar that
  /// they replace and the group, as in lr.head, and after the layer if --layer_decay scales them: lr.layer3.
  const std::vector<std::string> &scalarsOf(const Parameter &parameter) const {
    return scalars.find(&parameter)->second;
  }
  /// The states of groups that are used, for the module.
  const std::vector<State> &states() const { return added; }
  /// One line for each group and for --no_decay: what it trains otherwise, and how.
  const std::vector<std::string> &remarks() const { return lines; }

private:
  friend class GroupPlanner;
  llvm::DenseMap<const Parameter *, std::vector<std::string>> scalars;
  std::vector<State> added;
  std::vector<std::string> lines;
};

/// True for what --no_decay norms_biases means: parameters of at most one dim, and those that are called bias.
bool isNormOrBias(const Parameter &parameter);

} // namespace fsdpc

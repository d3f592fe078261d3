// How far the results of one node may be from the evaluator's, on the same operands.
//
// A program computes in f32 and rounds where the IR's types require it. So a result may differ from the evaluator's
// value, rounded to the result's type, by one unit in the last place of that type, and for each intermediate sum of n
// terms by n x 2^-24 x the sum of their absolute values. Later operations propagate the error of a sum (tracked.h).
#pragma once

#include "ir/node.h"
#include "tests/bf16/tracked.h"

#include <optional>
#include <vector>

namespace fsdpc::rounding {

enum class Rule : uint8_t {
  exact,      ///< moves, comparisons, integers: every bit
  steps,      ///< elementwise chains: step by step, each step in its type
  sum,        ///< n and the sum of absolute terms, by evaluating the op on ones and on absolute operands
  rows,       ///< norms, softmax, losses: statistics of a row, and values computed from them
  attention,  ///< scores, probabilities, weighted sums
  linearLoss, ///< logits, their losses, weighted sums of their derivatives
  optimizer,  ///< one element of each tensor, and scalars
  numbers,    ///< a few scalars that programs also compute in f64: one unit in the last place
  nothing,    ///< no result of its own: passes memory to the runtime or to a state
};
llvm::StringRef nameOf(Rule rule);

/// Nothing for an op without a rule: the test then fails.
std::optional<Rule> ruleOf(const Node &node);

/// Roundings of the target's kernels in addition to the IR's.
struct KernelFacts {
  /// For attention in 16 bits: probabilities and their cotangents are operands of matmuls in that type.
  bool roundsProbabilities = false;
};

/// Per result, each element's allowed error in addition to one unit in the last place. `values` are the evaluator's
/// results.
using Errors = std::vector<std::vector<double>>;
Errors errorsOf(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values,
                const KernelFacts &facts);

/// The distance between neighbours of the type around x; 0 for integers.
double unitInLastPlace(DType dtype, double x);
/// x in the type, correctly converted.
double converted(DType dtype, double x);

/// The node's op evaluated on other operands of the same types.
std::vector<HostTensor> evaluated(const Node &node, llvm::ArrayRef<const HostTensor *> operands);

// ---- one per rule; called by errorsOf

Errors errorsOfSteps(const Node &node, llvm::ArrayRef<const HostTensor *> operands);
Errors errorsOfSum(const Node &node, llvm::ArrayRef<const HostTensor *> operands);
Errors errorsOfRows(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values);
Errors errorsOfAttention(const Node &node, llvm::ArrayRef<const HostTensor *> operands, const KernelFacts &facts);
Errors errorsOfLinearLoss(const Node &node, llvm::ArrayRef<const HostTensor *> operands);
Errors errorsOfOptimizer(const Node &node, llvm::ArrayRef<const HostTensor *> operands,
                         llvm::ArrayRef<HostTensor> values);

} // namespace fsdpc::rounding

// How far the results of one node may be from the evaluator's, on the same operands.
//
// A program computes in f32 and rounds where the IR's types say. So a result may differ from the evaluator's value,
// rounded to the result's type, by one unit in the last place of that type, and for each sum of n terms on the way by
// n x 2^-24 x the sum of their absolute values; what one sum is off, operations behind it carry on (tracked.h).
#pragma once

#include "ir/node.h"
#include "tests/bf16/tracked.h"

#include <optional>
#include <vector>

namespace fsdpc::rounding {

enum class Rule : uint8_t {
  exact,     ///< moves, comparisons, integers: every bit
  steps,     ///< elementwise chains: step by step, each in its type
  sum,       ///< n and the sum of absolute terms by the op itself, on ones and on absolute operands
  rows,      ///< norms, softmax, losses: statistics of a row, and what is made of them
  attention, ///< scores, probabilities, weighted sums
  optimizer, ///< one element of each tensor, and numbers
  numbers,   ///< few numbers that programs compute in f64, too: one unit in the last place
  nothing,   ///< no result of its own: hands memory to the runtime or to a state
};
llvm::StringRef nameOf(Rule rule);

/// Nothing for an op that no rule knows: the test then fails.
std::optional<Rule> ruleOf(const Node &node);

/// What the target's kernels round in between, beside what the IR says.
struct KernelFacts {
  /// Of attention in 16 bits: probabilities and their cotangents are factors of products in that type.
  bool roundsProbabilities = false;
};

/// Per result, what each element may be off beside one unit in the last place. `values` are the evaluator's results.
using Errors = std::vector<std::vector<double>>;
Errors errorsOf(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values,
                const KernelFacts &facts);

/// The distance between neighbours of the type around x; 0 for integers.
double unitInLastPlace(DType dtype, double x);
/// x in the type: what a correct conversion gives.
double converted(DType dtype, double x);

/// The node's op on other operands of the same types.
std::vector<HostTensor> evaluated(const Node &node, llvm::ArrayRef<const HostTensor *> operands);

// ---- one per rule; called by errorsOf

Errors errorsOfSteps(const Node &node, llvm::ArrayRef<const HostTensor *> operands);
Errors errorsOfSum(const Node &node, llvm::ArrayRef<const HostTensor *> operands);
Errors errorsOfRows(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values);
Errors errorsOfAttention(const Node &node, llvm::ArrayRef<const HostTensor *> operands, const KernelFacts &facts);
Errors errorsOfOptimizer(const Node &node, llvm::ArrayRef<const HostTensor *> operands);

} // namespace fsdpc::rounding

// Value numbering: every value of a function is a term, and equal terms have one number, whichever module they come
// from.
//
// Terms have a normal form, so that what passes may rewrite without changing a bit gives equal numbers:
//   copies are their operand; a reshape of a reshape is one reshape, to the same shape none;
//   a constant that is one value throughout is that value, whatever its shape;
//   elementwise ops are computed at the smallest shape their operands have together, and broadcast from there: so
//   add(broadcast x, broadcast y) = broadcast(add(x, y)), and a fused body is its steps;
//   of one operand, such as a cast, they are computed before that operand is reshaped;
//   a sum over ranks of a reshape is the reshape of the sum; on one rank alone it is its operand;
//   a norm with a residual is the norm of the add, which is its last result; a norm's gradient with an addend is the
//   gradient and an add, in whichever order that add has been met;
//   a square_sum is that of flat tensors in any order, and the sum over the ranks that hold the parts of them is that
//   of the whole; clip_norm of several accumulators is clip_norm of the one for all their tensors (an accumulator is a
//   number, and only clip_norm reads it: ir/ops/guard.h);
//   update_statistics is a product, a product and a sum, elementwise; of several micro-steps it is that of one, as
//   often as there are, from what the step found on; the sum of terms rounded to 16 bits, made f32 again, is one term
//   over what is rounded: a rounded sum, which knows its type. A sum that rounds otherwise, or what is rounded once
//   more before it is summed, is another term; the sum over the groups that lie side by side of the sums over their
//   ranks is the sum over all of them: batch_sum is one over all ranks. (Bits are equal where the inner groups have a
//   power of two of ranks: ir/ops/collective.cpp.)
// Nothing else is rewritten: operands keep their order, sums their nesting. But one thing changes bits: micro-step k of
// rank r counts as rank k * worldSize + r, a sum over micro-steps is one over such ranks that are worldSize apart, and
// stands outside of sums over the ranks of a micro-step, whichever came first.
#pragma once

#include "ir/module.h"
#include "ir/op.h"
#include "passes/check/rank_group.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <deque>

namespace fsdpc::check {

using TermId = int32_t;

class Terms {
public:
  enum class Kind : uint8_t {
    node,        ///< an op over terms
    splat,       ///< a constant of one value
    state,       ///< a state as it is when the function is entered
    accumulator, ///< what the micro-steps before this one have summed; `completed` gives terms a meaning without it.
                 ///< Or made of a running statistic; `afterMicroSteps` does
    input,
    carry, ///< a result of an earlier function
  };
  struct Term {
    Kind kind = Kind::node;
    Op op = Op::constant; ///< of a node
    unsigned result = 0;  ///< of a node: which of its results
    Type type;
    uint64_t payload = 0;          ///< splat: the element's bytes; leaves: index of the name; rounded sum: its type + 1
    RankGroup group = {};          ///< batch_sum: the ranks it is over; square_sum: those that hold the other parts
    bool isSameOnAllRanks = false; ///< of a micro-step
    bool isPartial = false;        ///< depends on what the micro-steps before have summed
    const AttributesBase *attributes = nullptr;
    uint32_t firstOperand = 0, operandCount = 0;
    const Node *origin = nullptr; ///< the first node that computes it, for messages; may be null
  };

  explicit Terms(int64_t worldSize, int64_t microSteps = 1) : worldSize(worldSize), microSteps(microSteps) {}

  /// What batch_sum is over in the function that is read next: the ranks, and in those that run in every micro-step the
  /// micro-steps too.
  void setBatch(bool spansMicroSteps) { batch = {1, worldSize * (spansMicroSteps ? microSteps : 1)}; }

  TermId leaf(Kind kind, llvm::StringRef name, const Type &type, const Node *origin = nullptr);
  /// All results of a node whose operands are these terms. Not for ops on states, nor for those that spread segments.
  llvm::SmallVector<TermId, 2> apply(const Node &node, llvm::ArrayRef<TermId> operands);
  /// One result of an op over other operands than the node's own.
  TermId applyOne(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type);
  /// The results of an optimizer node over one parameter. What it copies is its first result, rounded: an operand that
  /// it does not read, and no difference to an optimizer without copy.
  llvm::SmallVector<TermId, 4> applyOptimizer(const Node &node, llvm::ArrayRef<TermId> operands);
  TermId reshape(TermId x, llvm::ArrayRef<int64_t> shape, const Node *origin = nullptr);
  TermId cast(TermId x, DType dtype);
  /// The accumulator of this rank's part of each tensor, where `split` has the ranks that hold the others. A tensor
  /// that is there twice counts twice.
  TermId squareSum(llvm::ArrayRef<TermId> tensors, RankGroup split, const Node *origin);
  /// The sum over the ranks of a group, on each of them.
  TermId batchSum(TermId x, RankGroup group, const Node *origin = nullptr);
  /// batch_sum of x, which is f32, rounded to `sent`, in f32 again: every summand is rounded and the sum of each group.
  /// Sums over micro-steps are in f32 and stand outside of it.
  TermId roundedSum(TermId x, RankGroup group, DType sent, const Node *origin);
  /// The sum over the micro-steps of a step, on each rank.
  TermId microSum(TermId x, const Node *origin = nullptr) { return batchSum(x, microGroup(), origin); }
  /// x of add(accumulator, x), in any order, if x does not depend on other micro-steps; -1 if the term is none.
  TermId summandOf(TermId sum, TermId accumulator) const;
  /// What a term is in the last micro-step, where an accumulator and its summand are the sum over all of them.
  TermId completed(TermId x);
  /// All elements are 0.
  bool isZero(TermId x) const;
  TermId zeros(const Type &type);
  TermId add(TermId a, TermId b, const Node *origin);
  /// A loop of elementwise steps over operands of one shape, whatever shape the node has; the node is elementwise or
  /// fused.
  llvm::SmallVector<TermId, 2> loop(const Node &node, llvm::ArrayRef<TermId> operands, llvm::ArrayRef<int64_t> shape);
  /// A running statistic that a micro-step finds, before all of them `before`.
  TermId runningStatistic(llvm::StringRef name, const Type &type) { return leaf(Kind::accumulator, name, type); }
  /// What all micro-steps together make of a running statistic, where each makes `next` of what it finds.
  TermId afterMicroSteps(TermId before, TermId next, const Node *origin);
  /// Is it certain that all ranks of a group have the same value? Inputs differ, and what is computed from them until
  /// it is summed.
  bool isSameOnRanksOf(TermId x, RankGroup group) const;

  const Term &operator[](TermId id) const { return terms[id]; }
  llvm::ArrayRef<TermId> operandsOf(TermId id) const {
    return llvm::ArrayRef(operandPool).slice(terms[id].firstOperand, terms[id].operandCount);
  }
  /// "state @w", "input %x", "constant 0.5", "'%3 = mul %1, %2 : f32[4]' of micro_step"
  std::string describe(TermId id) const;
  /// Follows two different terms down to where they begin to differ.
  std::pair<TermId, TermId> firstDifference(TermId a, TermId b) const;

private:
  RankGroup microGroup() const { return microSteps > 1 ? RankGroup{worldSize, microSteps} : RankGroup{}; }
  TermId withoutReshape(TermId x) const;
  bool isMicroSum(TermId x) const;
  /// What a cast to f32 makes of a sum of 16-bit terms; -1 if x is none.
  TermId widenedSum(TermId x, const Node *origin);
  TermId over(TermId x, llvm::ArrayRef<TermId> operands);
  TermId intern(Term term, llvm::ArrayRef<TermId> operands);
  static uint64_t hashOfTerm(const Term &term, llvm::ArrayRef<TermId> operands);
  /// -1: it has not been met.
  TermId find(const Term &term, llvm::ArrayRef<TermId> operands) const;
  bool isSame(const Term &term, llvm::ArrayRef<TermId> operands) const;
  bool isTerm(TermId id, const Term &term, llvm::ArrayRef<TermId> operands) const;
  TermId constant(const Node &node);
  TermId updatedStatistics(const Node &node, llvm::ArrayRef<TermId> operands);
  TermId clipNorm(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type);
  TermId splat(const Type &type, llvm::ArrayRef<uint8_t> element, const Node *origin);
  TermId broadcast(TermId x, llvm::ArrayRef<int64_t> shape, const Node *origin);
  /// x without leading dims of 1 and, if it is a broadcast, what is broadcast.
  TermId sourceOf(TermId x);
  /// `inAnyOrder`: the same op over the operands in reverse is as good, if that is what has been met.
  TermId elementwise(Op op, DType dtype, llvm::ArrayRef<TermId> operands, llvm::ArrayRef<int64_t> shape,
                     const Node *origin, bool inAnyOrder = false);
  TermId random(const Expression::Step &step, llvm::ArrayRef<TermId> operands, llvm::ArrayRef<int64_t> shape,
                const Node *origin);
  llvm::SmallVector<TermId, 2> fused(const Node &node, llvm::ArrayRef<TermId> operands, llvm::ArrayRef<int64_t> shape);
  /// A norm with a residual, or a norm's gradient with an addend.
  llvm::SmallVector<TermId, 2> addingNorm(const Node &node, llvm::ArrayRef<TermId> operands);

  const int64_t worldSize, microSteps;
  RankGroup batch = {1, worldSize};
  std::vector<Term> terms;
  std::vector<TermId> operandPool;
  std::vector<TermId> nextOfSameHash; ///< per term; -1: none
  llvm::DenseMap<uint64_t, TermId> firstOfHash;
  llvm::StringMap<uint64_t> nameIndices;
  std::vector<llvm::StringRef> names;
  std::deque<std::unique_ptr<AttributesBase>> ownAttributes;
};

} // namespace fsdpc::check

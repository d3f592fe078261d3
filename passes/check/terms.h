// Value numbering: every value of a function is a term, and equal terms have the same number, in either module.
//
// Terms have a normal form, so that bitwise exact rewrites of passes produce equal numbers:
//   copies equal their operand; a reshape of a reshape is one reshape, a reshape to the same shape is none;
//   a constant with equal elements is that value, whatever its shape;
//   elementwise ops are computed at the smallest common shape of their operands, and broadcast from there: so
//   add(broadcast x, broadcast y) = broadcast(add(x, y)), and a fused body equals its steps;
//   elementwise ops with one operand, such as a cast, are computed before that operand is reshaped;
//   rows looked up in a table that is cast are the cast of the table's rows;
//   a sum over ranks of a reshape is the reshape of the sum; on a single rank it is its operand;
//   a norm with a residual is the norm of the add, which is its last result; a norm's gradient with an addend is the
//   gradient and an add, in the operand order in which that add already exists;
//   a square_sum is that of flat tensors in any order, and its sum over the ranks that hold their parts is that of the
//   unsharded tensors; clip_norm of several accumulators is clip_norm of the one for all their tensors (an accumulator
//   is a scalar, and only clip_norm reads it: ir/ops/guard.h);
//   update_statistics is a product, a product and a sum, elementwise; for several micro-steps it is that of one, once
//   per micro-step, beginning with the value at the start of the step;
//   the sum of terms rounded to 16 bits, promoted to f32, is one term over the rounded values: a rounded sum, which
//   knows its type. A sum with another rounding, or of values that are rounded again before the sum, is another term;
//   the sum over neighbouring groups of the sums over their ranks is the sum over all of them: batch_sum is one over
//   all ranks. (They are bitwise identical where the inner groups have a power of two of ranks: ir/ops/collective.cpp.)
// Nothing else is rewritten: operands keep their order, sums their nesting. One rewrite changes bits: micro-step k of
// rank r counts as rank k * worldSize + r. A sum over micro-steps is a sum over such ranks with distance worldSize, and
// is outside of sums over the ranks of a micro-step, regardless of the original order.
#pragma once

#include "ir/module.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
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
    splat,       ///< a constant with equal elements
    state,       ///< a state at function entry
    accumulator, ///< the sum of earlier micro-steps; `completed` resolves terms that contain it.
                 ///< Or a running statistic after them, resolved by `afterMicroSteps`
    input,
    carry, ///< a result of an earlier function
  };
  struct Term {
    Kind kind = Kind::node;
    Op op = Op::constant; ///< of a node
    unsigned result = 0;  ///< of a node: index of the result
    Type type;
    uint64_t payload = 0;          ///< splat: the element's bytes; leaves: index of the name; rounded sum: its type + 1
    RankGroup group = {};          ///< batch_sum: the ranks it sums over; square_sum: those that hold the other parts
    bool isSameOnAllRanks = false; ///< of a micro-step
    bool isPartial = false;        ///< depends on the sum of earlier micro-steps
    const AttributesBase *attributes = nullptr;
    uint32_t firstOperand = 0, operandCount = 0;
    const Node *origin = nullptr; ///< the first node that computes it, for messages; may be null
  };

  explicit Terms(int64_t worldSize, int64_t microSteps = 1) : worldSize(worldSize), microSteps(microSteps) {}

  /// Sets the ranks of batch_sum in the next function: the ranks and, in functions that run in every micro-step, the
  /// micro-steps too.
  void setBatch(bool spansMicroSteps) { batch = {1, worldSize * (spansMicroSteps ? microSteps : 1)}; }

  TermId leaf(Kind kind, llvm::StringRef name, const Type &type, const Node *origin = nullptr);
  /// All results of a node with these operand terms. Not for ops on states or ops that distribute segments.
  llvm::SmallVector<TermId, 2> apply(const Node &node, llvm::ArrayRef<TermId> operands);
  /// One result of an op over operands other than the node's own.
  TermId applyOne(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type);
  /// The results of an optimizer node for one parameter. Its copy is its first result, rounded: not an operand that it
  /// reads, and no difference from an optimizer without copy.
  llvm::SmallVector<TermId, 4> applyOptimizer(const Node &node, llvm::ArrayRef<TermId> operands);
  TermId reshape(TermId x, llvm::ArrayRef<int64_t> shape, const Node *origin = nullptr);
  TermId cast(TermId x, DType dtype);
  /// The accumulator for this rank's part of each tensor. The ranks of `split` hold the other parts. A duplicate tensor
  /// counts twice.
  TermId squareSum(llvm::ArrayRef<TermId> tensors, RankGroup split, const Node *origin);
  /// The sum over the ranks of a group, available on each of them.
  TermId batchSum(TermId x, RankGroup group, const Node *origin = nullptr);
  /// batch_sum of x (f32) rounded to `sent` and promoted to f32: every summand and every group's sum is rounded. Sums
  /// over micro-steps are in f32 and outside of it.
  TermId roundedSum(TermId x, RankGroup group, DType sent, const Node *origin);
  /// The sum over the micro-steps of a step, available on each rank.
  TermId microSum(TermId x, const Node *origin = nullptr) { return batchSum(x, microGroup(), origin); }
  /// x of add(accumulator, x), in either order, if x does not depend on other micro-steps; -1 if there is none.
  TermId summandOf(TermId sum, TermId accumulator) const;
  /// The term in the last micro-step, where an accumulator plus its summand is the sum over all micro-steps.
  TermId completed(TermId x);
  // Lookups along axis 0 are terms over flat indices and rows, so that it does not matter where they are reshaped.
  /// What an all_gather gives of tensors that differ between ranks.
  TermId ofAllRanks(TermId x, RankGroup group, const Node &node);
  /// The operand of ofAllRanks over this group; -1 if x is none.
  TermId operandOfAllRanks(TermId x, RankGroup group) const;
  /// A rank's summand of the rows that the ranks of the group look up, and the sum for this rank, flat; -1 if the term
  /// is no such summand.
  TermId answers(TermId table, TermId indices, const RowsAttributes &rows, RankGroup group, const Node &node);
  TermId lookedUp(TermId answers, RankGroup group, const Node &node);
  /// The scatter_add of this rank's updates.
  TermId addedRows(TermId indices, TermId updates, const RowsAttributes &rows, const Node &node);
  /// True if all elements are 0.
  bool isZero(TermId x) const;
  TermId zeros(const Type &type);
  TermId add(TermId a, TermId b, const Node *origin);
  /// A loop of elementwise steps over operands of one shape, whatever shape the node has; the node is elementwise or
  /// fused.
  llvm::SmallVector<TermId, 2> loop(const Node &node, llvm::ArrayRef<TermId> operands, llvm::ArrayRef<int64_t> shape);
  /// A running statistic at the start of a micro-step. Before all micro-steps it is `before`.
  TermId runningStatistic(llvm::StringRef name, const Type &type) { return leaf(Kind::accumulator, name, type); }
  /// A running statistic after all micro-steps, each of which computes `next` from the previous value.
  TermId afterMicroSteps(TermId before, TermId next, const Node *origin);
  /// True if all ranks of a group certainly have the same value. Inputs differ, and so do values computed from them
  /// until they are summed.
  bool isSameOnRanksOf(TermId x, RankGroup group) const;

  const Term &operator[](TermId id) const { return terms[id]; }
  llvm::ArrayRef<TermId> operandsOf(TermId id) const {
    return llvm::ArrayRef(operandPool).slice(terms[id].firstOperand, terms[id].operandCount);
  }
  /// "state @w", "input %x", "constant 0.5", "'%3 = mul %1, %2 : f32[4]' of micro_step"
  std::string describe(TermId id) const;
  /// Follows two different terms down to the first difference.
  std::pair<TermId, TermId> firstDifference(TermId a, TermId b) const;

private:
  RankGroup microGroup() const { return microSteps > 1 ? RankGroup{worldSize, microSteps} : RankGroup{}; }
  TermId withoutReshape(TermId x) const;
  bool isMicroSum(TermId x) const;
  /// The result of a cast to f32 of a sum of 16-bit terms; -1 if x is none.
  TermId promotedSum(TermId x, const Node *origin);
  TermId over(TermId x, llvm::ArrayRef<TermId> operands);
  TermId intern(Term term, llvm::ArrayRef<TermId> operands);
  static uint64_t hashOfTerm(const Term &term, llvm::ArrayRef<TermId> operands);
  /// -1: not found.
  TermId find(const Term &term, llvm::ArrayRef<TermId> operands) const;
  bool isSame(const Term &term, llvm::ArrayRef<TermId> operands) const;
  bool isTerm(TermId id, const Term &term, llvm::ArrayRef<TermId> operands) const;
  TermId constant(const Node &node);
  TermId updatedStatistics(const Node &node, llvm::ArrayRef<TermId> operands);
  TermId rowsOf(TermId table, TermId indices, const Node *origin);
  TermId addRows(TermId indices, TermId updates, const ScatterAddAttributes &attributes, DType dtype,
                 const Node *origin);
  TermId clipNorm(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type);
  TermId splat(const Type &type, llvm::ArrayRef<uint8_t> element, const Node *origin);
  TermId broadcast(TermId x, llvm::ArrayRef<int64_t> shape, const Node *origin);
  /// x without leading dims of 1 and, if it is a broadcast, its source.
  TermId sourceOf(TermId x);
  /// `inAnyOrder`: uses the existing term with reversed operands, if there is one.
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

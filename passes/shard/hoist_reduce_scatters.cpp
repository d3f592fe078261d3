#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

/// The value whose node computes a part's memory: the part itself, through reshapes.
Value *computedValue(Value *part) {
  while (part->definer() && part->definer()->op() == Op::reshape)
    part = part->definer()->operand(0);
  return part;
}

/// True if the part can be computed in place in the pack. False if its memory has another owner (an argument, a state,
/// a gathered buffer, another pack) or if the same part occurs twice.
bool computedInPlace(Value *part, llvm::DenseSet<Value *> &taken) {
  Value *value = computedValue(part);
  Node *definer = value->definer();
  if (!definer || value->type().elements() != part->type().elements() || !taken.insert(value).second)
    return false;
  const OpInfo &info = infoOf(*definer);
  return !info.has(aliasesOperand) && !info.has(collective) && definer->op() != Op::read && definer->op() != Op::pack &&
         definer->op() != Op::wait && definer->op() != Op::constant;
}

class ReduceScatterHoister {
public:
  explicit ReduceScatterHoister(Function &function) : function(function) {}

  void run() {
    // Collected first: the walk would visit a hoisted pack again.
    std::vector<Node *> packs;
    for (Node *node : function)
      if (node->op() == Op::pack)
        packs.push_back(node);
    for (Node *node : packs)
      hoist(*node);
  }

private:
  void hoist(Node &packed) {
    copyForeignParts(packed);
    Node *last = nullptr;
    for (Value *part : packed.operands())
      if (Node *definer = part->definer(); definer && (!last || last->isBefore(definer)))
        last = definer;
    if (!last)
      return;
    place(packed, last);
    Node *end = &packed;
    while (Node *reduction = reductionOf(*end)) {
      place(*reduction, end);
      end = reduction;
    }
  }

  /// The next collective in the chain that sums a pack over all ranks.
  static Node *reductionOf(const Node &summand) {
    for (Use *use = summand.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::reduceScatter || use->user()->op() == Op::allReduce)
        return use->user();
    return nullptr;
  }

  static void place(Node &node, Node *after) {
    node.moveAfter(after);
    node.section = after->section;
  }

  void copyForeignParts(Node &packed) {
    for (unsigned i = 0; i < packed.operandCount(); ++i) {
      Value *part = packed.operand(i);
      if (computedInPlace(part, taken))
        continue;
      Builder builder(function, &packed);
      builder.inherit(packed);
      if (part->definer()) {
        builder.inherit(*part->definer());
        builder.setInsertionPointAfter(part->definer());
      }
      Value *copy = builder.create(Op::copy, {part})->result();
      taken.insert(copy);
      packed.setOperand(i, copy);
    }
  }

  Function &function;
  llvm::DenseSet<Value *> taken;
};

llvm::Error run(Module &module, const PassContext &) {
  ReduceScatterHoister(*module.function(FunctionKind::microStep)).run();
  return llvm::Error::success();
}

} // namespace

const Pass hoistReduceScatters = {"hoist_reduce_scatters", Stage::sharded, Stage::sharded, false, run,
                                  FunctionKind::microStep};

} // namespace fsdpc

// The derivative of reading a tensor in slices (q, k and v of one matmul) sums the slices, each padded with zeros to
// the full shape. Where the slices tile the full tensor, they are concatenated instead.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

namespace fsdpc {

namespace {

/// A summand: a padded slice and its position in the full tensor.
struct Part {
  Value *summand; ///< the summand: the padded slice, perhaps reshaped
  Node *pad;
  int64_t begin, end; ///< on the only axis that is padded
};

/// Key of slices that may tile one tensor: its shape and the padded axis.
using FullKey = std::pair<std::vector<int64_t>, int64_t>;

/// Adjacent slices. `last` is the one that is padded last, when all of them are defined.
struct Tiling {
  std::vector<Part> parts;
  size_t last = 0;
};

/// The only axis that the node pads, if it pads with zeros on the outside only; else -1.
int64_t paddedAxis(const Node &node) {
  if (node.op() != Op::pad)
    return -1;
  const auto &pad = node.get<PadAttributes>();
  if (pad.value != 0 || llvm::any_of(pad.interior, [](int64_t count) { return count != 0; }))
    return -1;
  int64_t found = -1;
  for (size_t axis = 0; axis < pad.before.size(); ++axis) {
    if (pad.before[axis] == 0 && pad.after[axis] == 0)
      continue;
    if (found >= 0)
      return -1;
    found = static_cast<int64_t>(axis);
  }
  return found;
}

class Combiner {
public:
  explicit Combiner(Function &function) : function(function) {}

  void run() {
    std::vector<Tiling> tilings;
    for (Node *node : function)
      if (node->op() == Op::add && !isInsideSum(*node))
        collectTilings(*node, tilings);
    for (const Tiling &tiling : tilings)
      combine(tiling);
    eraseDeadNodes(function);
  }

private:
  /// True if the sum is used once, perhaps reshaped, as a summand of another add.
  static bool isInsideSum(const Node &add) {
    const Value *value = add.result();
    while (value->hasOneUse() && value->uses()->user()->op() == Op::reshape)
      value = value->uses()->user()->result();
    return value->hasOneUse() && value->uses()->user()->op() == Op::add;
  }

  /// The defining node, through reshapes without other uses. Null where another node reads the value.
  static Node *ownDefiner(const Value *value) {
    while (value->hasOneUse() && value->definer() && value->definer()->op() == Op::reshape)
      value = value->definer()->operand(0);
    return value->hasOneUse() ? value->definer() : nullptr;
  }

  /// Every add belongs to one sum, so collecting all sums is one walk over the function.
  static void collectTilings(Node &sum, std::vector<Tiling> &tilings) {
    std::map<FullKey, std::vector<Part>> wholes;
    llvm::SmallVector<Node *, 8> adds = {&sum};
    while (!adds.empty()) {
      Node *add = adds.pop_back_val();
      for (Value *summand : add->operands()) {
        Node *definer = ownDefiner(summand);
        if (definer && definer->op() == Op::add)
          adds.push_back(definer);
        else if (int64_t axis = definer ? paddedAxis(*definer) : -1; axis >= 0)
          wholes[{definer->result()->type().shape().vec(), axis}].push_back(partOf(summand, definer, axis));
      }
    }
    for (auto &[key, parts] : wholes) {
      llvm::sort(parts, [](const Part &a, const Part &b) { return a.begin < b.begin; });
      if (isTiling(parts, key.first[key.second])) {
        size_t last = lastPadded(parts);
        tilings.push_back({std::move(parts), last});
      }
    }
  }

  static Part partOf(Value *summand, Node *pad, int64_t axis) {
    int64_t begin = pad->get<PadAttributes>().before[axis];
    return {summand, pad, begin, begin + pad->operand(0)->type().dim(axis)};
  }

  static bool isTiling(llvm::ArrayRef<Part> parts, int64_t size) {
    int64_t covered = 0;
    for (const Part &part : parts) {
      if (part.begin != covered)
        return false;
      covered = part.end;
    }
    return covered == size;
  }

  /// Determined before any change: after an insertion `isBefore` may renumber all nodes of the function.
  static size_t lastPadded(llvm::ArrayRef<Part> parts) {
    size_t last = 0;
    for (size_t i = 1; i < parts.size(); ++i)
      if (parts[last].pad->isBefore(parts[i].pad))
        last = i;
    return last;
  }

  /// The concat replaces the last slice in the sum and the other slices are removed. The remaining summands keep their
  /// order.
  void combine(const Tiling &tiling) {
    Node &last = *tiling.parts[tiling.last].pad;
    llvm::SmallVector<Value *, 4> operands;
    for (const Part &part : tiling.parts)
      operands.push_back(part.pad->operand(0));
    Builder builder(function, &last);
    builder.inherit(last);
    last.result()->replaceAllUsesWith(builder.create(Op::concat, operands, AxisAttributes{paddedAxis(last)})->result());
    for (const Part &part : tiling.parts)
      if (&part != &tiling.parts[tiling.last])
        closePlace(*part.summand);
  }

  static void closePlace(const Value &summand) {
    const Use *use = summand.uses();
    Node *add = use->user();
    Value *other = add->operand(1 - use->index());
    if (other->name().empty())
      other->setName(add->result()->name());
    add->result()->replaceAllUsesWith(other);
    add->erase();
  }

  Function &function;
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    Combiner(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass combineGradients = {"combine_gradients", Stage::train, Stage::train, /*optional=*/true, run};

} // namespace fsdpc

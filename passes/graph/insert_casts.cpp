// The forward graph in a 16-bit type: what parameters and float inputs influence is computed in it, the rest
// (positions, masks, random numbers) stays as it is. Parameters stay f32 themselves and are rounded where they are
// used, each use by itself, so that the parts of a gradient are added in f32. Outputs are f32 again.
#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>

namespace fsdpc {

namespace {

class CastInserter {
public:
  CastInserter(Function &function, DType low) : function(function), builder(function), low(low) {}

  void run() {
    for (const Argument &argument : function.arguments())
      if (argument.value->type().dtype() == DType::f32)
        rounded.insert(argument.value.get());
    for (Node *node : function) {
      builder.setInsertionPoint(node);
      builder.inherit(*node);
      if (node->op() == Op::ret)
        widenResults(*node);
      else if (node->op() == Op::read && node->result()->type().dtype() == DType::f32)
        rounded.insert(node->result());
      else
        convert(*node);
    }
  }

private:
  bool isLow(const Value *value) const { return value->type().dtype() == low || rounded.contains(value); }

  /// An operand that its op takes in f32 only.
  static bool staysWide(const Node &node, unsigned operand) { return node.op() == Op::attention && operand == 3; }

  /// The node over operands of the low type if one of them has it; over f32 ones where the op does not take others.
  void convert(Node &node) {
    bool any = false;
    for (unsigned i = 0; i < node.operandCount(); ++i)
      any |= isLow(node.operand(i)) && !staysWide(node, i);
    if (any && rebuild(node, low))
      return;
    [[maybe_unused]] bool rebuilt = rebuild(node, DType::f32);
    assert(rebuilt && "the node was there with f32 operands");
  }

  bool rebuild(Node &node, DType wanted) {
    llvm::SmallVector<Value *, 4> operands;
    bool changes = false;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      operands.push_back(as(node.operand(i), staysWide(node, i) ? DType::f32 : wanted));
      changes |= operands.back() != node.operand(i) || operands.back()->type().dtype() == low;
    }
    if (!changes)
      return true;
    auto copy = builder.tryCreate(node.op(), operands, node.attributes() ? node.attributes()->clone() : nullptr);
    if (!copy) {
      llvm::consumeError(copy.takeError());
      return false;
    }
    for (unsigned i = 0; i < node.resultCount(); ++i) {
      (*copy)->result(i)->setName(node.result(i)->name());
      node.result(i)->replaceAllUsesWith((*copy)->result(i));
    }
    node.erase();
    return true;
  }

  /// Floats of f32 and of the low type only are converted. f32 operands that nothing low meets stay as they are.
  Value *as(Value *value, DType wanted) {
    DType dtype = value->type().dtype();
    if (dtype == wanted || (dtype != DType::f32 && dtype != low))
      return value;
    if (Node *constant = wanted == low ? definedBy(value, Op::constant) : nullptr)
      return roundedConstant(*constant);
    if (value->definer())
      return builder.cast(value, wanted);
    Value *&once = roundedInputs[value];
    return once ? once : once = builder.cast(value, wanted);
  }

  /// A number beyond the type's range, as masks have them, becomes the last one within: infinity would make NaN of a
  /// difference.
  Value *roundedConstant(Node &node) {
    const Dense &value = node.get<ConstantAttributes>().value;
    std::vector<double> elements;
    for (int64_t i = 0; i < value.storedElements(); ++i) {
      double exact = value.at(i), near = roundedTo(low, exact);
      if (std::isinf(near) && std::isfinite(exact))
        near = std::copysign(low == DType::bf16 ? 0x1.fep127 : 65504.0, exact);
      elements.push_back(near);
    }
    Dense rounded = value.isSplat() ? Dense::splat(low, elements[0]) : Dense::fromDoubles(low, elements);
    return builder.constant(node.result()->type().withDType(low), std::move(rounded));
  }

  void widenResults(Node &ret) {
    for (unsigned i = 0; i < ret.operandCount(); ++i)
      ret.setOperand(i, as(ret.operand(i), DType::f32));
  }

  Function &function;
  Builder builder;
  const DType low;
  llvm::DenseSet<const Value *> rounded; ///< f32 values that are rounded where they are used
  llvm::DenseMap<const Value *, Value *> roundedInputs;
};

llvm::Error run(Module &module, const PassContext &context) {
  if (context.options.paramDType != DType::f32)
    CastInserter(*module.function(FunctionKind::forward), context.options.paramDType).run();
  return llvm::Error::success();
}

} // namespace

const Pass insertCasts = {"insert_casts", Stage::graph, Stage::graph, false, run};

} // namespace fsdpc

// Computes the forward graph in a 16-bit type, possibly a different one per unit. Values that depend on parameters or
// float inputs are computed in it. Others (positions, masks, random numbers) keep their type. Parameters stay f32 and
// are rounded separately at each use, so that the parts of a gradient are added in f32. A value is converted once
// between units of different types and for outputs.
#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "passes/support/precision.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallSet.h"
#include <cmath>
#include <map>

namespace fsdpc {

namespace {

class CastInserter {
public:
  CastInserter(Module &module, const PipelineOptions &options)
      : module(module), options(options), function(*module.function(FunctionKind::forward)), builder(function) {
    for (int32_t unit = -1; unit < static_cast<int32_t>(module.units.size()); ++unit)
      if (DType dtype = paramDTypeOf(module, unit, options); dtype != DType::f32)
        computed.insert(dtype);
  }

  /// True if nothing changes.
  bool isIdle() const { return computed.empty() && options.outputDType == DType::f32 && !options.bufferDType; }

  void run() {
    for (const Argument &argument : function.arguments())
      if (options.castForwardInputs && argument.value->type().dtype() == DType::f32)
        rounded.insert(argument.value.get());
    for (Node *node : function) {
      builder.setInsertionPoint(node);
      builder.inherit(*node);
      if (node->op() == Op::ret)
        convertResults(*node);
      else if (node->op() == Op::read && node->result()->type().dtype() == DType::f32)
        rounded.insert(node->result());
      else
        convert(*node, paramDTypeOf(module, node->unit, options));
    }
  }

private:
  bool isConverted(const Value *value) const {
    return value->type().dtype() == DType::f32 || computed.contains(value->type().dtype());
  }

  /// True if the value depends on a parameter or an input, so that it is computed in the type of its readers.
  bool isInfluenced(const Value *value) const {
    return computed.contains(value->type().dtype()) || rounded.contains(value);
  }

  /// True for an operand that its op accepts in f32 only.
  static bool staysF32(const Node &node, unsigned operand) {
    return operand >= 3 && (node.op() == Op::attention || node.op() == Op::batchNorm);
  }

  /// True for a constant table of the model, which is not trained.
  static bool isBuffer(const Value *value) {
    const Node *constant = definedBy(value, Op::constant);
    return constant && value->type().dtype() == DType::f32 && !constant->get<ConstantAttributes>().value.isSplat();
  }

  /// Converts the node to the type of its unit if one of its operands is influenced. Computes in f32 where the op
  /// supports nothing else. A node that reads a table that stays f32 also computes in f32 and is rounded immediately.
  void convert(Node &node, DType low) {
    bool any = false, readsF32Table = false;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      any |= isInfluenced(node.operand(i)) && !staysF32(node, i);
      readsF32Table |= options.bufferDType == DType::f32 && isBuffer(node.operand(i)) && !staysF32(node, i);
    }
    if (any && low != DType::f32 && !readsF32Table && rebuild(node, low))
      return;
    Node *inF32 = rebuild(node, DType::f32);
    assert(inF32 && "the node was there with f32 operands");
    if (!any || (low != DType::f32 && !readsF32Table))
      return;
    for (unsigned i = 0; i < inF32->resultCount(); ++i)
      if (inF32->result(i)->type().dtype() == DType::f32)
        leave(*inF32, i, low);
  }

  /// Handles an f32 result with 16-bit readers: the readers round it, or, where the unit computes in 16 bits, it is
  /// rounded here.
  void leave(Node &node, unsigned index, DType low) {
    Value *result = node.result(index);
    if (low == DType::f32) {
      rounded.insert(result);
      return;
    }
    builder.setInsertionPointAfter(&node);
    Node *cast = builder.create(Op::cast, {result}, CastAttributes{low});
    result->replaceAllUsesWith(cast->result());
    cast->setOperand(0, result);
  }

  /// Null: the op does not support these types.
  Node *rebuild(Node &node, DType wanted) {
    llvm::SmallVector<Value *, 4> operands;
    bool changes = false;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      operands.push_back(as(node.operand(i), staysF32(node, i) ? DType::f32 : wanted));
      changes |= operands.back() != node.operand(i) || computed.contains(operands.back()->type().dtype());
    }
    if (!changes)
      return &node;
    auto copy = builder.tryCreate(node.op(), operands, node.attributes() ? node.attributes()->clone() : nullptr);
    if (!copy) {
      llvm::consumeError(copy.takeError());
      return nullptr;
    }
    for (unsigned i = 0; i < node.resultCount(); ++i) {
      (*copy)->result(i)->setName(node.result(i)->name());
      node.result(i)->replaceAllUsesWith((*copy)->result(i));
    }
    node.erase();
    return *copy;
  }

  /// Converts floats of f32 and of the 16-bit types in use. A value is converted once, a parameter separately at each
  /// use.
  Value *as(Value *value, DType wanted) {
    if (!isConverted(value))
      return value;
    if (isBuffer(value) && options.bufferDType && *options.bufferDType != DType::f32)
      value = roundedConstant(*value->definer(), *options.bufferDType);
    if (value->type().dtype() == wanted)
      return value;
    if (Node *constant = wanted != DType::f32 ? definedBy(value, Op::constant) : nullptr)
      return roundedConstant(*constant, wanted);
    if (definedBy(value, Op::read))
      return builder.cast(value, wanted);
    Value *&once = converted[{value, wanted}];
    return once ? once : once = builder.cast(value, wanted);
  }

  /// A value beyond the type's range, as in masks, is clamped to the largest finite one: infinity would produce NaN in
  /// a difference.
  Value *roundedConstant(Node &node, DType low) {
    const Dense &value = node.get<ConstantAttributes>().value;
    auto [known, isNew] = roundedBytes.try_emplace({value.bytes().data(), low});
    if (isNew)
      known->second = {value, roundedElements(value, low)};
    return builder.constant(node.result()->type().withDType(low), known->second.second);
  }

  static Dense roundedElements(const Dense &value, DType low) {
    std::vector<double> elements;
    elements.reserve(value.storedElements());
    for (int64_t i = 0; i < value.storedElements(); ++i) {
      double exact = value.at(i), near = roundedTo(low, exact);
      if (std::isinf(near) && std::isfinite(exact))
        near = std::copysign(low == DType::bf16 ? 0x1.fep127 : 65504.0, exact);
      elements.push_back(near);
    }
    return value.isSplat() ? Dense::splat(low, elements[0]) : Dense::fromDoubles(low, elements);
  }

  void convertResults(Node &ret) {
    for (unsigned i = 0; i < ret.operandCount(); ++i)
      if (isConverted(ret.operand(i)))
        ret.setOperand(i, as(ret.operand(i), options.outputDType));
  }

  Module &module;
  const PipelineOptions &options;
  Function &function;
  Builder builder;
  llvm::SmallSet<DType, 2> computed;     ///< the 16-bit types that units compute in
  llvm::DenseSet<const Value *> rounded; ///< f32 values that are rounded where they are used in 16 bits
  std::map<std::pair<Value *, DType>, Value *> converted;
  /// Constants by their bytes -> their rounded form: units have copies of one table.
  std::map<std::pair<const uint8_t *, DType>, std::pair<Dense, Dense>> roundedBytes;
};

llvm::Error run(Module &module, const PassContext &context) {
  CastInserter inserter(module, context.options);
  if (!inserter.isIdle())
    inserter.run();
  return llvm::Error::success();
}

} // namespace

const Pass insertCasts = {"insert_casts", Stage::graph, Stage::graph, false, run, FunctionKind::forward};

} // namespace fsdpc

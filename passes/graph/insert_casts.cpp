// The forward graph in a 16-bit type, or each unit in its own: what parameters and float inputs influence is computed
// in it, the rest (positions, masks, random numbers) stays as it is. Parameters stay f32 themselves and are rounded
// where they are used, each use by itself, so that the parts of a gradient are added in f32. Between units of different
// types, and for outputs, a value is converted once.
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

  /// Does everything stay as it is?
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

  /// Does a parameter or an input have a say in it, so that it is computed with in the type of who reads it?
  bool isInfluenced(const Value *value) const {
    return computed.contains(value->type().dtype()) || rounded.contains(value);
  }

  /// An operand that its op takes in f32 only.
  static bool staysWide(const Node &node, unsigned operand) {
    return operand >= 3 && (node.op() == Op::attention || node.op() == Op::batchNorm);
  }

  /// A table of the model: numbers that nobody trains.
  static bool isBuffer(const Value *value) {
    const Node *constant = definedBy(value, Op::constant);
    return constant && value->type().dtype() == DType::f32 && !constant->get<ConstantAttributes>().value.isSplat();
  }

  /// The node in the type of its unit if one of its operands is influenced; in f32 where the op does not take others,
  /// and, rounded at once, where it reads a table that is to stay f32.
  void convert(Node &node, DType low) {
    bool any = false, readsWideTable = false;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      any |= isInfluenced(node.operand(i)) && !staysWide(node, i);
      readsWideTable |= options.bufferDType == DType::f32 && isBuffer(node.operand(i)) && !staysWide(node, i);
    }
    if (any && low != DType::f32 && !readsWideTable && rebuild(node, low))
      return;
    Node *wide = rebuild(node, DType::f32);
    assert(wide && "the node was there with f32 operands");
    if (!any || (low != DType::f32 && !readsWideTable))
      return;
    for (unsigned i = 0; i < wide->resultCount(); ++i)
      if (wide->result(i)->type().dtype() == DType::f32)
        leave(*wide, i, low);
  }

  /// An f32 result that others in 16 bits read: they round it, or, where the unit computes in 16 bits, it is rounded.
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

  /// Null: the op does not take these types.
  Node *rebuild(Node &node, DType wanted) {
    llvm::SmallVector<Value *, 4> operands;
    bool changes = false;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      operands.push_back(as(node.operand(i), staysWide(node, i) ? DType::f32 : wanted));
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

  /// Floats of f32 and of the types that are computed in are converted: a value once, a parameter at each use by
  /// itself.
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

  /// A number beyond the type's range, as masks have them, becomes the last one within: infinity would make NaN of a
  /// difference.
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
  llvm::SmallSet<DType, 2> computed;     ///< the 16-bit types that some unit computes in
  llvm::DenseSet<const Value *> rounded; ///< f32 values that are rounded where 16 bits are computed in
  std::map<std::pair<Value *, DType>, Value *> converted;
  /// By their bytes, constants that have been rounded and what they have become: units have copies of one table.
  std::map<std::pair<const uint8_t *, DType>, std::pair<Dense, Dense>> roundedBytes;
};

llvm::Error run(Module &module, const PassContext &context) {
  CastInserter inserter(module, context.options);
  if (!inserter.isIdle())
    inserter.run();
  return llvm::Error::success();
}

} // namespace

const Pass insertCasts = {"insert_casts", Stage::graph, Stage::graph, false, run};

} // namespace fsdpc

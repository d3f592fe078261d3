// States, memory, and the end of a function.
#include "ir/ops/helpers.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef valueNames[] = {"value"};
constexpr llvm::StringRef flatNames[] = {"flat"};
constexpr llvm::StringRef partsNames[] = {"parts..."};
constexpr llvm::StringRef valuesNames[] = {"values..."};

llvm::Error inferRead(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(readInfo, operands))
    return error;
  const auto &a = attributesOf<StateAttributes>(attributes);
  if (a.state.name.empty())
    return constraintError(readInfo.name, "C1", "a state is named");
  return addResult(readInfo, "C2", a.dtype, a.shape, results);
}

llvm::Error inferWrite(llvm::ArrayRef<Type> operands, const AttributesBase *attributes, llvm::SmallVectorImpl<Type> &) {
  if (llvm::Error error = checkOperands(writeInfo, operands))
    return error;
  if (attributesOf<StateAttributes>(attributes).state.name.empty())
    return constraintError(writeInfo.name, "C1", "a state is named");
  return llvm::Error::success();
}

llvm::Error inferStash(llvm::ArrayRef<Type> operands, const AttributesBase *attributes, llvm::SmallVectorImpl<Type> &) {
  if (llvm::Error error = checkOperands(stashInfo, operands))
    return error;
  if (attributesOf<StateAttributes>(attributes).state.name.empty())
    return constraintError(stashInfo.name, "C1", "a segment is named");
  return llvm::Error::success();
}

llvm::Error inferUnstash(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(unstashInfo, operands))
    return error;
  const auto &a = attributesOf<StateAttributes>(attributes);
  if (a.state.name.empty())
    return constraintError(unstashInfo.name, "C1", "a segment is named");
  return addResult(unstashInfo, "C2", a.dtype, a.shape, results);
}

llvm::Error inferView(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(viewInfo, operands))
    return error;
  const auto &a = attributesOf<ViewAttributes>(attributes);
  const Type &flat = operands[0];
  if (flat.rank() != 1)
    return constraintError(viewInfo.name, "C1", "the operand has rank 1 but is " + toString(flat));
  if (llvm::Error error = addResult(viewInfo, "C2", flat.dtype(), a.shape, results))
    return error;
  if (a.offset < 0 || a.offset > flat.elements() || results.back().elements() > flat.elements() - a.offset)
    return constraintError(viewInfo.name, "C3",
                           shapeText(a.shape) + " at offset " + llvm::Twine(a.offset) + " lies outside " +
                               toString(flat));
  return llvm::Error::success();
}

/// Checks that each part is inside the buffer, after the previous part.
llvm::Error checkParts(llvm::ArrayRef<Type> parts, const PackAttributes &attributes) {
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t offset = attributes.offsets[i];
    if (offset < end)
      return constraintError(packInfo.name, "C3",
                             "part " + llvm::Twine(i) + " at offset " + llvm::Twine(offset) + " begins before " +
                                 llvm::Twine(end) + ", where the part before it ends");
    if (offset > attributes.elements || parts[i].elements() > attributes.elements - offset)
      return constraintError(packInfo.name, "C4",
                             "part " + llvm::Twine(i) + ", " + toString(parts[i]) + " at offset " +
                                 llvm::Twine(offset) + ", ends after the " + llvm::Twine(attributes.elements) +
                                 " elements");
    end = offset + parts[i].elements();
  }
  return llvm::Error::success();
}

llvm::Error inferPack(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(packInfo, operands))
    return error;
  const auto &a = attributesOf<PackAttributes>(attributes);
  if (operands.empty() || a.offsets.size() != operands.size())
    return constraintError(packInfo.name, "C1",
                           "one part or more and an offset for each: " + llvm::Twine(operands.size()) + " parts, " +
                               llvm::Twine(a.offsets.size()) + " offsets");
  for (const Type &part : operands)
    if (part.dtype() != operands[0].dtype())
      return constraintError(packInfo.name, "C2",
                             "parts have one dtype: " + toString(operands[0]) + " and " + toString(part));
  if (llvm::Error error = checkParts(operands, a))
    return error;
  return addResult(packInfo, "C5", operands[0].dtype(), {a.elements}, results);
}

llvm::Error inferCopy(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(copyInfo, operands))
    return error;
  results.push_back(operands[0]);
  return llvm::Error::success();
}

llvm::Error inferFree(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(freeInfo, operands))
    return error;
  results.push_back(Type::token());
  return llvm::Error::success();
}

llvm::Error inferTap(llvm::ArrayRef<Type> operands, const AttributesBase *attributes, llvm::SmallVectorImpl<Type> &) {
  if (llvm::Error error = checkOperands(tapInfo, operands))
    return error;
  const auto &tap = attributesOf<TapAttributes>(attributes);
  if (tap.parameter.name.empty())
    return constraintError(tapInfo.name, "C1", "a parameter is named");
  bool areParts = tap.part > 0 && tap.from >= 0 && tap.every >= tap.part && operands[0].rank() == 1 &&
                  operands[0].dim(0) % tap.part == 0;
  if (!areParts && (tap.part != 0 || tap.from != 0 || tap.every != 0))
    return constraintError(tapInfo.name, "C2", toString(operands[0]) + " is no sequence of parts that are apart");
  return llvm::Error::success();
}

llvm::Error inferReturn(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &) {
  const std::vector<std::string> &names = attributesOf<ReturnAttributes>(attributes).names;
  if (names.size() != operands.size())
    return constraintError(retInfo.name, "C1",
                           "every value has a name: " + llvm::Twine(operands.size()) + " values, " +
                               llvm::Twine(names.size()) + " names");
  llvm::StringSet<> seen;
  for (const std::string &name : names)
    if (!seen.insert(name).second)
      return constraintError(retInfo.name, "C2", "two results are called '" + name + "'");
  return llvm::Error::success();
}

EvaluationEnvironment &environmentOf(EvaluateContext &context) {
  assert(context.environment && "an op that uses the environment is not evaluated alone");
  return *context.environment;
}

void evaluateRead(EvaluateContext &context) {
  const HostTensor &state = environmentOf(context).readState(context.get<StateAttributes>().state.name);
  assert(state.type == context.results[0].type && "a read has its state's type");
  context.results[0].values = state.values;
}

void evaluateWrite(EvaluateContext &context) {
  environmentOf(context).writeState(context.get<StateAttributes>().state.name, *context.operands[0]);
}

void evaluateView(EvaluateContext &context) {
  auto first = context.operands[0]->values.begin() + context.get<ViewAttributes>().offset;
  std::copy_n(first, context.results[0].values.size(), context.results[0].values.begin());
}

void evaluatePack(EvaluateContext &context) {
  const Shape &offsets = context.get<PackAttributes>().offsets;
  for (size_t i = 0; i < context.operands.size(); ++i)
    llvm::copy(context.operands[i]->values, context.results[0].values.begin() + offsets[i]);
}

void evaluateCopy(EvaluateContext &context) { context.results[0].values = context.operands[0]->values; }

/// A token has no value.
void evaluateNothing(EvaluateContext &) {}

void evaluateStash(EvaluateContext &context) {
  environmentOf(context).stash(context.get<StateAttributes>().state.name, *context.operands[0]);
}

void evaluateUnstash(EvaluateContext &context) {
  HostTensor &result = context.results[0];
  result = environmentOf(context).stashed(context.get<StateAttributes>().state.name, Type(result.type));
}

void evaluateTap(EvaluateContext &context) {
  environmentOf(context).tap(context.get<TapAttributes>(), *context.operands[0]);
}

} // namespace

const OpInfo readInfo = {
    .name = "read",
    .doc = "The current version of a state. (C1) a state is named; verify compares the type with the state's. (C2) the "
           "result fits.",
    .operandNames = {},
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<StateAttributes>,
    .infer = inferRead,
    .evaluate = evaluateRead,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = everyStage,
};

const OpInfo writeInfo = {
    .name = "write",
    .doc = "Makes value the new version of a state. (C1) a state is named; verify compares the type with the state's.",
    .operandNames = valueNames,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<StateAttributes>,
    .infer = inferWrite,
    .evaluate = evaluateWrite,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = fromTrain,
};

const OpInfo viewInfo = {
    .name = "view",
    .doc = "A tensor of `shape` in the memory of a flat buffer from element `offset` on. (C1) the operand has rank 1. "
           "(C2) the result "
           "fits. (C3) It is inside the operand.",
    .operandNames = flatNames,
    .traits = pure | aliasesOperand,
    .makeAttributes = makeAttributes<ViewAttributes>,
    .infer = inferView,
    .evaluate = evaluateView,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = fromSharded,
};

const OpInfo packInfo = {
    .name = "pack",
    .doc = "A flat buffer of `elements` with part i at offsets[i] and zeros elsewhere. (C1) one part or more, an "
           "offset for each. (C2) "
           "parts have one dtype. (C3) offsets ascend and parts are disjoint. (C4) parts end within the elements. (C5) "
           "the result fits.",
    .operandNames = partsNames,
    .traits = pure,
    .makeAttributes = makeAttributes<PackAttributes>,
    .infer = inferPack,
    .evaluate = evaluatePack,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = fromSharded,
};

const OpInfo copyInfo = {
    .name = "copy",
    .doc = "The operand in other memory.",
    .operandNames = namesX,
    .traits = pure,
    .infer = inferCopy,
    .evaluate = evaluateCopy,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromSharded,
};

const OpInfo freeInfo = {
    .name = "free",
    .doc = "Ends the life of the operand's memory; whoever uses this memory next takes the token.",
    .operandNames = namesX,
    .infer = inferFree,
    .evaluate = evaluateNothing,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = fromSharded,
};

const OpInfo tapInfo = {
    .name = "tap",
    .doc = "Passes an unsharded tensor, or parts of one, to the runtime under a parameter's name. (C1) a parameter is "
           "named. (C2) parts are flat, of one size, and apart.",
    .operandNames = namesX,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<TapAttributes>,
    .infer = inferTap,
    .evaluate = evaluateTap,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = fromTrain,
};

const OpInfo stashInfo = {
    .name = "stash",
    .doc = "Hands a segment's gradient to the runtime, which keeps it outside the plan's memory in steps whose "
           "gradients are saved, and does nothing in others. (C1) a segment is named; verify compares the type with "
           "the segment's.",
    .operandNames = valueNames,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<StateAttributes>,
    .infer = inferStash,
    .evaluate = evaluateStash,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo unstashInfo = {
    .name = "unstash",
    .doc = "What the step has stashed of a segment. (C1) a segment is named; verify compares the type with the "
           "segment's. (C2) the result fits.",
    .operandNames = {},
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<StateAttributes>,
    .infer = inferUnstash,
    .evaluate = evaluateUnstash,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo retInfo = {
    .name = "return",
    .doc = "Ends a function; value i, of any kind, is its result called names[i]. (C1) every value has a name. (C2) "
           "names are unique.",
    .operandNames = valuesNames,
    .makeAttributes = makeAttributes<ReturnAttributes>,
    .infer = inferReturn,
    .evaluate = evaluateNothing,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = everyStage,
};

} // namespace fsdpc

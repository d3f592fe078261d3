#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/optimizer_layout.h"
#include "passes/support/precision.h"
#include "passes/train/parameter_groups.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

/// Parameters for which micro_step returns a gradient, with the gradient's type.
std::vector<const Parameter *> trainedParameters(const Module &module) {
  std::vector<const Parameter *> trained;
  const Function &step = *module.function(FunctionKind::microStep);
  for (const std::string &name : step.returnNode()->get<ReturnAttributes>().names)
    if (llvm::StringRef parameter = name; parameter.consume_front(names::gradientPrefix))
      trained.push_back(module.parameter(parameter));
  return trained;
}

Section unitSection(const Module &module, const Parameter &parameter, Phase phase) {
  return {module.unitIndex(parameter.unit), phase};
}

/// Adds the gradients in the type in which the step summed them or, if `promoted`, with 16-bit gradients promoted to
/// f32.
std::vector<Value *> addGradients(Builder &builder, llvm::ArrayRef<const Parameter *> trained, bool promoted) {
  const Module &module = builder.module();
  const Function &step = *module.function(FunctionKind::microStep);
  std::vector<Value *> gradients;
  for (const Parameter *parameter : trained) {
    std::string name = names::gradientPrefix.str() + parameter->name;
    const Type &type = resultValue(step, name)->type();
    Value *sum = builder.function().addArgument(ArgumentKind::carry, name, type);
    builder.setSection(unitSection(module, *parameter, Phase::update));
    gradients.push_back(promoted && isHalf(type.dtype()) ? builder.cast(sum, parameter->type.dtype()) : sum);
  }
  builder.setSection({});
  return gradients;
}

void appendUpdate(Module &module, llvm::ArrayRef<const Parameter *> trained, const OptimizerLayout &layout,
                  const ParameterGroups &groups, bool readsLowPrecision) {
  Function &update = *module.addFunction(FunctionKind::update);
  Builder builder(update);
  const std::vector<Value *> gradients = addGradients(builder, trained, !readsLowPrecision);
  ScalarReads scalars(builder);
  for (const Parameter *parameter : trained)
    for (const std::string &name : groups.scalarsOf(*parameter))
      scalars.read(name);
  std::vector<Value *> guardOperands;
  std::optional<GuardBuilder> guard;
  if (layout.guard) {
    guard.emplace(builder, *layout.guard, builder.create(Op::squareSum, gradients)->result());
    guardOperands = {guard->scale(), guard->applies()};
  }
  for (const auto &[parameter, gradient] : llvm::zip_equal(trained, gradients)) {
    builder.setSection(unitSection(module, *parameter, Phase::update));
    std::vector<const State *> states = {module.state(parameter->name)};
    for (const std::string &field : layout.fields)
      states.push_back(&module.addState(optimizerState(parameter->name, parameter->type, field, layout)));
    llvm::SmallVector<Value *, 12> operands = {builder.readState(*states[0]), gradient};
    for (size_t i = 1; i < states.size(); ++i)
      operands.push_back(builder.readState(*states[i]));
    for (const std::string &name : groups.scalarsOf(*parameter))
      operands.push_back(scalars.read(name));
    operands.append(guardOperands.begin(), guardOperands.end());
    Node *node = builder.create(layout.op, operands, layout.attributes);
    for (size_t i = 0; i < states.size(); ++i)
      builder.writeState(*states[i], node->result(static_cast<unsigned>(i)));
  }
  builder.setSection({});
  if (guard)
    guard->finish();
  else
    builder.ret({}, {});
}

void appendTap(Builder &builder, Value *value, const Parameter &parameter) {
  builder.create(Op::tap, {value}, TapAttributes{{parameter.name}});
}

/// Parameters in the order of their units, so that each unit is gathered once.
std::vector<const Parameter *> byUnit(const Module &module, std::vector<const Parameter *> parameters) {
  llvm::stable_sort(parameters, [&](const Parameter *a, const Parameter *b) {
    return module.unitIndex(a->unit) < module.unitIndex(b->unit);
  });
  return parameters;
}

void appendTapGradients(Module &module, llvm::ArrayRef<const Parameter *> trained) {
  Function &tap = *module.addFunction(FunctionKind::tapGradients);
  Builder builder(tap);
  Value *unscale = readUnscale(builder);
  for (const auto &[parameter, gradient] : llvm::zip_equal(trained, addGradients(builder, trained, true))) {
    builder.setSection(unitSection(module, *parameter, Phase::update));
    appendTap(builder, unscaled(builder, gradient, unscale), *parameter);
  }
  builder.setSection({});
  builder.ret({}, {});
}

/// exportAverages taps averages in place of the parameters that have one.
void appendExport(Module &module, FunctionKind kind, llvm::ArrayRef<const Parameter *> parameters) {
  Function &function = *module.addFunction(kind);
  Builder builder(function);
  for (const Parameter *parameter : parameters) {
    builder.setSection(unitSection(module, *parameter, Phase::forward));
    const State *average = kind == FunctionKind::exportAverages ? averageOf(module, parameter->name) : nullptr;
    appendTap(builder, builder.readState(average ? *average : *module.state(parameter->name)), *parameter);
  }
  builder.setSection({});
  builder.ret({}, {});
}

/// Evaluation and predictions read averages in place of the parameters that have one.
void readAverages(Module &module) {
  for (FunctionKind kind : {FunctionKind::evalStep, FunctionKind::predict})
    if (Function *function = module.function(kind))
      for (Node *node : *function)
        if (node->op() == Op::read)
          if (auto &read = node->get<StateAttributes>().state; const State *average = averageOf(module, read.name))
            read.name = average->name;
}

/// Factors of adapters first: whoever merges them needs them before their weight.
std::vector<const Parameter *> exportedParameters(const Module &module) {
  llvm::StringSet<> factors;
  for (const Parameter &parameter : module.parameters)
    if (parameter.adapter) {
      factors.insert(parameter.adapter->down);
      factors.insert(parameter.adapter->up);
    }
  std::vector<const Parameter *> all;
  for (const Parameter &parameter : module.parameters)
    if (module.state(parameter.name))
      all.push_back(&parameter);
  std::stable_partition(all.begin(), all.end(),
                        [&](const Parameter *parameter) { return factors.contains(parameter->name); });
  return all;
}

/// Functions in the order a step calls them.
void orderFunctions(Module &module) {
  llvm::sort(module.functions, [](const auto &a, const auto &b) { return a->kind() < b->kind(); });
}

/// The accumulator holds squares of f32, not of f64.
llvm::Error checkGuarded(llvm::ArrayRef<const Parameter *> trained) {
  for (const Parameter *parameter : trained)
    if (parameter->type.dtype() != DType::f32)
      return llvm::createStringError(
          "parameter '" + parameter->name + "' is " + toString(parameter->type) +
          ": the norm of gradients, which --max_norm, --nonfinite skip|warn and loss scaling "
          "need, is available for f32 only; freeze it or leave these options out");
  return llvm::Error::success();
}

llvm::Error run(Module &module, const PassContext &context) {
  OptimizerLayout layout = optimizerLayout(context.options.optimizer);
  addScalarStates(module, layout, context.options.optimizer);
  std::vector<const Parameter *> trained = byUnit(module, trainedParameters(module));
  llvm::Expected<ParameterGroups> groups = ParameterGroups::decide(module, trained, context.options.optimizer, layout);
  if (!groups)
    return groups.takeError();
  for (const State &state : groups->states())
    module.addState(state);
  llvm::append_range(context.remarks, groups->remarks());
  if (layout.guard)
    if (llvm::Error error = checkGuarded(trained))
      return error;
  appendTapGradients(module, trained);
  appendUpdate(module, trained, layout, *groups, context.options.keepLowPrecisionGrads);
  appendExport(module, FunctionKind::exportWeights, byUnit(module, exportedParameters(module)));
  if (layout.attributes.averages)
    appendExport(module, FunctionKind::exportAverages, byUnit(module, exportedParameters(module)));
  if (context.options.optimizer.evaluatesAverages)
    readAverages(module);
  orderFunctions(module);
  module.facts.optimizer = context.options.optimizer.kind;
  return llvm::Error::success();
}

} // namespace

const Pass appendOptimizer = {"append_optimizer",
                              Stage::train,
                              Stage::train,
                              false,
                              run,
                              FunctionKind::microStep,
                              {},
                              {FunctionKind::tapGradients, FunctionKind::update, FunctionKind::exportWeights}};

} // namespace fsdpc

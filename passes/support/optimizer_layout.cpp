#include "passes/support/optimizer_layout.h"

#include "ir/queries.h"

#include "llvm/Support/ErrorHandling.h"

namespace fsdpc {

namespace {

double scalarOf(const OptimizerOptions &options, const std::string &name) {
  auto found = options.scalars.find(name);
  return found == options.scalars.end() ? 0 : found->second;
}

OptimizerLayout sgdLayout(const OptimizerOptions &options) {
  OptimizerLayout layout{Op::sgd, {}, {}, {"lr", "weight_decay"}};
  if (scalarOf(options, "momentum") == 0)
    return layout;
  layout.attributes.momentum = true;
  layout.attributes.nesterov = options.nesterov;
  layout.fields = {"momentum_buffer"};
  layout.scalars = {"lr", "weight_decay", "momentum", "dampening", "step"};
  return layout;
}

OptimizerLayout rmspropLayout(const OptimizerOptions &options) {
  OptimizerLayout layout{Op::rmsprop, {}, {"square_avg"}, {"lr", "alpha", "eps", "weight_decay"}};
  layout.attributes.momentum = scalarOf(options, "momentum") != 0;
  layout.attributes.centered = options.centered;
  if (layout.attributes.momentum) {
    layout.fields.push_back("momentum_buffer");
    layout.scalars.push_back("momentum");
  }
  if (layout.attributes.centered)
    layout.fields.push_back("grad_avg");
  return layout;
}

OptimizerLayout adamLayout(bool decoupled) {
  OptimizerLayout layout{
      Op::adam, {}, {"exp_avg", "exp_avg_sq"}, {"lr", "beta1", "beta2", "eps", "weight_decay", "step"}};
  layout.attributes.decoupled = decoupled;
  return layout;
}

OptimizerLayout unguardedLayout(const OptimizerOptions &options) {
  switch (options.kind) {
  case OptimizerKind::adamw: return adamLayout(/*decoupled=*/true);
  case OptimizerKind::adam: return adamLayout(/*decoupled=*/false);
  case OptimizerKind::sgd: return sgdLayout(options);
  case OptimizerKind::rmsprop: return rmspropLayout(options);
  case OptimizerKind::adadelta:
    return {Op::adadelta, {}, {"square_avg", "acc_delta"}, {"lr", "rho", "eps", "weight_decay"}};
  case OptimizerKind::adagrad:
    return {
        Op::adagrad, {}, {"sum"}, {"lr", "lr_decay", "eps", "weight_decay", "step"}, options.initialAccumulatorValue};
  case OptimizerKind::lion: return {Op::lion, {}, {"exp_avg"}, {"lr", "beta1", "beta2", "weight_decay"}};
  }
  llvm_unreachable("all optimizers are listed");
}

} // namespace

OptimizerLayout optimizerLayout(const OptimizerOptions &options) {
  OptimizerLayout layout = unguardedLayout(options);
  if (options.averagesWeights) {
    layout.attributes.averages = true;
    layout.fields.push_back(names::averageField.str());
    layout.scalars.insert(layout.scalars.end(), {"ema_decay", "step"});
  }
  layout.guard = updateGuard(options);
  if (!layout.guard)
    return layout;
  layout.attributes.guarded = true;
  for (std::string &scalar : layout.scalars)
    if (scalar == "step") {
      scalar = "optimizer_step";
      layout.guard->countsSteps = true;
    }
  return layout;
}

/// The states that an optimizer node reads after the parameter and its gradient, in operand order.
static std::vector<const State *> updateStates(const Node &optimizer) {
  std::vector<const State *> states;
  for (unsigned i = 2; i < optimizer.operandCount() - 2 * optimizer.get<OptimizerAttributes>().guarded; ++i)
    states.push_back(stateReadBy(*optimizer.operand(i)));
  return states;
}

OptimizerLayout optimizerLayout(const Module &train) {
  OptimizerLayout layout{};
  layout.guard = updateGuard(train);
  for (Node *node : *train.function(FunctionKind::update)) {
    if (!infoOf(*node).has(inPlace))
      continue;
    layout.op = node->op();
    layout.attributes = node->get<OptimizerAttributes>();
    for (const State *state : updateStates(*node)) {
      if (state->role != StateRole::optimizer)
        continue;
      layout.fields.push_back(state->field);
      if (state->field != names::averageField)
        layout.initialState = state->initialValue;
    }
    break;
  }
  return layout;
}

llvm::StringMap<std::vector<std::string>> updateScalars(const Module &train) {
  llvm::StringMap<std::vector<std::string>> scalars;
  for (const Node *node : *train.function(FunctionKind::update)) {
    if (!infoOf(*node).has(inPlace))
      continue;
    std::vector<std::string> &names = scalars[stateReadBy(*node->operand(0))->name];
    for (const State *state : updateStates(*node))
      if (state->role == StateRole::scalar)
        names.push_back(state->name);
  }
  return scalars;
}

State optimizerState(const std::string &owner, const Type &type, const std::string &field,
                     const OptimizerLayout &layout) {
  State state;
  state.name = owner + "." + field;
  state.role = StateRole::optimizer;
  state.type = type;
  state.owner = owner;
  state.field = field;
  state.initialValue = field == names::averageField ? 0 : layout.initialState;
  return state;
}

const State *averageOf(const Module &module, llvm::StringRef owner) {
  return module.state((owner + "." + names::averageField).str());
}

void addScalarStates(Module &module, const OptimizerLayout &layout, const OptimizerOptions &options) {
  if (layout.guard)
    addGuardStates(module, *layout.guard, options);
  for (const std::string &name : layout.scalars) {
    if (module.state(name))
      continue;
    State state;
    state.name = name;
    state.role = StateRole::scalar;
    bool isStep = name == "step";
    state.type = Type(isStep ? DType::i64 : DType::f64, {});
    state.initialValue = isStep ? 1 : scalarOf(options, name);
    module.addState(std::move(state));
  }
}

} // namespace fsdpc

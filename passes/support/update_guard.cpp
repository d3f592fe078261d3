#include "passes/support/update_guard.h"

#include "ir/ops/guard.h"
#include "ir/reserved_names.h"
#include "passes/support/clone.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral maxNorm = "max_norm", lossScale = "loss_scale", goodSteps = "loss_scale_good_steps",
                              hysteresisLeft = "loss_scale_hysteresis", optimizerStep = "optimizer_step",
                              spikeLimit = "spike_zscore";
constexpr llvm::StringLiteral historyOfNorms[] = {"norm_mean", "norm_variance", "norm_count"};

void addScalar(Module &module, llvm::StringRef name, DType dtype, double initialValue) {
  if (module.state(name))
    return;
  State state;
  state.name = name.str();
  state.role = StateRole::scalar;
  state.type = Type(dtype, {});
  state.initialValue = initialValue;
  module.addState(std::move(state));
}

} // namespace

std::optional<UpdateGuard> updateGuard(const OptimizerOptions &options) {
  if (!options.isGuarded())
    return std::nullopt;
  UpdateGuard guard;
  guard.clip.bounded = options.maxNorm.has_value();
  guard.clip.scaled = options.lossScale.has_value();
  if (options.lossScale && options.lossScale->isDynamic)
    guard.dynamicScale = {options.lossScale->window, options.lossScale->hysteresis, options.lossScale->minimum};
  return guard;
}

std::optional<UpdateGuard> updateGuard(const Module &train) {
  std::optional<UpdateGuard> guard;
  for (Node *node : *train.function(FunctionKind::update)) {
    if (node->op() == Op::clipNorm)
      guard = UpdateGuard{node->get<ClipNormAttributes>(), std::nullopt, train.state(optimizerStep) != nullptr};
    if (node->op() == Op::adjustLossScale && guard)
      guard->dynamicScale = node->get<LossScaleAttributes>();
  }
  return guard;
}

void addGuardStates(Module &module, const UpdateGuard &guard, const OptimizerOptions &options) {
  if (guard.countsSteps)
    addScalar(module, optimizerStep, DType::i64, 1);
  addScalar(module, spikeLimit, DType::f64, 0);
  for (llvm::StringRef name : historyOfNorms)
    addScalar(module, name, name == historyOfNorms[2] ? DType::i64 : DType::f64, 0);
  if (guard.clip.bounded)
    addScalar(module, maxNorm, DType::f64, *options.maxNorm);
  if (guard.clip.scaled)
    addScalar(module, lossScale, DType::f64, options.lossScale->initial);
  if (guard.dynamicScale) {
    addScalar(module, goodSteps, DType::i64, static_cast<double>(goodStepsAtFirst(guard.dynamicScale->minimum)));
    addScalar(module, hysteresisLeft, DType::i64, static_cast<double>(guard.dynamicScale->hysteresis));
  }
}

Value *readLossScale(Builder &builder) {
  const State *state = builder.module().state(lossScale);
  return state ? builder.cast(builder.readState(*state), DType::f32) : nullptr;
}

Value *readUnscale(Builder &builder) {
  const State *state = builder.module().state(lossScale);
  if (!state)
    return nullptr;
  Value *scale = builder.readState(*state);
  return builder.cast(builder.div(builder.constantLike(scale, 1), scale), DType::f32);
}

Value *unscaled(Builder &builder, Value *gradient, Value *unscale) {
  return unscale ? builder.mul(gradient, builder.broadcast(unscale, gradient->type().shape())) : gradient;
}

GuardBuilder::GuardBuilder(Builder &builder, const UpdateGuard &guard, llvm::ArrayRef<Value *> accumulators)
    : builder(builder), guard(guard) {
  const Module &module = builder.module();
  Value *returned = resultValue(*module.function(FunctionKind::microStep), names::loss);
  assert(returned && "micro_step returns the loss");
  llvm::SmallVector<Value *, 8> operands(accumulators);
  Value *loss = builder.function().addArgument(ArgumentKind::carry, names::loss, returned->type());
  operands.push_back(builder.cast(loss, DType::f32));
  if (guard.clip.bounded)
    operands.push_back(builder.readState(*module.state(maxNorm)));
  if (guard.clip.scaled)
    operands.push_back(builder.readState(*module.state(lossScale)));
  clip = builder.create(Op::clipNorm, operands, guard.clip);
  clip->result(0)->setName("grad_norm");
  clip->result(1)->setName("gradient_scale");
  clip->result(2)->setName("is_finite");
  checkNorm();
}

void GuardBuilder::checkNorm() {
  const Module &module = builder.module();
  llvm::SmallVector<Value *, 6> operands = {clip->result(0), clip->result(2),
                                            builder.readState(*module.state(spikeLimit))};
  for (llvm::StringRef name : historyOfNorms)
    operands.push_back(builder.readState(*module.state(name)));
  spikes = builder.create(Op::spikeGuard, operands);
  spikes->result(0)->setName("applied");
}

void GuardBuilder::countStep() {
  const State &state = *builder.module().state(optimizerStep);
  Value *one = builder.cast(applies(), DType::i64);
  builder.writeState(state, builder.add(builder.readState(state), one));
}

Node *GuardBuilder::adjustLossScale() {
  const Module &module = builder.module();
  const State *states[] = {module.state(lossScale), module.state(goodSteps), module.state(hysteresisLeft)};
  llvm::SmallVector<Value *, 4> operands;
  for (const State *state : states)
    operands.push_back(builder.readState(*state));
  operands.push_back(clip->result(2));
  Node *next = builder.create(Op::adjustLossScale, operands, *guard.dynamicScale);
  for (unsigned i = 0; i < std::size(states); ++i)
    builder.writeState(*states[i], next->result(i));
  next->result(0)->setName("next_loss_scale");
  next->result(3)->setName("loss_scale_exhausted");
  return next;
}

void GuardBuilder::finish() {
  llvm::SmallVector<Value *, 4> results = {clip->result(0), applies()};
  std::vector<std::string> names = {"grad_norm", "applied"};
  for (unsigned i = 0; i < std::size(historyOfNorms); ++i)
    builder.writeState(*builder.module().state(historyOfNorms[i]), spikes->result(i + 1));
  if (guard.countsSteps)
    countStep();
  if (guard.dynamicScale) {
    Node *next = adjustLossScale();
    results.append({next->result(0), next->result(3)});
    names.insert(names.end(), {"next_loss_scale", "loss_scale_exhausted"});
  }
  builder.ret(results, names);
}

} // namespace fsdpc

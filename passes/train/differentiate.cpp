// Reverse-mode autodiff of micro_step: one backward sweep over the nodes, one vjp per op, cotangents summed where a
// value has several uses. The derivative of a node is in the node's unit, phase backward.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/optimizer_layout.h"
#include "passes/support/precision.h"
#include "passes/support/update_guard.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

class Differentiator {
public:
  Differentiator(Module &module, Function &step) : module(module), step(step), builder(step, step.returnNode()) {}

  void run(Value *lossSum, Value *seed) {
    markVarying();
    if (!varying.contains(lossSum))
      return;
    cotangents[lossSum] = seed;
    for (Node *node = sweepStart; node; node = node->previous())
      propagate(*node);
  }

  /// The sweep begins at the current last node; nodes built later come after it.
  void freezeSweep() { sweepStart = step.returnNode()->previous(); }

  /// Local gradient by parameter.
  llvm::StringMap<Value *> gradients;

private:
  /// A value varies if a trainable parameter influences it through differentiable positions.
  void markVarying() {
    for (Node *node : step) {
      bool depends = false;
      if (node->op() == Op::read) {
        const Parameter *parameter = module.parameter(node->get<StateAttributes>().state.name);
        depends = parameter && parameter->trainable;
      }
      for (Value *operand : node->operands())
        depends |= varying.contains(operand);
      bool passesOn = node->op() == Op::read || infoOf(*node).vjp != notDifferentiable;
      if (!depends || !passesOn)
        continue;
      for (unsigned i = 0; i < node->resultCount(); ++i)
        if (isFloat(node->result(i)->type().dtype()))
          varying.insert(node->result(i));
    }
  }

  void propagate(Node &node) {
    llvm::SmallVector<Value *, 2> results;
    bool any = false;
    for (unsigned i = 0; i < node.resultCount(); ++i) {
      results.push_back(cotangents.lookup(node.result(i)));
      any |= results.back() != nullptr;
    }
    if (!any)
      return;
    if (node.op() == Op::read)
      return recordGradient(node, results[0]);
    llvm::SmallVector<Value *, 4> operands(node.operandCount(), nullptr);
    llvm::SmallVector<bool, 4> needed;
    for (Value *operand : node.operands())
      needed.push_back(varying.contains(operand));
    builder.inherit(node);
    builder.setPhase(Phase::backward);
    VjpContext context{builder, node, results, operands, needed};
    infoOf(node).vjp(context);
    for (unsigned i = 0; i < node.operandCount(); ++i)
      if (operands[i] && needed[i])
        accumulate(node.operand(i), operands[i]);
  }

  void accumulate(Value *value, Value *cotangent) {
    assert(cotangent->type() == value->type() && "a cotangent has its value's type");
    Value *&sum = cotangents[value];
    sum = sum ? builder.add(sum, cotangent) : cotangent;
  }

  void recordGradient(const Node &read, Value *cotangent) {
    builder.inherit(read);
    builder.setPhase(Phase::backward);
    Value *&gradient = gradients[read.get<StateAttributes>().state.name];
    gradient = gradient ? builder.add(gradient, cotangent) : cotangent;
  }

  Module &module;
  Function &step;
  Builder builder;
  Node *sweepStart = nullptr;
  llvm::DenseSet<Value *> varying;
  llvm::DenseMap<Value *, Value *> cotangents;
};

/// 1/count for a mean, 1 for a sum, times the loss scale. Gradients are scaled nowhere else.
Value *buildSeed(Builder &builder, Function &step, Value *lossSum) {
  Value *scale = readLossScale(builder);
  Value *one = scale ? builder.cast(scale, lossSum->type().dtype()) : builder.constant(lossSum->type(), 1);
  Value *count = step.argument(names::count);
  return count ? builder.div(one, count) : one;
}

/// The summand of the sum over the batch, in the type that is sent: rounded once, after the entire local sum.
Value *summand(const Module &module, const Parameter &parameter, Value *local, const PipelineOptions &options) {
  if (local->type().dtype() != DType::f32)
    return local;
  Node *definer = local->definer();
  Builder builder(*definer->function(), definer);
  builder.setInsertionPointAfter(definer);
  builder.inherit(*definer);
  builder.setPhase(Phase::backward);
  return builder.cast(local, reduceDTypeOf(module, module.unitIndex(parameter.unit), options));
}

void returnGradients(Module &module, Function &step, const llvm::StringMap<Value *> &gradients,
                     const PipelineOptions &options) {
  Node *ret = step.returnNode();
  llvm::SmallVector<Value *, 8> values = {resultValue(step, names::loss)};
  std::vector<std::string> names = {names::loss.str()};
  Builder builder(step, ret);
  for (const Parameter &parameter : module.parameters) {
    Value *local = gradients.lookup(parameter.name);
    if (!local)
      continue;
    builder.inherit(*local->definer());
    builder.setPhase(Phase::backward);
    Value *global = builder.create(Op::batchSum, {summand(module, parameter, local, options)})->result();
    global->setName(names::gradientPrefix.str() + parameter.name);
    values.push_back(global);
    names.push_back(names::gradientPrefix.str() + parameter.name);
  }
  ret->erase();
  builder.setInsertionPoint(nullptr);
  builder.setSection({});
  builder.setSource("");
  Node *last = builder.ret(values, names);
  // Only the log reads the loss: dividing it at the end avoids waiting for its reduction earlier.
  if (Node *division = values[0]->definer(); division->op() == Op::div) {
    division->moveBefore(last);
    division->section = {};
    division->unit = -1;
  }
}

/// After differentiation, each gradient stop is replaced by its operand.
void removeStops(Function &function) {
  for (Node *node = function.front(); node;) {
    Node *next = node->next();
    if (node->op() == Op::stopGradient) {
      node->result()->replaceAllUsesWith(node->operand(0));
      node->erase();
    }
    node = next;
  }
}

llvm::Error run(Module &module, const PassContext &context) {
  if (context.options.optimizer.lossScale)
    addGuardStates(module, *updateGuard(context.options.optimizer), context.options.optimizer);
  Function &step = *module.function(FunctionKind::microStep);
  Value *lossSum = resultValue(step, "loss_sum");
  Differentiator differentiator(module, step);
  differentiator.freezeSweep();
  Builder builder(step, step.returnNode());
  builder.inherit(*lossSum->definer());
  builder.setPhase(Phase::backward);
  differentiator.run(lossSum, buildSeed(builder, step, lossSum));
  if (differentiator.gradients.empty())
    return llvm::createStringError(
        "no trainable parameter influences the loss: nothing to train (see fsdpc inspect, --trainable, --frozen)");
  returnGradients(module, step, differentiator.gradients, context.options);
  for (const auto &function : module.functions)
    removeStops(*function);
  eraseDeadNodes(step);
  return llvm::Error::success();
}

} // namespace

const Pass differentiate = {"differentiate",          Stage::train, Stage::train, false, run, FunctionKind::microStep,
                            {"loss_sum", names::loss}};

} // namespace fsdpc

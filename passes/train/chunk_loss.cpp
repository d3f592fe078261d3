// The cross entropy of a linear layer's logits becomes one op that computes them for a few positions at a time.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"
#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include <cmath>

namespace fsdpc {

namespace {

/// A cross entropy and the matmul of its logits.
struct Head {
  Node *loss = nullptr;
  Node *matmul = nullptr;
  llvm::SmallVector<Node *, 4> moves; ///< of rows, from the loss back to the matmul: reshape and slice
  double softcap = 0;
  llvm::SmallVector<Node *, 2> argMaxes; ///< of the logits that the loss reads

  int64_t rows() const { return loss->result(0)->type().elements(); }
};

bool isArgMaxOfClasses(const Node &node) {
  return node.op() == Op::argMax && node.get<AxisAttributes>().axis == node.operand(0)->type().rank() - 1;
}

bool isPromotion(const Node &node) {
  return node.op() == Op::cast && isHalf(node.operand(0)->type().dtype()) &&
         node.result()->type().dtype() == DType::f32;
}

/// True for a node that only moves rows: the last dim stays as it is.
bool movesRows(const Node &node) {
  const Type &from = node.operand(0)->type(), &to = node.result()->type();
  if (node.op() == Op::slice) {
    const auto &slice = node.get<SliceAttributes>();
    return from.dim(-1) == to.dim(-1) && slice.steps.back() == 1;
  }
  return node.op() == Op::reshape && from.rank() >= 2 && to.rank() >= 1 && from.dim(-1) == to.dim(-1);
}

/// The factor and the other operand of a product or quotient with a constant.
struct Scaled {
  Value *x = nullptr;
  double factor = 0;
};

Scaled scaledBy(const Node &node) {
  if (node.op() != Op::mul && node.op() != Op::div)
    return {};
  if (std::optional<double> right = splatOf(node.operand(1)))
    return {node.operand(0), node.op() == Op::mul ? *right : 1 / *right};
  std::optional<double> left = node.op() == Op::mul ? splatOf(node.operand(0)) : std::nullopt;
  return left ? Scaled{node.operand(1), *left} : Scaled{};
}

Node *onlyDefiner(Value *value) { return value->hasOneUse() ? value->definer() : nullptr; }

/// cap * tanh(x / cap): sets `softcap` and returns x; otherwise null.
Value *uncapped(const Node &node, double &softcap) {
  const Scaled outer = scaledBy(node);
  const Node *tanh = outer.x ? onlyDefiner(outer.x) : nullptr;
  const Node *scaling = tanh && tanh->op() == Op::tanh ? onlyDefiner(tanh->operand(0)) : nullptr;
  const Scaled inner = scaling ? scaledBy(*scaling) : Scaled{};
  if (!inner.x || !(outer.factor > 0) || std::abs(inner.factor * outer.factor - 1) > 1e-6)
    return nullptr;
  softcap = outer.factor;
  return inner.x;
}

/// Finds the uses of the logits by nothing but the loss and by arg_max over the classes.
bool hasOnlyKnownUses(Head &head) {
  Value *logits = head.loss->operand(0);
  for (Use *use = logits->uses(); use; use = use->next()) {
    Node *user = use->user();
    if (user == head.loss)
      continue;
    const bool promotes = isPromotion(*user) && user->result()->hasOneUse();
    Node *reader = promotes ? user->result()->uses()->user() : user;
    if (!isArgMaxOfClasses(*reader))
      return false;
    head.argMaxes.push_back(reader);
  }
  return true;
}

bool isLinear(const Node &node) {
  return node.op() == Op::matmul && !node.get<MatmulAttributes>().transposeA &&
         !node.get<MatmulAttributes>().accumulateF32 && node.operand(1)->type().rank() == 2;
}

/// Follows the logits back to their matmul. Nothing else may read what lies between.
std::optional<Head> headOf(Node &loss) {
  Head head;
  head.loss = &loss;
  if (!hasOnlyKnownUses(head))
    return std::nullopt;
  for (Node *node = loss.operand(0)->definer(); node;) {
    if (isLinear(*node)) {
      head.matmul = node;
      return head;
    }
    Value *from = node->operandCount() > 0 ? node->operand(0) : nullptr;
    if (from && movesRows(*node))
      head.moves.push_back(node);
    else if (Value *x = head.softcap == 0 ? uncapped(*node, head.softcap) : nullptr)
      from = x;
    else if (!from || !isPromotion(*node))
      return std::nullopt;
    node = onlyDefiner(from);
  }
  return std::nullopt;
}

llvm::SmallVector<Head, 2> headsOf(Function &function) {
  llvm::SmallVector<Head, 2> heads;
  for (Node *node : function)
    if (node->op() == Op::crossEntropy)
      if (std::optional<Head> head = headOf(*node))
        heads.push_back(*head);
  return heads;
}

/// The rows of `hidden` in the order and shape in which the loss reads those of the logits.
Value *movedRows(Builder &builder, const Head &head) {
  Value *hidden = head.matmul->operand(0);
  const int64_t width = hidden->type().dim(-1);
  for (Node *move : llvm::reverse(head.moves)) {
    if (move->op() == Op::slice) {
      SliceAttributes slice = move->get<SliceAttributes>();
      slice.sizes.back() = width;
      hidden = builder.create(Op::slice, {hidden}, slice)->result();
      continue;
    }
    Shape shape(move->result()->type().shape());
    shape.back() = width;
    hidden = builder.reshape(hidden, shape);
  }
  return hidden;
}

void replace(Function &function, const Head &head, int64_t chunk) {
  Builder builder(function, head.loss);
  builder.inherit(*head.matmul);
  Value *hidden = movedRows(builder, head);
  LinearLossAttributes attributes;
  attributes.loss = head.loss->get<LossAttributes>();
  attributes.transposeB = head.matmul->get<MatmulAttributes>().transposeB;
  attributes.softcap = head.softcap;
  attributes.chunk = chunk;
  llvm::SmallVector<Value *, 4> operands = {hidden, head.matmul->operand(1), head.loss->operand(1)};
  if (head.matmul->operandCount() == 3)
    operands.push_back(head.matmul->operand(2));
  Node *fused = builder.create(Op::linearCrossEntropy, operands, attributes);
  head.loss->result(0)->replaceAllUsesWith(fused->result(0));
  for (Node *argMax : head.argMaxes)
    argMax->result()->replaceAllUsesWith(fused->result(1));
}

/// The model's outputs get a function of their own, so that an evaluation does not compute logits.
void splitPredictions(Module &module) {
  Function &evaluation = *module.function(FunctionKind::evalStep);
  auto isOutput = [](llvm::StringRef name) { return name.starts_with(names::outputPrefix); };
  if (llvm::none_of(evaluation.returnNode()->get<ReturnAttributes>().names, isOutput))
    return;
  Function &predict = *module.addFunction(FunctionKind::predict);
  ValueMap values;
  cloneBody(evaluation, predict, values);
  const Node &ret = *evaluation.returnNode();
  llvm::SmallVector<Value *, 8> results;
  for (Value *result : ret.operands())
    results.push_back(values.lookup(result));
  Builder(predict).ret(results, ret.get<ReturnAttributes>().names);
  eraseResults(predict, [&](llvm::StringRef name) { return !isOutput(name); });
  eraseResults(evaluation, isOutput);
  for (Function *function : {&predict, &evaluation}) {
    eraseDeadNodes(*function);
    eraseUnusedArguments(*function);
  }
}

/// With fewer classes, logits are not much larger than the layer's operand.
constexpr int64_t manyClasses = 4; ///< per element of a row

/// Positions at once: as asked for, or the target's number where logits are large and it makes at least two chunks; 0:
/// all.
int64_t chunkOf(const Head &head, const PassContext &context) {
  if (context.options.loss.chunk)
    return std::min(*context.options.loss.chunk, head.rows());
  const int64_t usual = context.target.lossChunk(), width = head.matmul->operand(0)->type().dim(-1),
                classes = head.matmul->result()->type().dim(-1);
  return head.rows() >= 2 * usual && classes >= manyClasses * width ? usual : 0;
}

bool apply(Function &function, const PassContext &context) {
  bool any = false;
  for (const Head &head : headsOf(function))
    if (int64_t chunk = chunkOf(head, context); chunk > 0) {
      replace(function, head, chunk);
      any = true;
    }
  eraseDeadNodes(function);
  return any;
}

llvm::Error run(Module &module, const PassContext &context) {
  const bool isAsked = context.options.loss.chunk.value_or(0) > 0;
  if (context.options.splitSamples && isAsked)
    return llvm::createStringError("--loss_chunk: --deterministic world sums over samples in one tree, and the sums of "
                                   "chunks are in no such order; use --loss_chunk off");
  if (context.options.splitSamples)
    return llvm::Error::success();
  Function &step = *module.function(FunctionKind::microStep);
  if (apply(step, context)) {
    splitPredictions(module);
    apply(*module.function(FunctionKind::evalStep), context);
    return llvm::Error::success();
  }
  if (isAsked)
    return llvm::createStringError(
        "--loss_chunk: the loss is not the cross entropy of one matmul's result that nothing "
        "else reads, so its logits exist as a whole; use --loss_chunk off");
  return llvm::Error::success();
}

} // namespace

const Pass chunkLoss = {"chunk_loss",      Stage::train, Stage::train,
                        /*optional=*/true, run,          {FunctionKind::microStep, FunctionKind::evalStep}};

} // namespace fsdpc

#include "ir/ops/attributes.h"
#include "passes/analysis/batch_axis.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/SetVector.h"

namespace fsdpc {

namespace {

// Dropout has four nodes. This limits the search through other elementwise nodes before the mask is applied.
constexpr size_t maxNodes = 16;

/// The batch position of the other operand, possibly broadcast, translated to the random numbers. nullopt if they have
/// no batch axis.
std::optional<BatchPosition> positionIn(const Type &numbers, const Type &met, BatchPosition position) {
  const int64_t axis = position.axis - (met.rank() - numbers.rank());
  if (axis < 0 || numbers.dim(axis) != met.dim(position.axis))
    return std::nullopt;
  position.axis = axis;
  return position;
}

/// The batch position of the values that the random numbers are combined with elementwise. nullopt if none has a batch
/// or if they disagree.
std::optional<BatchPosition> positionFor(const Node &random, const BatchAxis &batch) {
  llvm::SmallSetVector<const Value *, maxNodes> drawn;
  drawn.insert(random.result());
  std::optional<BatchPosition> position;
  for (size_t i = 0; i < drawn.size(); ++i)
    for (Use *use = drawn[i]->uses(); use && drawn.size() < maxNodes; use = use->next()) {
      const bool isBroadcast = use->user()->op() == Op::broadcast;
      if (!isBroadcast && !isElementwise(*use->user()))
        continue;
      const Value *met = use->user()->result();
      std::optional<BatchPosition> found = batch.of(met);
      if (found && !(found = positionIn(random.result()->type(), met->type(), *found)))
        return std::nullopt;
      if (batch.isLost(met) || (found && position && *found != *position))
        return std::nullopt;
      position = found ? found : position;
      if (!found)
        drawn.insert(met);
    }
  return position;
}

/// The shape with the samples on a separate axis, which becomes batch_axis.
RandomUniformAttributes withOwnAxis(RandomUniformAttributes random, const BatchPosition &position) {
  llvm::ArrayRef<int64_t> shape = random.shape;
  Shape split(shape.take_front(position.axis));
  int64_t runs = shape[position.axis] / (position.samples * position.inner);
  if (runs > 1)
    split.push_back(runs);
  random.batchAxis = static_cast<int64_t>(split.size());
  split.push_back(position.samples);
  if (position.inner > 1)
    split.push_back(position.inner);
  llvm::append_range(split, shape.drop_front(position.axis + 1));
  random.shape = std::move(split);
  return random;
}

/// Moves an entire dropout into the split shape, so that later passes find it in the imported form:
/// select(less(numbers, ratio), 0, x * scale), perhaps with a `not` and exchanged branches.
class Splitter {
public:
  Splitter(Node &random, const BatchPosition &position)
      : random(random), shape(random.result()->type().shape()), builder(*random.function(), &random) {
    builder.inherit(random);
    RandomUniformAttributes attributes = withOwnAxis(random.get<RandomUniformAttributes>(), position);
    splitShape = attributes.shape;
    numbers = builder.create(Op::randomUniform, random.operands(), std::move(attributes))->result();
  }

  /// The moved nodes remain without uses.
  void run() {
    Value *whole = builder.reshape(numbers, shape);
    for (Node *user : usersOf(random.result()))
      if (user->op() == Op::less && user->operand(0) == random.result() && splatOf(user->operand(1)))
        moveMask(*user, moved(*user));
    random.result()->replaceAllUsesWith(whole);
  }

private:
  static llvm::SmallVector<Node *, 4> usersOf(const Value *value) {
    llvm::SmallSetVector<Node *, 4> users;
    for (Use *use = value->uses(); use; use = use->next())
      users.insert(use->user());
    return users.takeVector();
  }

  /// The value in the split shape: a scalar unchanged, an already moved value, or a reshape.
  Value *inSplitShape(Value *value) {
    if (value == random.result())
      return numbers;
    if (std::optional<double> number = splatOf(value))
      return builder.constant(value->type().withShape(splitShape), *number);
    return builder.reshape(belowReshapes(value), splitShape);
  }

  /// A copy of the node on operands in the split shape. If given, `mask` replaces operand 0.
  Value *moved(Node &node, Value *mask = nullptr) {
    builder.setInsertionPoint(&node);
    builder.inherit(node);
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node.operands())
      operands.push_back(mask && operands.empty() ? mask : inSplitShape(operand));
    return builder.clone(node, operands)->result();
  }

  /// Selects between a scalar and a value move with their mask, and so does the scale of the value.
  Value *movedChoice(Node &select, Value *mask) {
    builder.setInsertionPoint(&select);
    builder.inherit(select);
    auto branch = [&](Value *value) {
      Node *scaled = definedBy(value, Op::mul);
      if (!scaled || !splatOf(scaled->operand(1)))
        return inSplitShape(value);
      return builder.mul(inSplitShape(scaled->operand(0)), inSplitShape(scaled->operand(1)));
    };
    Value *yes = branch(select.operand(1)), *no = branch(select.operand(2));
    return builder.select(mask, yes, no);
  }

  /// Selects by the mask or its negation move; other readers get it reshaped.
  void moveMask(Node &comparison, Value *mask) {
    llvm::SmallVector<std::pair<Node *, Value *>, 4> masks = {{&comparison, mask}};
    while (!masks.empty()) {
      auto [old, split] = masks.pop_back_val();
      for (Node *user : usersOf(old->result()))
        if (user->op() == Op::logicalNot)
          masks.push_back({user, moved(*user, split)});
        else if (user->op() == Op::select && user->operand(0) == old->result())
          replace(*user, movedChoice(*user, split));
      replace(*old, split);
    }
  }

  void replace(Node &old, Value *split) {
    builder.setInsertionPoint(&old);
    builder.inherit(old);
    Value *value = builder.reshape(split, shape);
    value->setName(old.result()->name());
    old.result()->replaceAllUsesWith(value);
  }

  Node &random;
  const Shape shape;
  Shape splitShape;
  Builder builder;
  Value *numbers;
};

std::string remarkOn(const Node &random) {
  std::string where = random.source.empty() ? "random_uniform" : random.source.substr(random.source.find('|') + 1);
  return where + ": no axis of " + toString(random.result()->type()) +
         " is the batch, so its random numbers depend on the number of ranks";
}

void keyOne(Node &random, const std::optional<BatchPosition> &position, const PassContext &context) {
  auto &own = random.get<RandomUniformAttributes>();
  if (!position) {
    own.batchAxis = -1;
    context.remarks.push_back(remarkOn(random));
  } else if (position->isFullAxisOf(random.result()->type())) {
    own.batchAxis = position->axis;
  } else {
    Splitter(random, *position).run();
  }
}

llvm::Error run(Module &module, const PassContext &context) {
  for (const std::unique_ptr<Function> &function : module.functions) {
    BatchAxis batch(*function);
    std::vector<std::pair<Node *, std::optional<BatchPosition>>> found;
    for (Node *node : *function)
      if (node->op() == Op::randomUniform && node->result()->hasUses())
        found.push_back({node, positionFor(*node, batch)});
    for (auto &[node, position] : found)
      keyOne(*node, position, context);
    eraseDeadNodes(*function);
  }
  return llvm::Error::success();
}

} // namespace

// Not optional: with the imported batch axis, masks could depend on the number of ranks without a remark.
const Pass keyRandomness = {"key_randomness", Stage::graph, Stage::graph, /*optional=*/false, run};

} // namespace fsdpc

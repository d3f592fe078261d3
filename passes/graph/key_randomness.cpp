#include "ir/ops/attributes.h"
#include "passes/analysis/batch_axis.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/SetVector.h"

namespace fsdpc {

namespace {

// Dropout is four nodes; a mask that other elementwise nodes get to see first is not looked for further than this.
constexpr size_t mostNodes = 16;

/// The batch of what the numbers met, perhaps after a broadcast, as a position in them; none if they do not have it.
std::optional<BatchPosition> positionIn(const Type &numbers, const Type &met, BatchPosition position) {
  const int64_t axis = position.axis - (met.rank() - numbers.rank());
  if (axis < 0 || numbers.dim(axis) != met.dim(position.axis))
    return std::nullopt;
  position.axis = axis;
  return position;
}

/// Where the values that the numbers meet, element by element, have the batch. Nothing if none of them has one or if
/// they disagree.
std::optional<BatchPosition> positionFor(const Node &random, const BatchAxis &batch) {
  llvm::SmallSetVector<const Value *, mostNodes> drawn;
  drawn.insert(random.result());
  std::optional<BatchPosition> position;
  for (size_t i = 0; i < drawn.size(); ++i)
    for (Use *use = drawn[i]->uses(); use && drawn.size() < mostNodes; use = use->next()) {
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

/// The shape with the samples on an axis of their own, which becomes batch_axis.
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

/// A dropout moves into the split shape as a whole, so that what follows finds it in the form the import gave it:
/// select(less(numbers, ratio), 0, x * scale), perhaps with a `not` and the branches exchanged.
class Splitter {
public:
  Splitter(Node &random, const BatchPosition &position)
      : random(random), shape(random.result()->type().shape()), builder(*random.function(), &random) {
    builder.inherit(random);
    RandomUniformAttributes attributes = withOwnAxis(random.get<RandomUniformAttributes>(), position);
    splitShape = attributes.shape;
    numbers = builder.create(Op::randomUniform, random.operands(), std::move(attributes))->result();
  }

  /// What was moved stays behind unused.
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

  /// In the split shape: a number as it is, the value already moved, or a reshape.
  Value *inSplitShape(Value *value) {
    if (value == random.result())
      return numbers;
    if (std::optional<double> number = splatOf(value))
      return builder.constant(value->type().withShape(splitShape), *number);
    return builder.reshape(belowReshapes(value), splitShape);
  }

  /// The node on its operands in the split shape; `mask` if given takes the place of operand 0.
  Value *moved(Node &node, Value *mask = nullptr) {
    builder.setInsertionPoint(&node);
    builder.inherit(node);
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node.operands())
      operands.push_back(mask && operands.empty() ? mask : inSplitShape(operand));
    return builder.clone(node, operands)->result();
  }

  /// Choices between a number and a value follow their mask, and the value's scale with them.
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

  /// Choices by the mask or its opposite move; other readers get it reshaped.
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
  } else if (position->isWholeAxisOf(random.result()->type())) {
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

// Not optional: with the batch axis of the import, masks may depend on the number of ranks and nothing would say so.
const Pass keyRandomness = {"key_randomness", Stage::graph, Stage::graph, /*optional=*/false, run};

} // namespace fsdpc

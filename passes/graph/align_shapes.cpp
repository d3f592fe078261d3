// Exporters flatten [B, T, C] to [B*T, C] for a matmul and back, so bias, activation and residual have different
// shapes. The pass walks backwards. A node between reshapes is computed in the shape of its readers and its operands
// are reshaped instead, and so on up to the matmul, where a reshape is free.
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

namespace fsdpc {

namespace {

using ShapeRef = llvm::ArrayRef<int64_t>;

/// Random numbers keep their shape, which determines the batch axis.
bool isMovable(const Node &node) {
  return isElementwise(node) && node.op() != Op::randomUniform && node.op() != Op::fused;
}

ShapeRef withoutLeadingOnes(ShapeRef shape) {
  return shape.drop_while([](int64_t dim) { return dim == 1; });
}

class Aligner {
public:
  explicit Aligner(Function &function) : function(function), builder(function) {}

  void run() {
    for (Node *node : function)
      if (isMovable(*node))
        fixedDims[node] = fixedDimsOf(*node);
    for (Node *node = function.back(); node;) {
      // New nodes are inserted before the node and not visited, except through `next`.
      Node *next = node->previous();
      if (isMovable(*node))
        if (const std::optional<Shape> shape = shapeOfReaders(*node); shape && gains(*node, *shape))
          move(*node, *shape);
      node = next;
    }
    eraseDeadNodes(function);
  }

private:
  static constexpr int64_t allDims = std::numeric_limits<int64_t>::max();

  /// The number of trailing dims that a reshape must keep so that the node, and the operands that only it reads, can be
  /// computed after it: the dims that an operand is not broadcast along.
  int64_t fixedDimsOf(const Node &node) const {
    int64_t dims = 0;
    for (const Value *operand : node.operands()) {
      const Node *definer = operand->definer();
      if (!definer || splatOf(operand))
        continue;
      if (definer->op() == Op::randomUniform)
        return allDims;
      if (definer->op() == Op::broadcast)
        dims = std::max<int64_t>(dims, withoutLeadingOnes(definer->operand(0)->type().shape()).size());
      else if (operand->hasOneUse())
        dims = std::max(dims, fixedDims.lookup(definer));
    }
    return dims;
  }

  bool canMove(const Node &node, ShapeRef to) const {
    ShapeRef from = node.result()->type().shape();
    auto dims = static_cast<uint64_t>(fixedDims.lookup(&node));
    return dims <= from.size() && dims <= to.size() && from.take_back(dims) == to.take_back(dims);
  }

  /// The common shape to which reshapes bring the node for its readers. nullopt if there are several, or if an
  /// elementwise reader uses the node directly.
  static std::optional<Shape> shapeOfReaders(const Node &node) {
    std::optional<Shape> shape;
    for (Use *use = node.result()->uses(); use; use = use->next()) {
      const Node &user = *use->user();
      if (isElementwise(user))
        return std::nullopt;
      if (user.op() != Op::reshape || !user.result()->hasUses())
        continue;
      ShapeRef own = user.result()->type().shape();
      if (shape && ShapeRef(*shape) != own)
        return std::nullopt;
      shape = Shape(own);
    }
    return shape && ShapeRef(*shape) == node.result()->type().shape() ? std::nullopt : shape;
  }

  /// True if more elementwise neighbours have this shape than the node's own. Operands that only the node reads follow
  /// it.
  bool gains(const Node &node, ShapeRef shape) const {
    int balance = 0;
    for (Use *use = node.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::reshape)
        for (Use *behind = use->user()->result()->uses(); behind; behind = behind->next())
          balance += isElementwise(*behind->user());
    for (const Value *operand : node.operands()) {
      const Node *definer = operand->definer();
      if (!definer || splatOf(operand))
        continue;
      if (definer->op() == Op::reshape)
        balance += meetsAfter(*definer, shape);
      else if (isElementwise(*definer) && !operand->hasOneUse())
        --balance;
    }
    return balance > 0 && canMove(node, shape);
  }

  /// True if the reshape's operand is an elementwise result of this shape.
  static bool meetsAfter(const Node &reshape, ShapeRef shape) {
    const Node *definer = reshape.operand(0)->definer();
    return definer && isElementwise(*definer) && definer->result()->type().shape() == shape;
  }

  void move(Node &node, const Shape &shape) {
    builder.setInsertionPoint(&node);
    builder.inherit(node);
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node.operands())
      operands.push_back(inShape(operand, shape));
    Value *moved = builder.clone(node, operands)->result();
    moved->setName(node.result()->name());
    llvm::SmallVector<Use *, 4> uses;
    for (Use *use = node.result()->uses(); use; use = use->next())
      uses.push_back(use);
    for (Use *use : uses)
      giveTo(*use, moved);
    node.erase();
  }

  /// Readers that need another shape get a reshape right before them: an earlier one would separate the neighbours that
  /// have just been joined.
  void giveTo(const Use &use, Value *moved) {
    Node *user = use.user();
    if (user->op() == Op::reshape) {
      user->result()->replaceAllUsesWith(moved);
      return user->erase();
    }
    builder.setInsertionPoint(user);
    user->setOperand(use.index(), builder.reshape(moved, use.value()->type().shape()));
  }

  Value *inShape(Value *value, const Shape &shape) {
    if (std::optional<double> number = exactSplatOf(value))
      return builder.constant(value->type().withShape(shape), *number);
    Node *definer = value->definer();
    if (definer && definer->op() == Op::broadcast) {
      Value *source = definer->operand(0);
      return builder.broadcast(builder.reshape(source, withoutLeadingOnes(source->type().shape())), shape);
    }
    return builder.reshape(belowReshapes(value), shape);
  }

  /// The splat is rebuilt from a double, which cannot represent every 64-bit integer.
  static std::optional<double> exactSplatOf(const Value *value) {
    std::optional<double> number = splatOf(value);
    bool exact = number && (!isInteger(value->type().dtype()) || std::abs(*number) <= 0x1p53);
    return exact ? number : std::nullopt;
  }

  Function &function;
  Builder builder;
  llvm::DenseMap<const Node *, int64_t> fixedDims; ///< of movable nodes, as they were at first
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    Aligner(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass alignShapes = {"align_shapes", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc

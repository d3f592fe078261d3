// Creates nodes at an insertion point. Result types come from the op's shape rule.
#pragma once

#include "ir/module.h"
#include "ir/op.h"

namespace fsdpc {

class Builder {
public:
  /// Inserts before `before`, or at the end of the function if it is null.
  explicit Builder(Function &function, Node *before = nullptr) : target(&function), position(before) {}

  Function &function() const { return *target; }
  Module &module() const { return *target->module(); }
  void setInsertionPoint(Node *before) { position = before; }
  void setInsertionPointAfter(Node *node) { position = node->next(); }
  Node *insertionPoint() const { return position; }

  /// Applies to every node created from now on.
  void setSection(Section section) {
    currentSection = section;
    currentUnit = section.unit;
  }
  Section section() const { return currentSection; }
  void setUnit(int32_t unit) { currentUnit = unit; }
  void setSource(llvm::StringRef source) { currentSource = source.str(); }
  /// Takes section, unit and source from an existing node.
  void inherit(const Node &node);
  void setPhase(Phase phase) { currentSection.phase = phase; }

  /// For types that depend on user input. Returns an error if the op's shape rule fails.
  llvm::Expected<Node *> tryCreate(Op op, llvm::ArrayRef<Value *> operands,
                                   std::unique_ptr<AttributesBase> attributes = nullptr);
  /// For nodes that the compiler makes. A failing shape rule is a bug in the compiler and asserts with the rule's
  /// message.
  Node *create(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes = nullptr);
  template <class A>
  Node *create(Op op, llvm::ArrayRef<Value *> operands, A attributes) {
    return create(op, operands,
                  std::unique_ptr<AttributesBase>(std::make_unique<Attributes<A>>(std::move(attributes))));
  }
  /// Uses the given result types instead of inferring them. For the text reader.
  Node *createWithTypes(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes,
                        llvm::ArrayRef<Type> resultTypes);
  /// Copies op, attributes, section, stream and workspace onto other operands. Result types are inferred again.
  Node *clone(const Node &node, llvm::ArrayRef<Value *> operands);

  // Shorthands. The operands of binary ones have equal types.
  Value *unary(Op op, Value *x) { return create(op, {x})->result(); }
  Value *binary(Op op, Value *a, Value *b) { return create(op, {a, b})->result(); }
  Value *add(Value *a, Value *b) { return binary(Op::add, a, b); }
  Value *sub(Value *a, Value *b) { return binary(Op::sub, a, b); }
  Value *mul(Value *a, Value *b) { return binary(Op::mul, a, b); }
  Value *div(Value *a, Value *b) { return binary(Op::div, a, b); }
  Value *select(Value *condition, Value *yes, Value *no) { return create(Op::select, {condition, yes, no})->result(); }
  Value *cast(Value *x, DType dtype); ///< x itself if it has the dtype
  Value *constant(Type type, double splat);
  Value *constant(Type type, Dense value);
  Value *constantLike(Value *x, double splat) { return constant(x->type(), splat); }
  Value *broadcast(Value *x, llvm::ArrayRef<int64_t> shape);       ///< x itself if it has the shape
  Value *reshape(Value *x, llvm::ArrayRef<int64_t> shape);         ///< x itself if it has the shape
  Value *transpose(Value *x, llvm::ArrayRef<int64_t> permutation); ///< x itself for the identity
  Value *swapLastTwo(Value *x);
  /// Sums over `axes`, which stay as size 1 if keepDims. Returns x itself if `axes` is empty.
  Value *reduceSum(Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims);
  /// Undoes a broadcast: sums x over the dims that `shape` (right-aligned) lacks or has as 1.
  Value *reduceToShape(Value *x, llvm::ArrayRef<int64_t> shape);
  Value *matmul(Value *a, Value *b, bool transposeA = false, bool transposeB = false);
  Value *readState(const State &state);
  Node *writeState(const State &state, Value *value);
  Node *ret(llvm::ArrayRef<Value *> values, llvm::ArrayRef<std::string> names);

private:
  Function *target;
  Node *position;
  Section currentSection;
  int32_t currentUnit = -1;
  std::string currentSource;
};

} // namespace fsdpc

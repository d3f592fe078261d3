#include "ir/node.h"

#include "ir/module.h"

namespace fsdpc {

llvm::StringRef nameOf(Space space) {
  static constexpr llvm::StringRef names[] = {"none", "private", "window", "host"};
  return names[static_cast<size_t>(space)];
}

llvm::StringRef nameOf(Stream stream) {
  static constexpr llvm::StringRef names[] = {"none", "compute", "comm", "reduce", "copy", "host"};
  return names[static_cast<size_t>(stream)];
}

llvm::StringRef nameOf(Phase phase) {
  static constexpr llvm::StringRef names[] = {"none", "forward", "recompute", "backward", "update"};
  return names[static_cast<size_t>(phase)];
}

llvm::StringRef nameOf(Saving saving) {
  static constexpr llvm::StringRef names[] = {"keep", "recompute"};
  return names[static_cast<size_t>(saving)];
}

void Use::link(Value *value) {
  used = value;
  if (!value)
    return;
  following = value->firstUse;
  if (following)
    following->precedingLink = &following;
  precedingLink = &value->firstUse;
  value->firstUse = this;
}

void Use::unlink() {
  if (!used)
    return;
  *precedingLink = following;
  if (following)
    following->precedingLink = precedingLink;
  used = nullptr;
  following = nullptr;
  precedingLink = nullptr;
}

Function *Value::function() const { return node ? node->function() : parent; }

void Value::replaceAllUsesWith(Value *other) {
  assert(other != this && "a value cannot replace itself");
  while (firstUse) {
    Use *use = firstUse;
    use->unlink();
    use->link(other);
  }
}

Node::~Node() { dropOperands(); }

void Node::setOperand(unsigned i, Value *value) {
  operandUses[i]->unlink();
  operandUses[i]->link(value);
}

void Node::appendOperand(Value *value) {
  auto use = std::make_unique<Use>();
  use->owner = this;
  use->position = operandCount();
  use->link(value);
  operandUses.push_back(std::move(use));
}

void Node::dropOperands() {
  for (std::unique_ptr<Use> &use : operandUses)
    use->unlink();
  for (std::unique_ptr<Use> &use : afterUses)
    use->unlink();
  operandUses.clear();
  afterUses.clear();
}

llvm::SmallVector<Value *, 4> Node::operands() const {
  llvm::SmallVector<Value *, 4> values;
  for (const std::unique_ptr<Use> &use : operandUses)
    values.push_back(use->value());
  return values;
}

void Node::addAfter(Value *token) {
  assert(token->type().isToken() && "ordering edges are tokens");
  auto use = std::make_unique<Use>();
  use->owner = this;
  use->position = static_cast<unsigned>(afterUses.size());
  use->link(token);
  afterUses.push_back(std::move(use));
}

bool Node::isBefore(const Node *other) const {
  assert(parent == other->parent && "order is defined within one function");
  if (!parent->orderValid)
    parent->renumber();
  return order < other->order;
}

void Node::moveBefore(Node *position) {
  if (position == this)
    return;
  Function *owner = parent;
  owner->unlink(this);
  owner->insert(this, position);
}

void Node::moveAfter(Node *position) {
  if (position != this)
    moveBefore(position->next());
}

void Node::erase() {
  for (const std::unique_ptr<Value> &result : resultValues)
    assert(!result->hasUses() && "an erased node's results are unused");
  parent->unlink(this);
  delete this;
}

} // namespace fsdpc

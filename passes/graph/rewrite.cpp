#include "passes/graph/rewrite.h"

#include "ir/ops/attributes.h"
#include "llvm/ADT/STLExtras.h"
#include <unordered_map>

namespace fsdpc {

bool isRemovable(const Node &node) { return infoOf(node).has(pure) || node.op() == Op::read; }

namespace {

bool isUnused(const Node &node) {
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (node.result(i)->hasUses())
      return false;
  return true;
}

} // namespace

void eraseWithUnusedOperands(Node *node) {
  llvm::SmallVector<Node *, 8> unused = {node};
  while (!unused.empty()) {
    Node *next = unused.pop_back_val();
    llvm::SmallVector<Value *, 4> operands = next->operands();
    next->erase();
    // Each defining node is added when its last use is removed, hence once.
    llvm::sort(operands);
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    llvm::SmallVector<Node *, 4> definers;
    for (Value *operand : operands)
      if (operand->definer() && !llvm::is_contained(definers, operand->definer()))
        definers.push_back(operand->definer());
    for (Node *definer : definers)
      if (isRemovable(*definer) && isUnused(*definer))
        unused.push_back(definer);
  }
}

void replaceNode(Node *node, llvm::ArrayRef<Value *> values) {
  assert(values.size() == node->resultCount() && "one value for each result");
  for (unsigned i = 0; i < values.size(); ++i) {
    assert(values[i]->type() == node->result(i)->type() && "a replacement has the type of what it replaces");
    if (values[i]->name().empty())
      values[i]->setName(node->result(i)->name());
    node->result(i)->replaceAllUsesWith(values[i]);
  }
  eraseWithUnusedOperands(node);
}

void rewriteNodes(Function &function, llvm::function_ref<Replacement(Node &, Builder &)> simplify) {
  Builder builder(function);
  for (Node *node = function.front(); node;) {
    Node *before = node->previous();
    builder.setInsertionPoint(node);
    builder.inherit(*node);
    Replacement values = simplify(*node, builder);
    if (values.empty()) {
      node = node->next();
      continue;
    }
    Node *built = before ? before->next() : function.front();
    Node *resume = built == node ? node->next() : built;
    replaceNode(node, values);
    node = resume;
  }
}

// ---- Equal nodes

namespace {

llvm::SmallVector<Value *, 4> operandsInOrder(const Node &node) {
  llvm::SmallVector<Value *, 4> operands = node.operands();
  if (infoOf(node).has(commutative))
    llvm::sort(operands);
  return operands;
}

/// Building the text form of a large constant for each comparison would be too slow.
llvm::hash_code hashOf(const Node &node) {
  llvm::SmallVector<Value *, 4> operands = operandsInOrder(node);
  llvm::hash_code hash = llvm::hash_combine(node.op(), llvm::hash_combine_range(operands.begin(), operands.end()));
  if (node.op() != Op::constant)
    return llvm::hash_combine(hash, hashAttributes(node.attributes()));
  const auto &constant = node.get<ConstantAttributes>();
  llvm::ArrayRef<uint8_t> bytes = constant.value.bytes();
  return llvm::hash_combine(hash, constant.value.dtype(), llvm::hash_combine_range(bytes.begin(), bytes.end()),
                            llvm::hash_combine_range(constant.shape.begin(), constant.shape.end()));
}

bool areEqual(const Node &a, const Node &b) {
  if (a.op() != b.op() || operandsInOrder(a) != operandsInOrder(b) || a.resultCount() != b.resultCount())
    return false;
  if (a.op() == Op::constant) {
    const auto &left = a.get<ConstantAttributes>(), &right = b.get<ConstantAttributes>();
    return left.shape == right.shape && left.value == right.value;
  }
  return equalAttributes(a.attributes(), b.attributes());
}

} // namespace

void mergeEqualNodes(Function &function, llvm::function_ref<bool(const Node &)> mayMerge) {
  std::unordered_map<size_t, llvm::SmallVector<Node *, 1>> seen;
  for (Node *node : function) {
    if (!mayMerge(*node))
      continue;
    llvm::SmallVector<Node *, 1> &candidates = seen[hashOf(*node)];
    auto equal = llvm::find_if(candidates, [&](Node *candidate) { return areEqual(*candidate, *node); });
    if (equal == candidates.end()) {
      candidates.push_back(node);
      continue;
    }
    for (unsigned i = 0; i < node->resultCount(); ++i) {
      if ((*equal)->result(i)->name().empty())
        (*equal)->result(i)->setName(node->result(i)->name());
      node->result(i)->replaceAllUsesWith((*equal)->result(i));
    }
    node->erase();
  }
}

} // namespace fsdpc

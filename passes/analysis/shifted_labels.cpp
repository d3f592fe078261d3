#include "passes/analysis/shifted_labels.h"

#include "ir/moved_elements.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include <numeric>

namespace fsdpc {

namespace {

ElementSources inOrder(int64_t count) {
  ElementSources sources(static_cast<size_t>(count));
  std::iota(sources.begin(), sources.end(), 0);
  return sources;
}

bool isConstant(const Value *value) { return value->definer() && value->definer()->op() == Op::constant; }

/// The only non-constant operand of a concat or select, if there is exactly one.
const Value *onlyVariable(const Node &node, unsigned first) {
  const Value *found = nullptr;
  for (unsigned i = first; i < node.operandCount(); ++i)
    if (!isConstant(node.operand(i))) {
      if (found)
        return nullptr;
      found = node.operand(i);
    }
  return found;
}

/// Positions of the result's elements among those of the non-constant operand.
ElementSources joinedSources(const Node &concat, const Value *operand) {
  const int64_t axis = concat.get<AxisAttributes>().axis;
  auto product = [](llvm::ArrayRef<int64_t> dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies<>());
  };
  const int64_t outer = product(concat.result()->type().shape().take_front(axis));
  ElementSources sources;
  for (int64_t i = 0; i < outer; ++i)
    for (unsigned k = 0; k < concat.operandCount(); ++k) {
      const int64_t run = product(concat.operand(k)->type().shape().drop_front(axis));
      for (int64_t element = 0; element < run; ++element)
        sources.push_back(concat.operand(k) == operand ? i * run + element : -1);
    }
  return sources;
}

/// Labels and their origin.
struct Origin {
  const Value *value = nullptr;
  ElementSources sources; ///< positions among the elements, or rows, of the value
};

/// Follows labels upwards through nodes that move them, replace some of them by a constant, or concatenate constants.
Origin originOfLabels(const Value *labels) {
  Origin origin{labels, inOrder(labels->type().elements())};
  while (const Node *node = origin.value->definer()) {
    const Value *operand = node->operandCount() > 0 ? node->operand(0) : nullptr;
    std::optional<ElementSources> moved;
    if (node->op() == Op::select)
      operand = onlyVariable(*node, 1), moved = inOrder(node->result()->type().elements());
    else if (node->op() == Op::concat)
      operand = onlyVariable(*node, 0), moved = operand ? joinedSources(*node, operand) : moved;
    else if (operand)
      moved = movedElements(*node);
    if (!operand || !moved)
      break;
    origin = {operand, composed(origin.sources, *moved)};
  }
  return origin;
}

int64_t rowsOf(const Type &type) { return type.rank() == 0 || type.dim(-1) == 0 ? 0 : type.elements() / type.dim(-1); }

/// True if each row of the result depends only on the same row of operand 0, among activations with rows.
bool isByRow(const Node &node) {
  switch (node.op()) {
  case Op::matmul: return !node.get<MatmulAttributes>().transposeA;
  case Op::softmax:
  case Op::logSoftmax: return node.get<AxisAttributes>().axis == node.result()->type().rank() - 1;
  case Op::layerNorm:
  case Op::rmsNorm: return node.get<NormAttributes>().axis == node.result()->type().rank() - 1;
  default: return isElementwise(node);
  }
}

/// The operand that the rows of the result are computed from. For an elementwise op, the operand that is not a
/// broadcast bias.
const Value *rowOperand(const Node &node) {
  for (unsigned i = 0; isElementwise(node) && i < node.operandCount(); ++i)
    if (const Node *definer = node.operand(i)->definer();
        !definer || (definer->op() != Op::broadcast && definer->op() != Op::constant))
      return node.operand(i);
  return node.operand(0);
}

/// Follows scores upwards to the value with as many rows as there are labels, before which no node moves them.
std::optional<Origin> originOfScores(const Value *scores, int64_t rows) {
  Origin origin{scores, inOrder(rowsOf(scores->type()))};
  while (const Node *node = origin.value->definer()) {
    const bool isDone = rowsOf(origin.value->type()) == rows;
    std::optional<ElementSources> moved = movedRows(*node);
    if (!moved && isDone)
      return origin;
    if (node->operandCount() == 0 || !node->operand(0)->type().isTensor())
      return std::nullopt;
    const Value *operand = moved ? node->operand(0) : rowOperand(*node);
    if (!moved && isByRow(*node) && rowsOf(operand->type()) == rowsOf(origin.value->type()))
      moved = inOrder(rowsOf(origin.value->type()));
    if (!moved)
      return std::nullopt;
    origin = {operand, composed(origin.sources, *moved)};
  }
  return rowsOf(origin.value->type()) == rows ? std::optional(origin) : std::nullopt;
}

const Argument *labelArgument(const Function &forward, const Value *value) {
  for (const Argument &argument : forward.arguments())
    if (argument.value.get() == value)
      return argument.kind == ArgumentKind::input && isInteger(value->type().dtype()) && value->type().rank() == 2
                 ? &argument
                 : nullptr;
  return nullptr;
}

/// True if every label that counts is the label of a later position of its sample, at the same distance.
bool isShifted(const Origin &labels, const Origin &scores) {
  const int64_t length = labels.value->type().dim(1);
  int64_t distance = 0;
  for (size_t i = 0; i < labels.sources.size(); ++i) {
    const int64_t label = labels.sources[i], score = scores.sources[i];
    if (label < 0)
      continue;
    const int64_t own = label - score;
    if (score < 0 || own < 1 || (distance != 0 && own != distance) || label / length != score / length)
      return false;
    distance = own;
  }
  return distance > 0;
}

} // namespace

std::string shiftedLabels(const Function &forward) {
  std::string found;
  for (const Node *node : forward) {
    if (node->op() != Op::crossEntropy && node->op() != Op::nll)
      continue;
    Origin labels = originOfLabels(node->operand(1));
    const Argument *argument = labelArgument(forward, labels.value);
    if (!argument)
      continue;
    std::optional<Origin> scores = originOfScores(node->operand(0), argument->value->type().elements());
    bool isOwn = scores && scores->sources.size() == labels.sources.size() && isShifted(labels, *scores);
    if (!isOwn || (!found.empty() && found != argument->name))
      return "";
    found = argument->name;
  }
  return found;
}

} // namespace fsdpc

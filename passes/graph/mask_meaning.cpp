#include "passes/graph/mask_meaning.h"

#include "ir/eval/evaluate.h"
#include "passes/graph/packed_positions.h"
#include "passes/graph/same_elements.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

bool isConstant(const Linear &linear) {
  return llvm::all_of(linear.steps, [](double step) { return step == 0; });
}

/// a + factor * b
Linear sumOf(const Linear &a, const Linear &b, double factor) {
  Linear sum{a.constant + factor * b.constant, a.steps};
  for (auto [to, step] : llvm::zip(sum.steps, b.steps))
    to += factor * step;
  return sum;
}

std::optional<double> constantOf(const Meaning &meaning) {
  const auto *linear = std::get_if<Linear>(&meaning);
  return linear && isConstant(*linear) ? std::optional(linear->constant) : std::nullopt;
}

namespace {

/// The op on scalars, in the types of the node.
double scalarOf(const Node &node, llvm::ArrayRef<double> operands) {
  std::vector<HostTensor> tensors;
  for (auto [operand, value] : llvm::zip(node.operands(), operands))
    tensors.emplace_back(operand->type().withShape({}), value);
  std::vector<const HostTensor *> pointers;
  for (const HostTensor &tensor : tensors)
    pointers.push_back(&tensor);
  return evaluatePure(node.op(), node.attributes(), pointers, {node.result()->type().withShape({})}).front().values[0];
}

/// Whether a cast leaves the numbers as they are.
bool mayCast(const Linear &linear, DType to) {
  const auto isWhole = [](double number) { return number == std::floor(number); };
  const bool holdsPositions = byteSize(to) >= 4 || !isFloat(to); // 16-bit floats round them
  return holdsPositions && to != DType::boolean && isWhole(linear.constant) && llvm::all_of(linear.steps, isWhole);
}

Meaning choiceOf(Visibility visible, double yes, double no) {
  if (visible.isNegated)
    return Choice{negationOf(std::move(visible)), no, yes};
  return Choice{std::move(visible), yes, no};
}

std::optional<Visibility> truthOf(const Meaning &meaning) {
  if (const auto *choice = std::get_if<Choice>(&meaning)) {
    const bool yes = choice->yes != 0, no = choice->no != 0;
    return yes == no ? (yes ? Visibility::always() : negationOf(Visibility::always()))
           : yes     ? choice->visible
                     : negationOf(choice->visible);
  }
  if (std::optional<double> constant = constantOf(meaning))
    return *constant != 0 ? Visibility::always() : negationOf(Visibility::always());
  if (const auto *opaque = std::get_if<Opaque>(&meaning); opaque && opaque->value->type().dtype() == DType::boolean)
    return Visibility::of(opaque->value);
  return std::nullopt;
}

/// a op b for truths that depend on the distance of key and query; nothing for others.
Meaning compare(Op op, const Linear &a, const Linear &b) {
  const Linear difference = sumOf(a, b, -1); // op compares it with 0
  if (isConstant(difference)) {
    // The difference of equal infinities is no number.
    const double number = a.constant == b.constant ? 0 : difference.constant;
    const bool holds = op == Op::equal ? number == 0 : op == Op::less ? number < 0 : number <= 0;
    return Choice{holds ? Visibility::always() : negationOf(Visibility::always()), 1, 0};
  }
  const auto rank = static_cast<int64_t>(difference.steps.size());
  const double ofKey = difference.steps[rank - 1], ofQuery = difference.steps[rank - 2];
  for (int64_t axis = 0; axis < rank - 2; ++axis)
    if (difference.steps[axis] != 0)
      return {};
  if (std::abs(ofKey) != 1 || ofQuery != -ofKey || std::abs(difference.constant) > Visibility::unlimited / 2)
    return {};
  // ofKey * (key - query) + constant op 0
  const double bound = -difference.constant * ofKey;
  Visibility visible;
  if (op == Op::equal) {
    if (bound != std::floor(bound))
      return {};
    visible.lowest = visible.highest = static_cast<int64_t>(bound);
  } else if (ofKey > 0) {
    visible.highest = static_cast<int64_t>(op == Op::lessEqual ? std::floor(bound) : std::ceil(bound) - 1);
  } else {
    visible.lowest = static_cast<int64_t>(op == Op::lessEqual ? std::ceil(bound) : std::floor(bound) + 1);
  }
  return Choice{visible, 1, 0};
}

/// Whether these are integers for each key and the same for the query of its position.
bool areOfKeyAndQuery(Value *ofKeys, Value *ofQueries) {
  const Type &keys = ofKeys->type(), &queries = ofQueries->type();
  return !isFloat(keys.dtype()) && keys.dim(-1) != 1 && keys.dim(-1) == queries.dim(-2) && keys.dim(-2) == 1 &&
         queries.dim(-1) == 1 && keys.shape().drop_back(2) == queries.shape().drop_back(2) &&
         holdSameElements(ofKeys, ofQueries);
}

/// Equal numbers of a query and a key: documents.
Meaning compareDocuments(Value *a, Value *b) {
  Value *ofKeys = a->type().dim(-1) != 1 ? a : b, *ofQueries = ofKeys == a ? b : a;
  if (!areOfKeyAndQuery(ofKeys, ofQueries))
    return {};
  Visibility visible;
  visible.documents = ofKeys;
  return Choice{visible, 1, 0};
}

/// a op b for positions of a query and a key, up to a constant: a band.
Meaning comparePositions(Op op, Value *a, Value *b) {
  const ShiftedPositions left = takeShiftOff(a), right = takeShiftOff(b);
  const bool isKeyLeft = left.base->type().dim(-1) != 1;
  Value *ofKeys = isKeyLeft ? left.base : right.base, *ofQueries = isKeyLeft ? right.base : left.base;
  const double bound = right.shift - left.shift; // left.base - right.base op bound
  if (std::abs(bound) > Visibility::unlimited / 2 || !areOfKeyAndQuery(ofKeys, ofQueries))
    return {};
  const auto last = static_cast<int64_t>(bound) - (op == Op::less);
  Visibility visible;
  visible.positions = ofKeys;
  if (isKeyLeft)
    visible.highest = last;
  else
    visible.lowest = -last;
  return Choice{visible, 1, 0};
}

/// Numbers of queries compared with numbers of keys.
Meaning compareOpaque(Op op, const Opaque &a, const Opaque &b) {
  if (op == Op::equal)
    return compareDocuments(a.value, b.value);
  return op == Op::less || op == Op::lessEqual ? comparePositions(op, a.value, b.value) : Meaning();
}

/// Choices of one number or another in place of a choice of two numbers.
Meaning select(const Meaning &condition, const Meaning &yes, const Meaning &no) {
  std::optional<Visibility> truth = truthOf(condition);
  if (!truth)
    return {};
  const std::optional<double> yesNumber = constantOf(yes), noNumber = constantOf(no);
  if (yesNumber && noNumber)
    return choiceOf(*truth, *yesNumber, *noNumber);
  const auto *inner = std::get_if<Choice>(noNumber ? &yes : &no);
  const std::optional<double> number = noNumber ? noNumber : yesNumber;
  if (!inner || !number)
    return {};
  // `inner` where this holds, `number` elsewhere
  const Visibility where = noNumber ? *truth : negationOf(*truth);
  if (*number == inner->no) {
    std::optional<Visibility> both = bothOf(where, inner->visible);
    return both ? choiceOf(*both, inner->yes, inner->no) : Meaning();
  }
  if (*number == inner->yes) {
    std::optional<Visibility> either = eitherOf(negationOf(where), inner->visible);
    return either ? choiceOf(*either, inner->yes, inner->no) : Meaning();
  }
  return {};
}

Meaning combineTwo(const Node &node, llvm::ArrayRef<Meaning> operands) {
  const Op op = node.op();
  const auto *a = std::get_if<Linear>(&operands[0]);
  const Linear zero{0, llvm::SmallVector<double, 5>(a ? a->steps.size() : 0)};
  if (a && op == Op::cast && mayCast(*a, node.result()->type().dtype()))
    return *a;
  if (a && op == Op::neg)
    return sumOf(zero, *a, -1);
  if (operands.size() != 2)
    return {};
  if (const auto *x = std::get_if<Opaque>(&operands[0]), *y = std::get_if<Opaque>(&operands[1]); x && y)
    return compareOpaque(op, *x, *y);
  const auto *b = std::get_if<Linear>(&operands[1]);
  if (a && b) {
    if (op == Op::add || op == Op::sub)
      return sumOf(*a, *b, op == Op::add ? 1 : -1);
    if (op == Op::mul && (isConstant(*a) || isConstant(*b)))
      return isConstant(*a) ? sumOf(zero, *b, a->constant) : sumOf(zero, *a, b->constant);
    if (op == Op::less || op == Op::lessEqual || op == Op::equal)
      return compare(op, *a, *b);
    return {};
  }
  // The product of two that are 0 elsewhere.
  const auto *x = std::get_if<Choice>(&operands[0]), *y = std::get_if<Choice>(&operands[1]);
  if (op != Op::mul || !x || !y || x->no != 0 || y->no != 0)
    return {};
  std::optional<Visibility> both = bothOf(x->visible, y->visible);
  return both ? choiceOf(*both, scalarOf(node, {x->yes, y->yes}), 0) : Meaning();
}

} // namespace

Meaning combine(const Node &node, llvm::ArrayRef<Meaning> operands) {
  const Op op = node.op();
  if (op == Op::logicalAnd || op == Op::logicalOr) {
    std::optional<Visibility> a = truthOf(operands[0]), b = truthOf(operands[1]);
    std::optional<Visibility> joined = !a || !b               ? std::nullopt
                                       : op == Op::logicalAnd ? bothOf(*a, *b)
                                                              : eitherOf(*a, *b);
    return joined ? choiceOf(*joined, 1, 0) : Meaning();
  }
  if (op == Op::logicalNot) {
    std::optional<Visibility> truth = truthOf(operands[0]);
    return truth ? choiceOf(negationOf(*truth), 1, 0) : Meaning();
  }
  if (op == Op::select)
    return select(operands[0], operands[1], operands[2]);

  // One choice among constants: the op on both of its numbers.
  llvm::SmallVector<double, 3> yes, no;
  const Choice *choice = nullptr;
  for (const Meaning &operand : operands) {
    const auto *other = std::get_if<Choice>(&operand);
    const std::optional<double> constant = constantOf(operand);
    if ((other && choice) || (!other && !constant)) {
      choice = nullptr;
      break;
    }
    choice = other ? other : choice;
    yes.push_back(other ? other->yes : *constant);
    no.push_back(other ? other->no : *constant);
  }
  if (choice && yes.size() == operands.size())
    return Choice{choice->visible, scalarOf(node, yes), scalarOf(node, no)};
  return combineTwo(node, operands);
}

} // namespace fsdpc

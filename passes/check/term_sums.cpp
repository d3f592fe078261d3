// Terms of sums: over the elements of tensors, over ranks, and over micro-steps.
#include "ir/ops/attributes.h"
#include "ir/ops/guard.h"
#include "passes/check/terms.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

bool Terms::isSameOnRanksOf(TermId x, RankGroup group) const {
  if (group.isOneRank())
    return true;
  while (!terms[x].isSameOnAllRanks) {
    const Term &term = terms[x];
    if (term.kind == Kind::node && term.op == Op::batchSum && term.group.covers(group))
      return true;
    // Values that are equal over the remaining ranks and over micro-steps have the same sum.
    bool isPassedOn =
        term.kind == Kind::node && (term.op == Op::reshape || term.op == Op::cast ||
                                    (term.op == Op::batchSum && (isMicroSum(x) || term.group.isApartFrom(group))));
    if (!isPassedOn)
      return false;
    x = operandsOf(x)[0];
  }
  return true;
}

TermId Terms::squareSum(llvm::ArrayRef<TermId> tensors, RankGroup split, const Node *origin) {
  llvm::SmallVector<TermId, 16> flat;
  for (TermId tensor : tensors)
    flat.push_back(reshape(tensor, {terms[tensor].type.elements()}, origin));
  llvm::sort(flat);
  return intern({.op = Op::squareSum, .type = Type(DType::i64, {squareSumWords}), .group = split, .origin = origin},
                flat);
}

TermId Terms::clipNorm(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type) {
  const auto &attributes = node.get<ClipNormAttributes>();
  llvm::ArrayRef<TermId> sums = operands.drop_back(size_t{1} + attributes.bounded + attributes.scaled);
  llvm::SmallVector<TermId, 16> tensors;
  for (TermId sum : sums)
    if (terms[sum].kind == Kind::node && terms[sum].op == Op::squareSum && terms[sum].group.isOneRank())
      llvm::append_range(tensors, operandsOf(sum));
    else
      return intern({.op = node.op(), .result = result, .type = type, .attributes = node.attributes(), .origin = &node},
                    operands);
  llvm::SmallVector<TermId, 4> joined = {squareSum(tensors, {}, &node)};
  llvm::append_range(joined, operands.drop_front(sums.size()));
  return intern({.op = node.op(), .result = result, .type = type, .attributes = node.attributes(), .origin = &node},
                joined);
}

TermId Terms::batchSum(TermId x, RankGroup group, const Node *origin) {
  if (group.isOneRank())
    return x;
  if (terms[x].kind == Kind::node && terms[x].op == Op::squareSum && terms[x].group == group)
    return squareSum(llvm::SmallVector<TermId, 16>(operandsOf(x)), {}, origin);
  Shape shape(terms[x].type.shape());
  x = withoutReshape(x);
  if (!(group == microGroup()) && isMicroSum(x))
    return reshape(microSum(batchSum(operandsOf(x)[0], group, origin), origin), shape, origin);
  bool isPart = terms[x].kind == Kind::node && terms[x].op == Op::batchSum && terms[x].group.end() == group.stride;
  // Micro-steps are summed in f32, whatever type ranks send. For sums over ranks, both must have one type.
  uint64_t rounding = isPart && microSteps > 1 && group == microGroup() ? terms[x].payload : 0;
  if (isPart && terms[x].payload == rounding) {
    group = {terms[x].group.stride, terms[x].group.size * group.size};
    x = operandsOf(x)[0];
  }
  Term sum{.op = Op::batchSum, .type = terms[x].type, .payload = rounding, .group = group, .origin = origin};
  return reshape(intern(std::move(sum), {x}), shape, origin);
}

bool Terms::isMicroSum(TermId x) const {
  return microSteps > 1 && terms[x].kind == Kind::node && terms[x].op == Op::batchSum &&
         terms[x].group == microGroup() && terms[x].payload == 0;
}

TermId Terms::roundedSum(TermId x, RankGroup group, DType sent, const Node *origin) {
  Shape shape(terms[x].type.shape());
  x = withoutReshape(x);
  if (isMicroSum(x))
    return reshape(microSum(roundedSum(operandsOf(x)[0], group, sent, origin), origin), shape, origin);
  const uint64_t rounding = static_cast<uint64_t>(sent) + 1;
  bool isPart = terms[x].kind == Kind::node && terms[x].op == Op::batchSum && terms[x].payload == rounding &&
                terms[x].group.end() == group.stride;
  if (isPart) {
    group = {terms[x].group.stride, terms[x].group.size * group.size};
    x = operandsOf(x)[0];
  }
  Term sum{.op = Op::batchSum, .type = terms[x].type, .payload = rounding, .group = group, .origin = origin};
  return reshape(intern(std::move(sum), {x}), shape, origin);
}

TermId Terms::promotedSum(TermId x, const Node *origin) {
  const Shape shape(terms[x].type.shape());
  x = withoutReshape(x);
  const Term sum = terms[x];
  bool isRounded = sum.type.dtype() == DType::bf16 || sum.type.dtype() == DType::f16;
  if (sum.kind != Kind::node || sum.op != Op::batchSum || !isRounded)
    return -1;
  TermId summand = operandsOf(x)[0], inner = withoutReshape(summand);
  bool isCast = terms[inner].kind == Kind::node && terms[inner].op == Op::cast &&
                terms[operandsOf(inner)[0]].type.dtype() == DType::f32;
  TermId before =
      isCast ? reshape(operandsOf(inner)[0], Shape(terms[summand].type.shape()), origin) : cast(summand, DType::f32);
  return reshape(roundedSum(before, sum.group, sum.type.dtype(), origin), shape, origin);
}

TermId Terms::add(TermId a, TermId b, const Node *origin) {
  const Type type = terms[a].type;
  return elementwise(Op::add, type.dtype(), {a, b}, type.shape(), origin);
}

TermId Terms::summandOf(TermId sum, TermId accumulator) const {
  sum = withoutReshape(sum);
  if (terms[sum].kind != Kind::node || terms[sum].op != Op::add)
    return -1;
  for (unsigned i = 0; i < 2; ++i) {
    TermId own = operandsOf(sum)[i], other = operandsOf(sum)[1 - i];
    if (withoutReshape(own) == accumulator && !terms[other].isPartial)
      return other;
  }
  return -1;
}

/// The same term over different operands.
TermId Terms::over(TermId x, llvm::ArrayRef<TermId> operands) {
  const Term term = terms[x];
  const Shape shape(term.type.shape());
  switch (term.op) {
  case Op::reshape: return reshape(operands[0], shape, term.origin);
  case Op::broadcast: return broadcast(operands[0], shape, term.origin);
  case Op::batchSum:
    return term.payload == 0 ? batchSum(operands[0], term.group, term.origin)
                             : roundedSum(operands[0], term.group, static_cast<DType>(term.payload - 1), term.origin);
  default: break;
  }
  if (infoOf(term.op).has(pure) && infoOf(term.op).has(fsdpc::elementwise) && !term.attributes)
    return elementwise(term.op, term.type.dtype(), operands, shape, term.origin);
  return intern({.op = term.op,
                 .result = term.result,
                 .type = term.type,
                 .payload = term.payload,
                 .group = term.group,
                 .attributes = term.attributes,
                 .origin = term.origin},
                operands);
}

TermId Terms::completed(TermId x) {
  llvm::DenseMap<TermId, TermId> known;
  auto completedOf = [&](TermId term) { return terms[term].isPartial ? known.lookup(term) : term; };
  std::vector<TermId> open = {x};
  while (!open.empty()) {
    TermId term = open.back();
    if (!terms[term].isPartial || known.contains(term) || terms[term].kind != Kind::node) {
      known.try_emplace(term, term);
      open.pop_back();
      continue;
    }
    llvm::SmallVector<TermId, 4> operands(operandsOf(term));
    bool isSum = terms[term].op == Op::add && operands.size() == 2;
    for (unsigned i = 0; isSum && i < 2; ++i)
      if (terms[withoutReshape(operands[i])].kind == Kind::accumulator && !terms[operands[1 - i]].isPartial)
        known.try_emplace(term, microSum(operands[1 - i], terms[term].origin));
    if (known.contains(term))
      continue;
    size_t before = open.size();
    llvm::copy_if(operands, std::back_inserter(open),
                  [&](TermId operand) { return terms[operand].isPartial && !known.contains(operand); });
    if (open.size() > before)
      continue;
    for (TermId &operand : operands)
      operand = completedOf(operand);
    known[term] = over(term, operands);
  }
  return completedOf(x);
}

} // namespace fsdpc::check

// Terms of lookups in tables: by one rank, and by ranks that exchange rows.
#include "ir/ops/attributes.h"
#include "passes/check/terms.h"

namespace fsdpc::check {

TermId Terms::ofAllRanks(TermId x, RankGroup group, const Node &node) {
  const Type &result = node.result()->type();
  return intern(
      {.op = Op::allGather, .type = result.isFuture() ? result.delivered() : result, .group = group, .origin = &node},
      {x});
}

TermId Terms::operandOfAllRanks(TermId x, RankGroup group) const {
  bool isGathered = x >= 0 && terms[x].kind == Kind::node && terms[x].op == Op::allGather && terms[x].group == group;
  return isGathered ? operandsOf(x)[0] : -1;
}

TermId Terms::answers(TermId table, TermId indices, const RowsAttributes &rows, RankGroup group, const Node &node) {
  TermId inRows = reshape(table, {rows.rows, rows.width}, &node);
  return intern({.op = Op::gatherRows, .type = node.result()->type(), .group = group, .origin = &node},
                {inRows, indices});
}

TermId Terms::lookedUp(TermId answers, RankGroup group, const Node &node) {
  bool isSummand = answers >= 0 && terms[answers].kind == Kind::node && terms[answers].op == Op::gatherRows &&
                   terms[answers].group == group;
  if (!isSummand)
    return -1;
  const TermId table = operandsOf(answers)[0], indices = operandsOf(answers)[1];
  const int64_t rows = terms[indices].type.elements() * terms[table].type.dim(1);
  return reshape(rowsOf(table, indices, &node), {rows}, &node);
}

TermId Terms::addedRows(TermId indices, TermId updates, const RowsAttributes &rows, const Node &node) {
  return addRows(indices, updates, {0, rows.rows, rows.accumulateF32}, node.result()->type().dtype(), &node);
}

TermId Terms::rowsOf(TermId table, TermId indices, const Node *origin) {
  const Shape shape(terms[table].type.shape());
  llvm::SmallVector<DType, 2> casts;
  for (TermId inner = withoutReshape(table); terms[inner].kind == Kind::node && terms[inner].op == Op::cast;
       inner = withoutReshape(table)) {
    casts.push_back(terms[inner].type.dtype());
    table = reshape(operandsOf(inner)[0], shape, origin);
  }
  const Type type = terms[table].type;
  const int64_t rows = type.dim(0), width = type.elements() / rows, count = terms[indices].type.elements();
  ownAttributes.push_back(std::make_unique<Attributes<AxisAttributes>>(AxisAttributes{0}));
  Term term{.op = Op::gather,
            .type = type.withShape({count, width}),
            .attributes = ownAttributes.back().get(),
            .origin = origin};
  TermId found = intern(std::move(term), {reshape(table, {rows, width}, origin), reshape(indices, {count}, origin)});
  for (DType dtype : llvm::reverse(casts))
    found = cast(found, dtype);
  return found;
}

TermId Terms::addRows(TermId indices, TermId updates, const ScatterAddAttributes &attributes, DType dtype,
                      const Node *origin) {
  const int64_t count = terms[indices].type.elements(), width = terms[updates].type.elements() / count;
  ownAttributes.push_back(std::make_unique<Attributes<ScatterAddAttributes>>(attributes));
  Term term{.op = Op::scatterAdd,
            .type = Type(dtype, {attributes.size, width}),
            .attributes = ownAttributes.back().get(),
            .origin = origin};
  return intern(std::move(term), {reshape(indices, {count}, origin), reshape(updates, {count, width}, origin)});
}

} // namespace fsdpc::check

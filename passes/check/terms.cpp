#include "passes/check/terms.h"

#include "ir/ops/attributes.h"
#include "ir/ops/norm.h"
#include "passes/check/fault.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

namespace fsdpc::check {

namespace {

using ShapeRef = llvm::ArrayRef<int64_t>;

ShapeRef withoutLeadingOnes(ShapeRef shape) {
  return shape.drop_while([](int64_t dim) { return dim == 1; });
}

/// The smallest shape that all of them broadcast to. Requires: they broadcast to a common shape.
void joinInto(Shape &joined, ShapeRef shape) {
  if (shape.size() > joined.size())
    joined.insert(joined.begin(), shape.size() - joined.size(), 1);
  size_t shift = joined.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1)
      joined[shift + i] = shape[i];
}

bool broadcastsTo(ShapeRef from, ShapeRef to) {
  from = withoutLeadingOnes(from);
  return from.size() <= to.size() &&
         llvm::all_of(llvm::zip(from, to.take_back(from.size())), [](std::tuple<int64_t, int64_t> dims) {
           return std::get<0>(dims) == 1 || std::get<0>(dims) == std::get<1>(dims);
         });
}

llvm::hash_code hashOf(const Type &type) {
  return llvm::hash_combine(static_cast<int>(type.kind()), static_cast<int>(type.dtype()),
                            llvm::hash_combine_range(type.shape().begin(), type.shape().end()));
}

} // namespace

bool Terms::isTerm(TermId id, const Term &term, llvm::ArrayRef<TermId> operands) const {
  const Term &known = terms[id];
  return known.kind == term.kind && known.op == term.op && known.result == term.result &&
         known.payload == term.payload && known.group == term.group && known.type == term.type &&
         operandsOf(id) == operands && equalAttributes(known.attributes, term.attributes);
}

uint64_t Terms::hashOfTerm(const Term &term, llvm::ArrayRef<TermId> operands) {
  uint64_t hash =
      llvm::hash_combine(static_cast<int>(term.kind), static_cast<int>(term.op), term.result, term.payload,
                         term.group.stride, term.group.size, hashOf(term.type), hashAttributes(term.attributes),
                         llvm::hash_combine_range(operands.begin(), operands.end()));
  return hash >> 1; // the map reserves the two largest values
}

TermId Terms::find(const Term &term, llvm::ArrayRef<TermId> operands) const {
  auto entry = firstOfHash.find(hashOfTerm(term, operands));
  TermId id = entry == firstOfHash.end() ? -1 : entry->second;
  while (id >= 0 && !isTerm(id, term, operands))
    id = nextOfSameHash[id];
  return id;
}

TermId Terms::intern(Term term, llvm::ArrayRef<TermId> operands) {
  if (TermId known = find(term, operands); known >= 0)
    return known;
  TermId &first = firstOfHash.try_emplace(hashOfTerm(term, operands), -1).first->second;
  term.isSameOnAllRanks = isSame(term, operands);
  term.isPartial =
      term.kind == Kind::accumulator ||
      (term.op != Op::updateStatistics && llvm::any_of(operands, [&](TermId x) { return terms[x].isPartial; }));
  term.firstOperand = static_cast<uint32_t>(operandPool.size());
  term.operandCount = static_cast<uint32_t>(operands.size());
  operandPool.insert(operandPool.end(), operands.begin(), operands.end());
  nextOfSameHash.push_back(first);
  first = static_cast<TermId>(terms.size());
  terms.push_back(std::move(term));
  return first;
}

bool Terms::isSame(const Term &term, llvm::ArrayRef<TermId> operands) const {
  switch (term.kind) {
  case Kind::splat:
  case Kind::state: return true;
  case Kind::accumulator:
  case Kind::input:
  case Kind::carry: return false;
  case Kind::node: break;
  }
  if (term.op == Op::batchSum && term.group.covers({1, worldSize}))
    return true;
  if (term.op == Op::squareSum && !term.group.isOneRank())
    return false;
  if (term.op == Op::gatherRows)
    return false;
  return term.op != Op::randomUniform && llvm::all_of(operands, [&](TermId x) { return terms[x].isSameOnAllRanks; });
}

TermId Terms::leaf(Kind kind, llvm::StringRef name, const Type &type, const Node *origin) {
  auto [entry, isNew] = nameIndices.try_emplace(name, names.size());
  if (isNew)
    names.push_back(entry->first());
  return intern({.kind = kind, .type = type, .payload = entry->second, .origin = origin}, {});
}

TermId Terms::splat(const Type &type, llvm::ArrayRef<uint8_t> element, const Node *origin) {
  uint64_t payload = 0;
  std::memcpy(&payload, element.data(), element.size());
  return intern({.kind = Kind::splat, .type = type, .payload = payload, .origin = origin}, {});
}

TermId Terms::constant(const Node &node) {
  const Dense &value = node.get<ConstantAttributes>().value;
  const Type &type = node.result()->type();
  llvm::ArrayRef<uint8_t> bytes = value.bytes();
  size_t width = byteSize(value.dtype());
  bool oneValue = value.isSplat() || (!bytes.empty() && bytes.drop_front(width) == bytes.drop_back(width));
  if (oneValue)
    return splat(type, bytes.take_front(width), &node);
  return intern({.op = Op::constant, .type = type, .attributes = node.attributes(), .origin = &node}, {});
}

TermId Terms::reshape(TermId x, ShapeRef shape, const Node *origin) {
  if (terms[x].kind == Kind::node && terms[x].op == Op::reshape)
    x = operandsOf(x)[0];
  const Term &term = terms[x];
  if (term.type.shape() == shape)
    return x;
  Type type = term.type.withShape(shape);
  if (term.kind == Kind::splat)
    return intern({.kind = Kind::splat, .type = type, .payload = term.payload, .origin = origin}, {});
  return intern({.op = Op::reshape, .type = type, .origin = origin}, {x});
}

TermId Terms::sourceOf(TermId x) {
  Shape bare(withoutLeadingOnes(terms[x].type.shape()));
  x = reshape(x, bare, terms[x].origin);
  return terms[x].kind == Kind::node && terms[x].op == Op::broadcast ? operandsOf(x)[0] : x;
}

TermId Terms::broadcast(TermId x, ShapeRef shape, const Node *origin) {
  if (terms[x].kind == Kind::splat)
    return reshape(x, shape, origin);
  x = sourceOf(x);
  assert(broadcastsTo(terms[x].type.shape(), shape) && "it has fewer elements, or one for each");
  Shape bare(withoutLeadingOnes(shape));
  if (terms[x].type.shape() != ShapeRef(bare)) {
    Type type = terms[x].type.withShape(bare);
    x = intern({.op = Op::broadcast, .type = type, .origin = origin}, {x});
  }
  return reshape(x, shape, origin);
}

TermId Terms::withoutReshape(TermId x) const {
  return terms[x].kind == Kind::node && terms[x].op == Op::reshape ? operandsOf(x)[0] : x;
}

bool Terms::isZero(TermId x) const { return terms[x].kind == Kind::splat && terms[x].payload == 0; }

TermId Terms::zeros(const Type &type) { return intern({.kind = Kind::splat, .type = type}, {}); }

TermId Terms::elementwise(Op op, DType dtype, llvm::ArrayRef<TermId> operands, ShapeRef shape, const Node *origin,
                          bool inAnyOrder) {
  if (op == Op::cast && terms[operands[0]].type.dtype() == dtype)
    return broadcast(operands[0], shape, origin);
  if (TermId sum = op == Op::cast && dtype == DType::f32 ? promotedSum(operands[0], origin) : -1; sum >= 0)
    return broadcast(sum, shape, origin);
  // This recursion is short: the operand of a reshape is no reshape, and every broadcast at least halves the elements.
  if (operands.size() == 1) {
    TermId source = sourceOf(operands[0]), inner = withoutReshape(source);
    if (inner != operands[0]) {
      TermId value = elementwise(op, dtype, inner, Shape(terms[inner].type.shape()), origin);
      return broadcast(reshape(value, Shape(terms[source].type.shape()), origin), shape, origin);
    }
  }
  llvm::SmallVector<TermId, 4> sources;
  Shape joined;
  for (TermId operand : operands) {
    bool anyShape = terms[operand].kind == Kind::splat;
    sources.push_back(anyShape ? operand : sourceOf(operand));
    if (!anyShape)
      joinInto(joined, terms[sources.back()].type.shape());
  }
  for (TermId &source : sources)
    source = broadcast(source, joined, origin);
  Term term{.op = op, .type = Type(dtype, joined), .origin = origin};
  llvm::SmallVector<TermId, 4> reversed(llvm::reverse(sources));
  bool isReversed = inAnyOrder && find(term, sources) < 0 && find(term, reversed) >= 0;
  return broadcast(intern(std::move(term), isReversed ? reversed : sources), shape, origin);
}

TermId Terms::random(const Expression::Step &step, llvm::ArrayRef<TermId> operands, ShapeRef shape,
                     const Node *origin) {
  ownAttributes.push_back(std::make_unique<Attributes<RandomUniformAttributes>>(randomUniformOf(step, shape)));
  return intern({.op = Op::randomUniform,
                 .type = Type(step.dtype, shape),
                 .attributes = ownAttributes.back().get(),
                 .origin = origin},
                operands);
}

llvm::SmallVector<TermId, 2> Terms::fused(const Node &node, llvm::ArrayRef<TermId> operands, ShapeRef shape) {
  const Expression &body = node.get<FusedAttributes>().body;
  std::vector<TermId> known(operands.begin(), operands.end());
  for (const Expression::Step &step : body.steps) {
    llvm::SmallVector<TermId, 4> arguments;
    for (int32_t argument : step.arguments)
      arguments.push_back(known[argument]);
    if (step.op == Op::constant)
      known.push_back(splat(Type(step.dtype, {}), Dense::splat(step.dtype, step.literal).bytes(), &node));
    else if (step.op == Op::randomUniform)
      known.push_back(random(step, arguments, shape, &node));
    else
      known.push_back(elementwise(step.op, step.dtype, arguments, shape, &node));
  }
  llvm::SmallVector<TermId, 2> results;
  for (int32_t yielded : body.yields)
    results.push_back(broadcast(known[yielded], shape, &node));
  return results;
}

llvm::SmallVector<TermId, 2> Terms::addingNorm(const Node &node, llvm::ArrayRef<TermId> operands) {
  const Type &type = addedOperand(node)->type();
  bool isGradient = node.op() == Op::layerNormGrad || node.op() == Op::rmsNormGrad;
  auto sumWith = [&](TermId value) {
    return elementwise(Op::add, type.dtype(), {value, operands.back()}, type.shape(), &node, /*inAnyOrder=*/isGradient);
  };
  llvm::SmallVector<TermId, 6> own(operands.drop_back());
  if (!isGradient)
    own[0] = sumWith(operands[0]);
  llvm::SmallVector<TermId, 2> results;
  for (unsigned i = 0, computed = node.resultCount() - (isGradient ? 0 : 1); i < computed; ++i)
    results.push_back(applyOne(node, own, i, node.result(i)->type()));
  if (isGradient)
    results[0] = sumWith(results[0]);
  else
    results.push_back(own[0]);
  return results;
}

TermId Terms::applyOne(const Node &node, llvm::ArrayRef<TermId> operands, unsigned result, const Type &type) {
  switch (node.op()) {
  case Op::copy: return operands[0];
  case Op::constant: return constant(node);
  case Op::reshape: return reshape(operands[0], type.shape(), &node);
  case Op::broadcast: return broadcast(operands[0], type.shape(), &node);
  case Op::batchSum: {
    const int64_t ranks = node.get<BatchSumAttributes>().ranks;
    return batchSum(operands[0], ranks > 0 ? RankGroup{1, ranks} : batch, &node);
  }
  case Op::updateStatistics: return updatedStatistics(node, operands);
  case Op::squareSum: return squareSum(operands, {}, &node);
  case Op::gather:
    if (node.get<AxisAttributes>().axis == 0 && type.elements() > 0)
      return reshape(rowsOf(operands[0], operands[1], &node), type.shape(), &node);
    break;
  case Op::scatterAdd:
    if (node.get<ScatterAddAttributes>().axis == 0 && type.elements() > 0 && terms[operands[0]].type.elements() > 0)
      return reshape(addRows(operands[0], operands[1], node.get<ScatterAddAttributes>(), type.dtype(), &node),
                     type.shape(), &node);
    break;
  case Op::clipNorm: return clipNorm(node, operands, result, type);
  default: break;
  }
  if (isElementwise(node))
    return elementwise(node.op(), type.dtype(), operands, type.shape(), &node);
  return intern({.op = node.op(), .result = result, .type = type, .attributes = node.attributes(), .origin = &node},
                operands);
}

llvm::SmallVector<TermId, 2> Terms::loop(const Node &node, llvm::ArrayRef<TermId> operands, ShapeRef shape) {
  if (node.op() == Op::fused)
    return fused(node, operands, shape);
  return {elementwise(node.op(), node.result()->type().dtype(), operands, shape, &node)};
}

TermId Terms::updatedStatistics(const Node &node, llvm::ArrayRef<TermId> operands) {
  const Term before = terms[operands[0]];
  const DType dtype = before.type.dtype();
  const Shape shape(before.type.shape());
  const double momentum = node.get<UpdateStatisticsAttributes>().momentum;
  auto times = [&](TermId x, double factor) {
    return elementwise(Op::mul, dtype, {x, splat(Type(dtype, {}), Dense::splat(dtype, factor).bytes(), &node)}, shape,
                       &node);
  };
  const bool isRepeated = microSteps > 1 && before.kind == Kind::state;
  TermId running = isRepeated ? runningStatistic(names[before.payload], before.type) : operands[0];
  TermId next = add(times(running, 1 - momentum), times(operands[1], momentum), &node);
  return isRepeated ? afterMicroSteps(operands[0], next, &node) : next;
}

TermId Terms::afterMicroSteps(TermId before, TermId next, const Node *origin) {
  return intern({.op = Op::updateStatistics, .type = terms[before].type, .origin = origin}, {before, next});
}

TermId Terms::cast(TermId x, DType dtype) {
  return elementwise(Op::cast, dtype, {x}, Shape(terms[x].type.shape()), terms[x].origin);
}

llvm::SmallVector<TermId, 4> Terms::applyOptimizer(const Node &node, llvm::ArrayRef<TermId> operands) {
  const auto &attributes = node.get<OptimizerAttributes>();
  unsigned tensors = node.resultCount() - attributes.copies;
  llvm::SmallVector<TermId, 12> read(operands);
  const AttributesBase *meaning = node.attributes();
  if (attributes.copies) {
    read.erase(read.begin() + tensors + 1);
    OptimizerAttributes without = attributes;
    without.copies = false;
    ownAttributes.push_back(std::make_unique<Attributes<OptimizerAttributes>>(without));
    meaning = ownAttributes.back().get();
  }
  llvm::SmallVector<TermId, 4> results;
  for (unsigned i = 0; i < tensors; ++i)
    results.push_back(intern(
        {.op = node.op(), .result = i, .type = terms[operands[0]].type, .attributes = meaning, .origin = &node}, read));
  if (attributes.copies)
    results.push_back(cast(results[0], node.result(tensors)->type().dtype()));
  return results;
}

llvm::SmallVector<TermId, 2> Terms::apply(const Node &node, llvm::ArrayRef<TermId> operands) {
  if (node.op() == Op::fused)
    return fused(node, operands, node.get<FusedAttributes>().shape);
  if (addedOperand(node))
    return addingNorm(node, operands);
  llvm::SmallVector<TermId, 2> results;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results.push_back(applyOne(node, operands, i, node.result(i)->type()));
  return results;
}

std::string Terms::describe(TermId id) const {
  const Term &term = terms[id];
  auto named = [&](llvm::StringRef kind, char sigil) { return kind.str() + symbolText(sigil, names[term.payload]); };
  switch (term.kind) {
  case Kind::state: return named("state ", '@') + " as it was before";
  case Kind::accumulator: return "what the micro-steps before have summed in " + named("accumulator ", '@');
  case Kind::input: return named("input ", '%');
  case Kind::carry: return named("the carried ", '%');
  case Kind::splat: {
    size_t width = byteSize(term.type.dtype());
    std::vector<uint8_t> bytes(width);
    std::memcpy(bytes.data(), &term.payload, width);
    return "constant " + doubleText(Dense(term.type.dtype(), bytes).at(0)) + " : " + toString(term.type);
  }
  case Kind::node: break;
  }
  std::string op = infoOf(term.op).name.str();
  if (term.op == Op::batchSum && !(term.group == RankGroup{1, worldSize}))
    op = ("a sum over " + llvm::Twine(term.group.size) + " of " + llvm::Twine(worldSize) + " ranks, " +
          llvm::Twine(term.group.stride) + " apart")
             .str();
  if (term.op == Op::batchSum && term.payload != 0)
    op += " sent as " + nameOf(static_cast<DType>(term.payload - 1)).str();
  if (term.op == Op::squareSum)
    op = (op + " of " + llvm::Twine(term.operandCount) + " tensors" +
          (term.group.isOneRank() ? "" : ", this rank's part of " + llvm::Twine(term.group.size)))
             .str();
  op += " : " + toString(term.type);
  return term.origin ? op + " in '" + textOf(*term.origin) + "'" : op;
}

std::pair<TermId, TermId> Terms::firstDifference(TermId a, TermId b) const {
  while (terms[a].kind == Kind::node && terms[a].kind == terms[b].kind && terms[a].op == terms[b].op &&
         terms[a].result == terms[b].result && terms[a].type == terms[b].type && terms[a].group == terms[b].group &&
         terms[a].payload == terms[b].payload && terms[a].operandCount == terms[b].operandCount &&
         equalAttributes(terms[a].attributes, terms[b].attributes)) {
    llvm::ArrayRef<TermId> left = operandsOf(a), right = operandsOf(b);
    const TermId *at = std::mismatch(left.begin(), left.end(), right.begin()).first;
    if (at == left.end())
      break;
    size_t index = at - left.begin();
    a = left[index];
    b = right[index];
  }
  return {a, b};
}

} // namespace fsdpc::check

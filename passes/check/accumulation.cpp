// Functions that a step calls once for every micro-step, interpreted by induction over the calls (see meanings.h).
#include "ir/ops/attributes.h"
#include "passes/check/fault.h"
#include "passes/check/meanings.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

llvm::Error StepMeaning::beginRepeated(const Function &function) {
  isRepeated = &module != &train && module.microSteps > 1 && runsInEveryMicroStep(function.kind());
  partial.clear();
  complete.clear();
  terms.setBatch(runsInEveryMicroStep(function.kind()));
  if (isRepeated)
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::carry)
        return fault(Fault::useBeforeWait, function,
                     "'" + argument.name +
                         "' is carried, but between functions that run in every micro-step only accumulators last");
  for (const Node *node : function) {
    const State *state = node->op() == Op::write ? module.state(node->get<StateAttributes>().state.name) : nullptr;
    bool isAdded = state && state->role == StateRole::accumulator, isMoved = state && state->role == StateRole::buffer;
    if (!isRepeated || !(isAdded || isMoved) || partial.contains(state))
      continue;
    if (isAdded && !isZero(versionOf(*state)))
      return fault(Fault::gradientContribution, *node, "the accumulator holds a sum of another function already");
    partial[state] = partialOf(*state);
  }
  for (const auto &[state, meaning] : partial)
    current[state] = meaning;
  return llvm::Error::success();
}

/// A symbol for every tensor in the accumulator.
Meaning StepMeaning::partialOf(const State &accumulator) {
  auto symbol = [&](llvm::StringRef slot, const Type &type) {
    return terms.leaf(Terms::Kind::accumulator, LogicalName{accumulator.name, slot.str()}.text(), type);
  };
  const State *layout = layoutOf(accumulator);
  Meaning zero = entryOf(accumulator);
  if (!layout)
    return {symbol("", accumulator.type), -1};
  Segment before = segment(zero);
  for (size_t i = 0; i < before.slots.size(); ++i) {
    const Type type = terms[before.slots[i].term].type;
    const std::string &name = layout->slots[i].parameter;
    before.slots[i].term =
        accumulator.role == StateRole::buffer ? terms.runningStatistic(name, type) : symbol(name, type);
  }
  return add(std::move(before));
}

bool StepMeaning::isZero(Meaning meaning) const {
  if (meaning.segment < 0)
    return meaning.term >= 0 && terms.isZero(meaning.term);
  return llvm::all_of(segment(meaning).slots, [&](const Slot &slot) { return terms.isZero(slot.term); });
}

/// The meaning after the last call.
llvm::Error StepMeaning::finishRepeated() {
  if (!isRepeated)
    return llvm::Error::success();
  for (const auto &[state, meaning] : partial) {
    if (!complete.contains(state))
      return fault(Fault::gradientContribution, "accumulator " + symbolText('@', state->name) + " is not added to");
    current[state] = complete.lookup(state);
  }
  for (Result &result : results)
    if (result.meaning.term >= 0) {
      result.meaning.term = terms.completed(result.meaning.term);
      carried[result.name] = result.meaning;
    }
  isRepeated = false;
  return llvm::Error::success();
}

/// The operand that the loop casts before it adds the two, or -1 if neither; nullopt for other loops.
static std::optional<int32_t> castBeforeAddition(const Expression &body) {
  if (body.operandCount != 2 || body.steps.empty() || body.steps.size() > 2 || body.yields.size() != 1)
    return std::nullopt;
  const Expression::Step &add = body.steps.back(), &cast = body.steps.front();
  bool castsOne = body.steps.size() == 2;
  if (add.op != Op::add || body.yields[0] != static_cast<int32_t>(1 + body.steps.size()) ||
      (castsOne && (cast.op != Op::cast || cast.arguments[0] >= 2)))
    return std::nullopt;
  const int32_t own = castsOne ? cast.arguments[0] : -1;
  bool isCastAdded = !castsOne;
  llvm::SmallVector<int32_t, 2> added(add.arguments.begin(), add.arguments.end());
  for (int32_t &argument : added)
    if (argument == 2) {
      argument = own;
      isCastAdded = true;
    }
  return isCastAdded && added[0] != added[1] ? std::optional(own) : std::nullopt;
}

/// The accumulator in a loop that adds two segments, one of which is an accumulator; null for other nodes.
const State *StepMeaning::addsToAccumulator(const Node &node) const {
  bool isLoop = node.op() == Op::fused && castBeforeAddition(node.get<FusedAttributes>().body);
  if (!isRepeated || node.operandCount() != 2 || (node.op() != Op::add && !isLoop))
    return nullptr;
  for (const auto &[state, meaning] : partial)
    for (const Value *operand : node.operands())
      if (meaning.segment >= 0 && of(operand).segment == meaning.segment)
        return state;
  return nullptr;
}

llvm::Error StepMeaning::readAccumulation(const Node &node) {
  const State &state = *addsToAccumulator(node);
  Meaning before = partial.lookup(&state);
  const int32_t summandIndex = of(node.operand(0)).segment == before.segment ? 1 : 0;
  const int32_t castIndex =
      node.op() == Op::fused ? castBeforeAddition(node.get<FusedAttributes>().body).value_or(-1) : -1;
  if (castIndex == 1 - summandIndex)
    return fault(Fault::differentValue, node, "the accumulator is cast before it is added to");
  Meaning summand = of(node.operand(static_cast<unsigned>(summandIndex)));
  if (summand.segment < 0)
    return fault(Fault::shardBounds, node, "what is added to the accumulator is not a flat range of gradients");
  if (!isLaidOut(segment(summand), state))
    return fault(segment(summand).slots.size() < segment(before).slots.size() ? Fault::gradientContribution
                                                                              : Fault::shardBounds,
                 node, "what is added is laid out otherwise than the accumulator");
  Segment sum = segment(before);
  for (size_t i = 0; i < sum.slots.size(); ++i) {
    const Type type = terms[sum.slots[i].term].type;
    TermId addend = terms.reshape(segment(summand).slots[i].term, Shape(type.shape()), &node);
    if (castIndex == summandIndex)
      addend = terms.cast(addend, node.get<FusedAttributes>().body.steps[0].dtype);
    if (terms[addend].type.dtype() != type.dtype())
      return fault(Fault::differentValue, node, "what is added is of another type than the accumulator");
    sum.slots[i].term = terms.add(sum.slots[i].term, addend, &node);
  }
  set(node, add(std::move(sum)));
  return llvm::Error::success();
}

llvm::Expected<TermId> StepMeaning::summandOf(const Node &node, TermId sum, TermId accumulator) const {
  TermId summand = terms.summandOf(sum, accumulator);
  if (summand >= 0)
    return summand;
  return fault(Fault::gradientContribution, node,
               "the accumulator is not its previous value plus one term of this micro-step, but " +
                   terms.describe(sum));
}

/// Checks that the region is written once, from the value that this micro-step found. The term is the same in every
/// call, with other inputs.
llvm::Error StepMeaning::writeStatistics(const Node &node, const State &run, Meaning meaning) {
  if (!run.isFlat() || meaning.segment < 0 || !isLaidOut(segment(meaning), run))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  if (complete.contains(&run))
    return fault(Fault::staleVersion, node, "running statistics are written a second time in a micro-step");
  current[&run] = meaning;
  Segment before = segment(entryOf(run)), after = segment(meaning);
  for (size_t i = 0; i < after.slots.size(); ++i) {
    const Shape shape(terms[before.slots[i].term].type.shape());
    TermId next = terms.reshape(after.slots[i].term, shape, &node);
    after.slots[i].term = terms.afterMicroSteps(before.slots[i].term, next, &node);
    written[{run.slots[i].parameter, ""}] = after.slots[i].term;
  }
  complete[&run] = add(std::move(after));
  return llvm::Error::success();
}

/// Checks that a micro-step writes the sum so far plus one term of its own, once, and that other functions write zeros.
llvm::Error StepMeaning::writeAccumulator(const Node &node, const State &state, Meaning meaning) {
  bool isSegment = layoutOf(state) != nullptr;
  if (!isRepeated) {
    if (!isZero(meaning))
      return fault(Fault::gradientContribution, node, "after the last micro-step an accumulator is cleared");
    current[&state] = entryOf(state);
    return llvm::Error::success();
  }
  if (isSegment != (meaning.segment >= 0))
    return fault(Fault::gradientContribution, node, "no gradients of its segment are written to the accumulator");
  if (complete.contains(&state))
    return fault(Fault::gradientContribution, node, "the accumulator is written a second time in a micro-step");
  current[&state] = meaning;
  Meaning before = partial.lookup(&state);
  if (!isSegment) {
    llvm::Expected<TermId> summand = summandOf(node, meaning.term, before.term);
    if (!summand)
      return summand.takeError();
    complete[&state] = {terms.microSum(terms.reshape(*summand, Shape(state.type.shape())), &node), -1};
    return llvm::Error::success();
  }
  if (!isLaidOut(segment(meaning), state))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  Segment sum = segment(meaning);
  for (size_t i = 0; i < sum.slots.size(); ++i) {
    TermId own = segment(before).slots[i].term;
    llvm::Expected<TermId> summand = summandOf(node, sum.slots[i].term, own);
    if (!summand)
      return summand.takeError();
    sum.slots[i].term = terms.microSum(terms.reshape(*summand, Shape(terms[own].type.shape())), &node);
  }
  complete[&state] = add(std::move(sum));
  return llvm::Error::success();
}

llvm::Error StepMeaning::checkAccumulatorsAreZero() {
  for (const State &state : module.states)
    if (state.role == StateRole::accumulator && current.contains(&state) && !isZero(current.lookup(&state)))
      return fault(Fault::gradientContribution,
                   "accumulator " + symbolText('@', state.name) + " is not zero when the next step begins");
  return llvm::Error::success();
}

} // namespace fsdpc::check

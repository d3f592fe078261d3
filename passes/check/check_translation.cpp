// checkAgainstTrain: interprets both modules as terms, step by step, and compares them at the end of each function.
#include "passes/check/check_schedule.h"

#include "ir/reserved_names.h"
#include "passes/check/fault.h"
#include "passes/check/layout.h"
#include "passes/check/meanings.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

using namespace check;

namespace {

// Sums with more gradient contributions than this are only compared as single terms.
constexpr size_t maxAddends = 256;

/// Consecutive functions in both modules.
class Comparison {
public:
  Comparison(const Module &train, const Module &planned)
      : train(train), planned(planned), terms(planned.worldSize(), planned.microSteps), expected(train, train, terms),
        found(planned, train, terms), carriedOver(carriedOverSteps(planned)) {}
  /// The next function, given as it appears in each module.
  llvm::Error run(const Function &trainFunction, const Function &plannedFunction);
  /// To be called after the last function.
  llvm::Error finish();

private:
  llvm::Error compareResults(const Function &trainFunction);
  llvm::Error compareTensors(llvm::StringMap<TermId> &results);
  llvm::Error compareAccumulators();
  bool isTakenLater(llvm::StringRef result) const;
  llvm::Error compareGradients(const State &segment, Meaning meaning);
  llvm::Error compareTaps();
  /// The function in which a state is written may differ, its value may not.
  llvm::Error compareStates();
  llvm::Error differ(const llvm::Twine &what, TermId wanted, TermId got, bool isGradient);
  Fault classOf(TermId wanted, TermId got, bool isGradient, std::pair<TermId, TermId> difference);
  TermId stripSums(TermId term) const;
  std::vector<TermId> addendsOf(TermId term) const;
  bool isOtherVersion(TermId a, TermId b);
  bool sumsSquares(TermId term) const;
  bool isCarriedOn(llvm::StringRef result) const;

  const Module &train, &planned;
  const Function *plannedFunction = nullptr; ///< the one being compared
  Terms terms;
  StepMeaning expected, found;
  const std::vector<CarriedOver> carriedOver; ///< of the planned module
  llvm::StringMap<TermId> gradients;          ///< returned by the train function and not yet found, by parameter
};

llvm::Error Comparison::run(const Function &trainFunction, const Function &function) {
  plannedFunction = &function;
  if (llvm::Error error = expected.read(trainFunction))
    return error;
  if (llvm::Error error = found.read(function))
    return error;
  if (llvm::Error error = compareResults(trainFunction))
    return error;
  return compareTaps();
}

/// True if a later function, of this step or the next, uses the result. It is then compared where it is used.
bool Comparison::isCarriedOn(llvm::StringRef result) const {
  bool isLeft = llvm::any_of(carriedOver, [&](const CarriedOver &over) { return over.argument->name == result; });
  return isLeft || llvm::any_of(planned.functions, [&](const std::unique_ptr<Function> &function) {
           return function->kind() > plannedFunction->kind() &&
                  llvm::any_of(function->arguments(), [&](const Argument &argument) {
                    return argument.kind == ArgumentKind::carry && argument.name == result;
                  });
         });
}

// ---- results

llvm::Error Comparison::compareResults(const Function &trainFunction) {
  llvm::StringMap<TermId> others;
  gradients.clear();
  for (const StepMeaning::Result &result : expected.results) {
    bool inMicroStep = trainFunction.kind() == FunctionKind::microStep;
    const State *parameter = inMicroStep ? ownerOfGradient(train, result.name, StateRole::parameter) : nullptr;
    if (parameter)
      gradients[parameter->name] = result.meaning.term;
    else
      others[result.name] = result.meaning.term;
  }
  if (llvm::Error error = compareTensors(others))
    return error;
  if (planned.microSteps > 1 && trainFunction.kind() == FunctionKind::microStep)
    if (llvm::Error error = compareAccumulators())
      return error;
  for (const StepMeaning::Result &result : expected.results) // in a fixed order, so that messages are deterministic
    if (llvm::StringRef name = result.name; name.consume_front(names::gradientPrefix) && gradients.contains(name))
      return fault(Fault::gradientContribution, *plannedFunction,
                   "the gradient of parameter '" + name + "' is not " +
                       (planned.microSteps > 1 ? "accumulated" : "returned"));
  return llvm::Error::success();
}

/// True if the train module carries the result on. Between functions that run several times it is in an accumulator,
/// and its uses are compared instead.
bool Comparison::isTakenLater(llvm::StringRef result) const {
  return planned.microSteps > 1 && llvm::any_of(train.functions, [&](const std::unique_ptr<Function> &function) {
           return llvm::any_of(function->arguments(), [&](const Argument &argument) {
             return argument.kind == ArgumentKind::carry && argument.name == result;
           });
         });
}

/// After the last micro-step: an accumulated value is at least partially summed over ranks. update sums the rest; its
/// writes are compared with the complete sum.
llvm::Error Comparison::compareAccumulators() {
  for (const State &state : planned.states) {
    const State *owner = state.role == StateRole::accumulator ? planned.state(state.owner) : nullptr;
    if (!owner)
      continue;
    const Segment &value = found.accumulated(state);
    for (size_t i = 0; i < value.slots.size(); ++i) {
      const std::string &parameter = owner->slots[i].parameter;
      auto wanted = gradients.find(parameter);
      if (wanted == gradients.end())
        return fault(Fault::gradientContribution, *plannedFunction,
                     "parameter '" + parameter + "' has a gradient that the train module does not have, or twice");
      // An accumulator is f32, whatever type is sent.
      TermId summed = terms.cast(wanted->second, terms[value.slots[i].term].type.dtype());
      TermId whole = stripSums(summed), local = stripSums(value.slots[i].term);
      if (terms.isZero(local))
        continue;
      if (terms.reshape(local, Shape(terms[whole].type.shape())) != whole)
        return differ("the gradient of parameter '" + parameter + "'", whole, local, true);
      gradients.erase(wanted);
    }
  }
  return llvm::Error::success();
}

llvm::Error Comparison::compareTensors(llvm::StringMap<TermId> &results) {
  for (const StepMeaning::Result &result : found.results) {
    auto wanted = results.find(result.name);
    const State *segment = ownerOfGradient(planned, result.name, StateRole::segment);
    bool isGradient = result.meaning.segment >= 0 && segment && plannedFunction->kind() == FunctionKind::microStep;
    if (isGradient) {
      if (llvm::Error error = compareGradients(*segment, result.meaning))
        return error;
      continue;
    }
    if (wanted == results.end() && isCarriedOn(result.name))
      continue;
    if (wanted == results.end() || result.meaning.term < 0)
      return fault(Fault::differentValue, *plannedFunction, "result '" + result.name + "' is none of the train module");
    if (wanted->second != result.meaning.term)
      return differ("result '" + result.name + "'", wanted->second, result.meaning.term, false);
    results.erase(wanted);
  }
  for (const auto &missing : results)
    if (!isTakenLater(missing.first()))
      return fault(Fault::differentValue, *plannedFunction, "result '" + missing.first() + "' is missing");
  return llvm::Error::success();
}

llvm::Error Comparison::compareGradients(const State &segment, Meaning meaning) {
  const Segment &value = found.segment(meaning);
  auto where = [&](const llvm::Twine &message) {
    return fault(Fault::shardBounds, *plannedFunction,
                 "the gradient of segment " + symbolText('@', segment.name) + message);
  };
  if (!(value.split == RankGroup::of(planned.axis(segment.over))) || value.elements != segment.paddedElements)
    return where(" is not this rank's part of it");
  for (const Slot &slot : value.slots) {
    auto home = llvm::partition_point(segment.slots, [&](const SegmentSlot &candidate) {
      return candidate.offsetElements + candidate.elements < slot.offset + slot.elements;
    });
    bool isHome = home != segment.slots.end() && home->offsetElements == slot.offset && home->elements == slot.elements;
    if (!isHome)
      return where(" has a part at element " + llvm::Twine(slot.offset) + ", where no parameter is");
    auto wanted = gradients.find(home->parameter);
    if (wanted == gradients.end())
      return fault(Fault::gradientContribution, *plannedFunction,
                   "parameter '" + home->parameter + "' has a gradient that the train module does not have, or twice");
    Shape shape(terms[wanted->second].type.shape());
    TermId got = terms.reshape(slot.term, shape);
    if (got != wanted->second)
      return differ("the gradient of parameter '" + home->parameter + "'", wanted->second, got, true);
    gradients.erase(wanted);
  }
  return llvm::Error::success();
}

// ---- states and taps

llvm::Error Comparison::compareStates() {
  auto text = [](const LogicalName &name) {
    return "state '" + name.owner + (name.field.empty() ? "'" : "' (" + name.field + ")");
  };
  for (const auto &[name, wanted] : expected.written) {
    auto got = found.written.find(name);
    if (got == found.written.end())
      return fault(Fault::staleVersion, *plannedFunction, text(name) + " is not written");
    TermId value = terms.reshape(got->second, Shape(terms[wanted].type.shape()));
    if (value != wanted)
      return differ("the new value of " + text(name), wanted, value, false);
  }
  for (const auto &[name, got] : found.written)
    if (!expected.written.contains(name))
      return fault(Fault::differentValue, *plannedFunction,
                   text(name) + " is written, but the train module does not write it");
  return llvm::Error::success();
}

llvm::Error Comparison::finish() {
  if (llvm::Error error = found.checkCarriedOver())
    return error;
  if (llvm::Error error = found.checkAccumulatorsAreZero())
    return error;
  return compareStates();
}

llvm::Error Comparison::compareTaps() {
  llvm::StringMap<TermId> wanted;
  for (const StepMeaning::Tap &tap : expected.taps)
    wanted[tap.parameter] = tap.term;
  for (const StepMeaning::Tap &tap : found.taps) {
    auto entry = wanted.find(tap.parameter);
    if (entry == wanted.end())
      return fault(Fault::differentValue, *tap.node, "the train module does not tap this, or only once");
    TermId value = terms.reshape(tap.term, Shape(terms[entry->second].type.shape()));
    if (value != entry->second)
      return differ("what is tapped as '" + tap.parameter + "'", entry->second, value, false);
    wanted.erase(entry);
  }
  for (const StepMeaning::Tap &tap : expected.taps)
    if (wanted.contains(tap.parameter))
      return fault(Fault::differentValue, *plannedFunction, "'" + tap.parameter + "' is not tapped");
  return llvm::Error::success();
}

// ---- reporting differences

TermId Comparison::stripSums(TermId term) const {
  while (terms[term].kind == Terms::Kind::node && (terms[term].op == Op::batchSum || terms[term].op == Op::reshape))
    term = terms.operandsOf(term)[0];
  return term;
}

std::vector<TermId> Comparison::addendsOf(TermId term) const {
  std::vector<TermId> addends, open = {stripSums(term)};
  while (!open.empty() && addends.size() < maxAddends) {
    TermId next = stripSums(open.back());
    open.pop_back();
    if (terms[next].kind == Terms::Kind::node && terms[next].op == Op::add)
      llvm::append_range(open, terms.operandsOf(next));
    else
      addends.push_back(next);
  }
  llvm::sort(addends);
  return addends;
}

/// True if one of them is a state at entry, and the other its new value from this function.
bool Comparison::isOtherVersion(TermId a, TermId b) {
  if (terms[a].kind == terms[b].kind)
    return false;
  TermId old = terms[a].kind == Terms::Kind::state ? a : b, next = old == a ? b : a;
  if (terms[old].kind != Terms::Kind::state)
    return false;
  for (const auto &[name, written] : expected.written)
    if (written == next && terms.leaf(Terms::Kind::state, name.text(), terms[old].type) == old)
      return true;
  return false;
}

/// True for a square-sum accumulator, or a sum over ranks of one.
bool Comparison::sumsSquares(TermId term) const {
  term = stripSums(term);
  return terms[term].kind == Terms::Kind::node && terms[term].op == Op::squareSum;
}

Fault Comparison::classOf(TermId wanted, TermId got, bool isGradient, std::pair<TermId, TermId> difference) {
  if (isOtherVersion(difference.first, difference.second))
    return Fault::staleVersion;
  if (sumsSquares(difference.first) && sumsSquares(difference.second))
    return Fault::gradientContribution;
  if (!isGradient)
    return Fault::differentValue;
  std::vector<TermId> more = addendsOf(wanted), less = addendsOf(got);
  if (more.size() < less.size())
    std::swap(more, less);
  bool sameAddends = std::includes(more.begin(), more.end(), less.begin(), less.end());
  return sameAddends ? Fault::gradientContribution : Fault::differentValue;
}

llvm::Error Comparison::differ(const llvm::Twine &what, TermId wanted, TermId got, bool isGradient) {
  auto [left, right] = terms.firstDifference(wanted, got);
  std::string message = (what + " differs from the train module's: that has " + terms.describe(left) +
                         ", the planned module has " + terms.describe(right))
                            .str();
  Fault kind = classOf(wanted, got, isGradient, {left, right});
  const Node *origin = terms[right].origin;
  bool inPlanned = origin && origin->function() == plannedFunction;
  return inPlanned ? fault(kind, *origin, message) : fault(kind, *plannedFunction, message);
}

} // namespace

namespace {

llvm::Error checkFunctions(const Module &train, const Module &planned) {
  if (train.microSteps != planned.microSteps)
    return fault(Fault::differentValue, "the train module has " + llvm::Twine(train.microSteps) +
                                            " micro-steps, the planned module " + llvm::Twine(planned.microSteps));
  for (const std::unique_ptr<Function> &function : planned.functions)
    if (!train.function(function->kind()))
      return fault(Fault::differentValue, *function, "the train module has no such function");
  for (const std::unique_ptr<Function> &function : train.functions)
    if (!planned.function(function->kind()))
      return fault(Fault::differentValue, *function, "the planned module has no such function");
  return llvm::Error::success();
}

/// Sequences of functions. No value is carried from one sequence to another. Taps change nothing, so a step may always
/// include them.
constexpr FunctionKind stepKinds[] = {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients,
                                      FunctionKind::update};
constexpr FunctionKind evalKinds[] = {FunctionKind::evalStep};
constexpr FunctionKind predictKinds[] = {FunctionKind::predict};
constexpr FunctionKind exportKinds[] = {FunctionKind::exportWeights};
constexpr FunctionKind averageKinds[] = {FunctionKind::exportAverages};
constexpr FunctionKind startKinds[] = {FunctionKind::start};
constexpr llvm::ArrayRef<FunctionKind> sequences[] = {stepKinds,   evalKinds,    predictKinds,
                                                      exportKinds, averageKinds, startKinds};

} // namespace

llvm::Error checkAgainstTrain(const Module &train, const Module &planned) {
  assert(train.stage == Stage::train && planned.stage == Stage::planned && "the checker compares planned with train");
  if (llvm::Error error = checkLayout(train, planned))
    return error;
  if (llvm::Error error = checkFunctions(train, planned))
    return error;
  for (llvm::ArrayRef<FunctionKind> kinds : sequences) {
    Comparison comparison(train, planned);
    for (FunctionKind kind : kinds)
      if (const Function *function = train.function(kind))
        if (llvm::Error error = comparison.run(*function, *planned.function(kind)))
          return error;
    if (llvm::Error error = comparison.finish())
      return error;
  }
  return llvm::Error::success();
}

} // namespace fsdpc

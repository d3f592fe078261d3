#include "ir/eval/rank_run.h"

#include "ir/carried.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

void RankRun::fault(const llvm::Twine &message) {
  std::string where = current ? nameOf(current->function.kind()).str() + ": " : "";
  rendezvous.fail("rank " + std::to_string(ownRank) + ": " + where + message.str());
}

std::string RankRun::describe(const Node &of) const {
  std::string text = infoOf(of).name.str();
  if (of.resultCount() && !of.result()->name().empty())
    text += " " + symbolText('%', of.result()->name());
  if (!of.source.empty())
    text += " (" + of.source + ")";
  return text;
}

namespace {

std::string nameOfValue(const Value &value) {
  if (!value.name().empty())
    return symbolText('%', value.name());
  return value.definer() ? "the result of " + infoOf(*value.definer()).name.str() : "an argument";
}

} // namespace

// ---- environment

const HostTensor &RankRun::readState(llvm::StringRef name) {
  auto found = states.find(name.str());
  const Type &type = node->result()->type();
  if (found != states.end() && found->second.type == type)
    return found->second;
  fault(found == states.end()
            ? "there is no state " + symbolText('@', name)
            : "state " + symbolText('@', name) + " is " + toString(found->second.type) + ", read as " + toString(type));
  absent = HostTensor(type);
  return absent;
}

void RankRun::writeState(llvm::StringRef name, const HostTensor &value) {
  auto found = states.find(name.str());
  if (found == states.end())
    return fault("there is no state " + symbolText('@', name));
  if (!(found->second.type == value.type))
    return fault("state " + symbolText('@', name) + " is " + toString(found->second.type) + ", written as " +
                 toString(value.type));
  found->second = value;
}

void RankRun::tap(const TapAttributes &tap, const HostTensor &value) {
  if (!taps)
    return;
  HostTensor &tapped = (*taps)[tap.parameter.name];
  if (tap.part == 0) {
    tapped = value;
    return;
  }
  const Parameter *parameter = current->function.module()->parameter(tap.parameter.name);
  if (!parameter)
    return fault("there is no parameter " + symbolText('@', tap.parameter.name) + " of which parts are tapped");
  if (tapped.values.empty())
    tapped = HostTensor(parameter->type.withDType(value.type.dtype()));
  const auto end = static_cast<int64_t>(tapped.values.size());
  for (int64_t i = 0; i < static_cast<int64_t>(value.values.size()); ++i)
    if (const int64_t at = tap.from + i / tap.part * tap.every + i % tap.part; at < end)
      tapped.values[at] = value.values[i];
}

void RankRun::stash(llvm::StringRef segment, const HostTensor &value) {
  stashes[segment.str()] = results[(names::gradientPrefix + segment).str()] = std::make_shared<const HostTensor>(value);
}

const HostTensor &RankRun::stashed(llvm::StringRef segment, const Type &type) {
  auto found = stashes.find(segment.str());
  if (found != stashes.end() && found->second->type == type)
    return *found->second;
  fault("nothing of this type was stashed for " + symbolText('@', segment));
  absent = HostTensor(type);
  return absent;
}

std::vector<HostTensor> RankRun::exchange(llvm::StringRef collective, const HostTensor &mine) {
  return rendezvous.exchange(ownRank, collective.str() + " in " + nameOf(current->function.kind()).str(), mine);
}

// ---- one function

/// No previous step left the value, so it is the gather of the state's current version.
RankRun::TensorPointer RankRun::gathered(const CarriedOver &over) {
  node = over.start;
  auto shard = states.find(over.state().str());
  if (shard == states.end()) {
    fault("there is no state " + symbolText('@', over.state()));
    return nullptr;
  }
  const HostTensor *operand = &shard->second;
  HostTensor whole(node->result()->type());
  EvaluateContext context{node->attributes(), operand, whole, this};
  infoOf(*node).evaluate(context);
  return std::make_shared<const HostTensor>(std::move(whole));
}

RankRun::TensorPointer RankRun::argumentValue(const Argument &argument) {
  const Type &wanted = argument.value->type();
  TensorPointer value;
  if (argument.kind == ArgumentKind::input) {
    auto found = inputs->find(argument.name);
    if (found != inputs->end())
      value = std::make_shared<const HostTensor>(found->second);
  } else if (auto found = carried.find(argument.name); found != carried.end()) {
    value = found->second;
  } else {
    auto over = llvm::find_if(carriedOver, [&](const CarriedOver &entry) { return entry.argument == &argument; });
    if (over != carriedOver.end() && over->start)
      value = gathered(*over);
  }
  std::string name = (argument.kind == ArgumentKind::input ? "input " : "carried value ") + argument.name;
  if (!value) {
    auto freed = freedCarries.find(argument.name);
    fault(name + (freed == freedCarries.end() ? " is missing" : " was freed in " + freed->second));
    return std::make_shared<const HostTensor>(wanted);
  }
  if (value->type.shape() != wanted.shape() || isFloat(value->type.dtype()) != isFloat(wanted.dtype())) {
    fault(name + " is " + toString(value->type) + ", wanted " + toString(wanted));
    return std::make_shared<const HostTensor>(wanted);
  }
  if (value->type == wanted)
    return value;
  HostTensor retyped = *value; // values are f64 in any case
  retyped.type = wanted;
  return std::make_shared<const HostTensor>(std::move(retyped));
}

void RankRun::run(const FunctionPlan &plan, int64_t microStep, const std::map<std::string, HostTensor> &batch) {
  current = &plan;
  currentMicroStep = microStep;
  inputs = &batch;
  slots.assign(plan.root.size(), nullptr);
  freedBy.assign(plan.root.size(), nullptr);
  started.clear();
  for (size_t i = 0; i < plan.function.arguments().size(); ++i)
    slots[i] = argumentValue(plan.function.arguments()[i]);
  for (const NodePlan &nodePlan : plan.nodes) {
    if (rendezvous.failed())
      return;
    execute(nodePlan);
  }
  finish();
}

void RankRun::checkReads(const NodePlan &plan) {
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    const Value &value = *plan.node->operand(static_cast<unsigned>(i));
    if (const Node *freeing = freedBy[current->root[plan.operands[i]]])
      return fault(nameOfValue(value) + " is used by " + describe(*plan.node) + " after " + describe(*freeing));
    if (value.type().isFuture() && plan.node->op() != Op::wait && plan.node->op() != Op::ret)
      return fault("the future " + nameOfValue(value) + " is used by " + describe(*plan.node) + " without a wait");
  }
}

void RankRun::trackFutures(const NodePlan &plan) {
  if (infoOf(*plan.node).has(startsTransfer)) {
    started[plan.firstResult] = &plan;
  } else if (plan.node->op() == Op::wait) {
    const Value &future = *plan.node->operand(0);
    // A carried future was started in an earlier function.
    if (!started.erase(plan.operands[0]) && future.definer())
      fault(describe(*plan.node) + " waits for " + nameOfValue(future) +
            ", which has been waited for or was never started");
  }
}

void RankRun::freeMemory(const NodePlan &plan) {
  int32_t root = current->root[plan.operands[0]];
  for (const auto &[slot, start] : started)
    for (int32_t operand : start->operands)
      if (current->root[operand] == root)
        return fault(describe(*plan.node) + " frees " + nameOfValue(*plan.node->operand(0)) + " before the wait for " +
                     describe(*start->node) + ", which reads it");
  freedBy[root] = plan.node;
}

/// A state's memory must not change under the collectives that read it.
void RankRun::checkWrite(const NodePlan &plan) {
  const std::string &state = plan.node->get<StateAttributes>().state.name;
  for (const auto &[slot, start] : started) {
    const Node *reader = start->node->operand(0)->definer();
    if (reader && reader->op() == Op::read && reader->get<StateAttributes>().state.name == state)
      return fault("state " + symbolText('@', state) + " is written before the wait for " + describe(*start->node) +
                   ", which reads it");
  }
}

void RankRun::returnResults(const NodePlan &plan) {
  const std::vector<std::string> &names = plan.node->get<ReturnAttributes>().names;
  for (size_t i = 0; i < names.size(); ++i) {
    started.erase(plan.operands[i]);
    carried[names[i]] = slots[plan.operands[i]];
    results[names[i]] = slots[plan.operands[i]];
    freedCarries.erase(names[i]);
  }
}

void RankRun::execute(const NodePlan &plan) {
  node = plan.node;
  checkReads(plan);
  if (rendezvous.failed())
    return;
  trackFutures(plan);
  if (node->op() == Op::free)
    freeMemory(plan);
  if (node->op() == Op::write)
    checkWrite(plan);
  if (node->op() == Op::ret)
    returnResults(plan);
  llvm::SmallVector<const HostTensor *, 4> operands;
  for (int32_t slot : plan.operands)
    operands.push_back(slots[slot].get());
  std::vector<HostTensor> values;
  for (unsigned i = 0; i < node->resultCount(); ++i)
    values.emplace_back(node->result(i)->type());
  EvaluateContext context{node->attributes(), operands, values, this};
  infoOf(*node).evaluate(context);
  for (size_t i = 0; i < values.size(); ++i) {
    assert(static_cast<int64_t>(values[i].values.size()) == values[i].type.elements() && "evaluate keeps the size");
    roundToDType(values[i]);
    slots[plan.firstResult + i] = std::make_shared<const HostTensor>(std::move(values[i]));
  }
  for (int32_t slot : plan.dying)
    slots[slot] = nullptr;
}

/// Checks what must hold at the end of the function. Later functions cannot use freed arguments.
void RankRun::finish() {
  for (const auto &[slot, start] : started)
    fault(describe(*start->node) + " is neither waited for nor returned");
  llvm::ArrayRef<Argument> arguments = current->function.arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (freedBy[i] && arguments[i].kind == ArgumentKind::carry) {
      carried.erase(arguments[i].name);
      freedCarries[arguments[i].name] = nameOf(current->function.kind()).str();
    }
  slots.clear();
}

std::map<std::string, HostTensor> RankRun::takeResults() && {
  std::map<std::string, HostTensor> all;
  for (const auto &[name, tensor] : results)
    all[name] = *tensor;
  return all;
}

} // namespace fsdpc

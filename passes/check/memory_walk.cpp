#include "passes/check/memory_walk.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

// ---- entire functions

llvm::Error MemoryWalk::run(llvm::ArrayRef<const Function *> sequence) {
  for (const Function *function : sequence)
    for (const Argument &argument : function->arguments())
      if (argument.kind == ArgumentKind::carry)
        taken.insert(argument.name);
  if (llvm::Error error = placeStates())
    return error;
  for (const std::unique_ptr<Function> &function : module.functions)
    if (llvm::Error error = placeInputs(*function))
      return error;
  for (const CarriedOver &over : carriedOver)
    if (llvm::is_contained(sequence, over.receiver))
      if (llvm::Error error = takeFromStepBefore(over))
        return error;
  for (const Function *function : sequence)
    if (llvm::Error error = runFunction(*function))
      return error;
  return finishSequence();
}

/// A transfer that the previous step left in flight is the first on its stream.
llvm::Error MemoryWalk::takeFromStepBefore(const CarriedOver &over) {
  if (!over.start)
    return fault(Fault::useBeforeWait, *over.receiver,
                 "nothing returns the carried '" + over.argument->name + "' that could go on into the next step");
  RankGroup group = RankGroup::of(module.axis(over.start->get<CollectiveAttributes>().over.name));
  CollectiveIndex collective = memory.clocks.startCollective(over.start->schedule.stream, group, 0, {});
  Holding holding{-1, 0, 0, collective};
  const Value *value = over.argument->value.get();
  if (value->type().bytes() != 0) {
    llvm::Expected<int32_t> buffer = memory.occupy(Buffer::of(value, collective), nullptr);
    if (!buffer)
      return buffer.takeError();
    holding.buffer = *buffer;
  }
  const State *state = module.state(over.state());
  if (auto shard = stateBuffers.find(state); shard != stateBuffers.end())
    memory.addReader(shard->second, collective);
  results[over.argument->name] = {holding, value};
  pending[collective] = over.start;
  handedOn.insert(collective);
  if (holding.buffer >= 0)
    kept.try_emplace(holding.buffer, value);
  return llvm::Error::success();
}

llvm::Error MemoryWalk::placeStates() {
  for (const State &state : module.states) {
    if (state.type.bytes() == 0)
      continue;
    Buffer buffer{.kind = Buffer::Kind::state,
                  .place = state.place,
                  .bytes = state.type.bytes(),
                  .elementBytes = byteSize(state.type.dtype()),
                  .state = &state};
    if (llvm::Error error = memory.occupy(buffer, nullptr).moveInto(stateBuffers[&state]))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error MemoryWalk::placeInputs(const Function &function) {
  for (const Argument &argument : function.arguments()) {
    if (argument.kind != ArgumentKind::input || argument.value->type().bytes() == 0)
      continue;
    auto [entry, isNew] = inputBuffers.try_emplace(argument.name, -1);
    if (!isNew && !(memory[entry->second].place == argument.value->place))
      return fault(Fault::wrongPlace, function,
                   "input '" + argument.name + "' is at another address in another function");
    if (!isNew)
      continue;
    Buffer buffer = Buffer::of(argument.value.get());
    buffer.kind = Buffer::Kind::input;
    if (llvm::Error error = memory.occupy(buffer, nullptr).moveInto(entry->second))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runFunction(const Function &function) {
  int32_t firstBuffer = memory.size();
  holdings.clear();
  waitedHere.clear();
  memory.clocks.enterFunction();
  dropEarlierResults(function);
  if (llvm::Error error = takeArguments(function))
    return error;
  for (Node *node : function)
    if (llvm::Error error = runNode(*node))
      return error;
  return finishFunction(function, firstBuffer);
}

llvm::Error MemoryWalk::takeArguments(const Function &function) {
  for (const Argument &argument : function.arguments()) {
    const Value *value = argument.value.get();
    if (argument.kind == ArgumentKind::carry) {
      if (llvm::Error error = takeCarried(function, argument))
        return error;
      continue;
    }
    auto found = inputBuffers.find(argument.name);
    holdings[value] = {found == inputBuffers.end() ? -1 : found->second, 0, memory.clocks.now()};
  }
  return llvm::Error::success();
}

llvm::Error MemoryWalk::takeCarried(const Function &function, const Argument &argument) {
  const Value *value = argument.value.get();
  auto found = results.find(argument.name);
  if (found == results.end())
    return fault(Fault::useBeforeWait, function, "no earlier function returns the carried '" + argument.name + "'");
  const Result &result = found->second;
  if (value->type().bytes() != 0 && !(result.value->place == value->place))
    return fault(Fault::wrongPlace, function,
                 "the carried '" + argument.name + "' is not at the address of the result that it aliases");
  Holding holding = result.holding;
  holding.since = memory.clocks.now();
  holding.arrived = {};
  holdings[value] = holding;
  return llvm::Error::success();
}

/// If a function is called repeatedly, only the results of its last call are used by others.
void MemoryWalk::dropEarlierResults(const Function &function) {
  const Node *ret = function.returnNode();
  for (unsigned i = 0; ret && i < ret->operandCount(); ++i) {
    auto found = results.find(ret->get<ReturnAttributes>().names[i]);
    if (found == results.end() || found->second.value != ret->operand(i) || found->second.holding.buffer < 0)
      continue;
    int32_t buffer = ownerOf(found->second.holding.buffer);
    if (kept.erase(buffer) && !memory[buffer].isPermanent())
      memory[buffer].endedAt = memory.clocks.now();
  }
}

void MemoryWalk::releaseReturned(const Function &function) {
  const Node *ret = function.returnNode();
  for (unsigned i = 0; ret && i < ret->operandCount(); ++i) {
    int32_t buffer = holdings.lookup(ret->operand(i)).buffer;
    if (buffer < 0)
      continue;
    buffer = ownerOf(buffer);
    if (taken.contains(ret->get<ReturnAttributes>().names[i]))
      kept.try_emplace(buffer, ret->operand(i));
  }
  // The runtime reads results that no function uses, after this function.
  for (unsigned i = 0; ret && i < ret->operandCount(); ++i) {
    int32_t buffer = holdings.lookup(ret->operand(i)).buffer;
    if (buffer < 0)
      continue;
    Buffer &owner = memory[ownerOf(buffer)];
    if (!kept.contains(ownerOf(buffer)) && !owner.isPermanent())
      owner.endedAt = memory.clocks.now();
  }
}

llvm::Error MemoryWalk::finishFunction(const Function &function, int32_t firstBuffer) {
  memory.clocks.advance();
  for (const auto &[collective, start] : pending)
    if (!handedOn.contains(collective))
      return fault(Fault::useBeforeWait, *start, "nothing waits for it, and it is not handed on to a later function");
  releaseReturned(function);
  for (int32_t i = firstBuffer; i < memory.size(); ++i) {
    Buffer &buffer = memory[i];
    bool lives = buffer.kind == Buffer::Kind::value && buffer.endedAt < 0 && buffer.partOf < 0;
    if (!lives || kept.contains(i))
      continue;
    if (!isPermanentConstant(*buffer.value))
      return fault(Fault::useAfterFree, function, textOf(buffer.value) + " is never freed");
    buffer.endedAt = memory.clocks.now();
  }
  for (const auto &[state, buffer] : stateBuffers)
    if (memory[buffer].awaitsWrite && !handedOn.contains(memory[buffer].writtenBy))
      return fault(Fault::staleVersion, *memory[buffer].overwrittenBy,
                   "state " + symbolText('@', state->name) + " is overwritten, but no write makes that its value");
  return llvm::Error::success();
}

bool MemoryWalk::isLeftToNextStep(CollectiveIndex collective) const {
  return collective >= 0 && llvm::any_of(carriedOver, [&](const CarriedOver &over) {
           auto found = results.find(over.argument->name);
           return found != results.end() && found->second.holding.future == collective;
         });
}

/// Checks that carried buffers are at the places where the next step expects them.
llvm::Error MemoryWalk::checkLeftToNextStep() const {
  for (const CarriedOver &over : carriedOver) {
    auto found = results.find(over.argument->name);
    if (found == results.end())
      continue;
    const Value *left = found->second.value;
    if (left == over.argument->value.get() || !pending.contains(found->second.holding.future))
      return fault(Fault::useBeforeWait, *over.receiver,
                   "the step leaves no '" + over.argument->name + "' to the next");
    if (left->type().bytes() != 0 && !(left->place == over.argument->value->place))
      return fault(Fault::wrongPlace, *over.start, "the next step expects '" + over.argument->name + "' elsewhere");
  }
  return llvm::Error::success();
}

llvm::Error MemoryWalk::finishSequence() const {
  if (llvm::Error error = checkLeftToNextStep())
    return error;
  for (const auto &[collective, start] : pending)
    if (!isLeftToNextStep(collective))
      return fault(Fault::useBeforeWait, *start, "nothing waits for it before the next step begins");
  const Value *leaked = nullptr;
  int32_t first = memory.size();
  for (const auto &[buffer, value] : kept)
    if (memory[buffer].endedAt < 0 && memory[buffer].partOf < 0 && !memory[buffer].isPermanent() &&
        !isPermanentConstant(*memory[buffer].value) && !isLeftToNextStep(memory[buffer].writtenBy) && buffer < first) {
      first = buffer;
      leaked = value;
    }
  if (!leaked)
    return llvm::Error::success();
  return fault(Fault::useAfterFree, *leaked->function(),
               textOf(leaked) + " is carried to later functions, but none of them frees it");
}

} // namespace fsdpc::check

// The effect of each kind of node on names and buffers.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/norm.h"
#include "passes/check/memory_walk.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

namespace {

uint64_t nameKey(int32_t buffer, int32_t version) {
  return static_cast<uint64_t>(buffer) << 32 | static_cast<uint32_t>(version);
}

/// True if each element of a result is computed from the same element of the operands, so they may share memory.
bool worksInPlace(const Node &node) {
  return isElementwise(node) || node.op() == Op::fused || node.op() == Op::copy || infoOf(node).has(inPlace);
}

/// True if the result may overwrite the operand.
bool mayShareMemory(const Node &node, const Value *result, unsigned operand) {
  return worksInPlace(node) || isRowWrittenOver(node, result->resultIndex(), operand);
}

} // namespace

// ---- names and buffers

int32_t MemoryWalk::ownerOf(int32_t buffer) const {
  while (memory[buffer].partOf >= 0)
    buffer = memory[buffer].partOf;
  return buffer;
}

llvm::Error MemoryWalk::checkUse(const Node &node, const Value *operand) const {
  auto found = holdings.find(operand);
  if (found == holdings.end())
    return fault(Fault::useBeforeWait, node, "an operand is used before it is made");
  if (operand->type().isFuture() && node.op() != Op::wait && node.op() != Op::ret)
    return fault(Fault::useBeforeWait, node, textOf(operand) + " is used before its wait");
  int32_t index = found->second.buffer, version = found->second.version;
  for (; index >= 0; index = memory[index].partOf, version = 0) {
    const Buffer &buffer = memory[index];
    if (buffer.version != version)
      return fault(Fault::staleVersion, node,
                   "the memory of " + textOf(operand) + " was overwritten before this use, by '" +
                       textOf(*buffer.overwrittenBy) + "'");
    if (buffer.endedAt >= 0)
      return fault(Fault::useAfterFree, node, textOf(operand) + " is used after the free of its memory");
  }
  return llvm::Error::success();
}

llvm::Error MemoryWalk::checkUses(const Node &node) const {
  for (unsigned i = 0; i < node.operandCount(); ++i)
    if (llvm::Error error = checkUse(node, node.operand(i)))
      return error;
  return llvm::Error::success();
}

/// Device nodes cannot access host memory and vice versa. Only copies may cross.
llvm::Error MemoryWalk::checkSpaces(const Node &node) const {
  const bool onHost = node.schedule.stream == Stream::host;
  auto isAcross = [](const Value *value, bool host) {
    return value->place.isPlaced() && value->type().bytes() != 0 && (value->place.space == Space::host) != host;
  };
  const bool names = infoOf(node).has(aliasesOperand) || node.op() == Op::free || node.op() == Op::wait ||
                     node.op() == Op::read || node.op() == Op::write;
  if (names)
    return llvm::Error::success();
  for (unsigned i = 0; i < node.operandCount(); ++i)
    if (isAcross(node.operand(i), onHost || node.op() == Op::reloadStart))
      return fault(Fault::wrongPlace, node, textOf(node.operand(i)) + " is in memory that it cannot access");
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (isAcross(node.result(i), onHost || node.op() == Op::offloadStart))
      return fault(Fault::wrongPlace, node, "its result is in memory that it cannot access");
  return llvm::Error::success();
}

/// For compute nodes that access memory; other nodes only name it.
void MemoryWalk::markUses(const Node &node) {
  bool names = infoOf(node).has(startsTransfer) || infoOf(node).has(aliasesOperand) || node.op() == Op::free ||
               node.op() == Op::wait || node.op() == Op::ret || node.op() == Op::read;
  for (unsigned i = 0; !names && i < node.operandCount(); ++i)
    if (int32_t held = holdings.lookup(node.operand(i)).buffer; held >= 0)
      memory[ownerOf(held)].usedAt = memory.clocks.now();
}

bool MemoryWalk::mayTakeOver(const Node &node, const Value *result, int32_t buffer) const {
  if (buffer < 0 || memory[buffer].kind == Buffer::Kind::input)
    return false;
  bool isOperand = false;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    const Value *operand = node.operand(i);
    int32_t held = holdings.lookup(operand).buffer;
    if (held < 0 || ownerOf(held) != buffer)
      continue;
    // A different element of the same memory may be overwritten before it is read.
    if (!mayShareMemory(node, result, i) || !(operand->place == result->place) ||
        operand->type().bytes() != result->type().bytes() ||
        byteSize(operand->type().dtype()) != byteSize(result->type().dtype()))
      return false;
    isOperand = true;
  }
  return isOperand;
}

llvm::Error MemoryWalk::takeOver(const Node &node, const Value *result, int32_t index) {
  Buffer &buffer = memory[index];
  if (!memory.isQuiet(buffer))
    return fault(Fault::missingEdge, node,
                 "it overwrites " + ArenaMemory::describe(buffer) + ", which a collective may still read");
  memory.overwrite(index, node, -1);
  if (buffer.kind == Buffer::Kind::state)
    buffer.awaitsWrite = true;
  else
    buffer.value = result;
  holdings[result] = {index, buffer.version, memory.clocks.now()};
  return llvm::Error::success();
}

/// True if a collective may write its result to the memory of a state whose old version has no more uses.
bool MemoryWalk::mayArriveIn(const Node &start, int32_t buffer) const {
  int32_t operand = holdings.lookup(start.operand(0)).buffer;
  return buffer >= 0 && memory[buffer].kind == Buffer::Kind::state && !memory[buffer].awaitsWrite &&
         (operand < 0 || ownerOf(operand) != buffer);
}

llvm::Error MemoryWalk::arriveIn(const Node &start, int32_t index, CollectiveIndex collective) {
  Buffer &buffer = memory[index];
  if (!memory.isQuietFor(buffer, collective))
    return fault(Fault::missingEdge, start,
                 "no edge makes it wait for the last use of " + ArenaMemory::describe(buffer) +
                     ", which it overwrites");
  memory.overwrite(index, start, collective);
  buffer.awaitsWrite = true;
  holdings[start.result()] = {index, buffer.version, memory.clocks.now(), collective};
  return llvm::Error::success();
}

/// True if a compute node may write the next version of an accumulator in place, because the old one has no more uses.
/// Names of the old version are dead afterwards. A table is written before it is used.
bool MemoryWalk::mayReplace(const Node &node, int32_t buffer) const {
  if (buffer < 0 || memory[buffer].kind != Buffer::Kind::state || memory[buffer].awaitsWrite ||
      (memory[buffer].state->role != StateRole::accumulator && memory[buffer].state->role != StateRole::table))
    return false;
  return llvm::none_of(node.operands(), [&](const Value *operand) {
    int32_t held = holdings.lookup(operand).buffer;
    return held >= 0 && ownerOf(held) == buffer;
  });
}

llvm::Error MemoryWalk::define(const Node &node, const Value *result, CollectiveIndex collective) {
  Holding holding{-1, 0, memory.clocks.now(), collective};
  const Type &type = result->type();
  if (!type.isToken() && type.bytes() != 0) {
    int32_t old = result->place.isPlaced() ? memory.exactlyAt(result->place, type.bytes()) : -1;
    if (collective >= 0 && mayArriveIn(node, old))
      return arriveIn(node, old, collective);
    if (collective < 0 && (mayTakeOver(node, result, old) || mayReplace(node, old)))
      return takeOver(node, result, old);
    llvm::Expected<int32_t> buffer = memory.occupy(Buffer::of(result, collective), &node);
    if (!buffer)
      return buffer.takeError();
    holding.buffer = *buffer;
  }
  holdings[result] = holding;
  return llvm::Error::success();
}

llvm::Expected<int32_t> MemoryWalk::placeWorkspace(const Node &node, CollectiveIndex collective) {
  if (node.schedule.workspaceBytes == 0)
    return -1;
  if (node.schedule.workspaceBytes < 0)
    return fault(Fault::wrongPlace, node, "its workspace has fewer than no bytes");
  Buffer buffer{.kind = Buffer::Kind::workspace,
                .place = node.schedule.workspace,
                .bytes = node.schedule.workspaceBytes,
                .node = &node,
                .writtenBy = collective};
  return memory.occupy(buffer, &node);
}

// ---- nodes

llvm::Error MemoryWalk::runNode(const Node &node) {
  bool starts = infoOf(node).has(startsTransfer);
  if (!starts)
    memory.clocks.advance();
  // A free may name a value whose memory the next value has already reused.
  if (node.op() != Op::free)
    if (llvm::Error error = checkUses(node))
      return error;
  if (llvm::Error error = checkSpaces(node))
    return error;
  markUses(node);
  if (starts)
    return runStart(node);
  switch (node.op()) {
  case Op::read: return runRead(node);
  case Op::write: return runWrite(node);
  case Op::free: return runFree(node);
  case Op::wait: return runWait(node);
  case Op::pack: return runPack(node);
  case Op::ret: return runReturn(node);
  default: return infoOf(node).has(aliasesOperand) ? runAlias(node) : runGeneric(node);
  }
}

llvm::Error MemoryWalk::runGeneric(const Node &node) {
  // It is live while the results are computed, so they cannot overlap it.
  llvm::Expected<int32_t> workspace = placeWorkspace(node, -1);
  if (!workspace)
    return workspace.takeError();
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (llvm::Error error = define(node, node.result(i), -1))
      return error;
  if (*workspace >= 0)
    memory[*workspace].endedAt = memory.clocks.now();
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runRead(const Node &node) {
  const State *state = module.state(node.get<StateAttributes>().state.name);
  Holding holding;
  if (auto found = stateBuffers.find(state); found != stateBuffers.end()) {
    const Buffer &buffer = memory[found->second];
    if (buffer.awaitsWrite)
      return fault(Fault::staleVersion, node,
                   "the memory of the state already holds its next version, by '" + textOf(*buffer.overwrittenBy) +
                       "'");
    if (!(node.result()->place == buffer.place) || node.result()->type().bytes() != buffer.bytes)
      return fault(Fault::wrongPlace, node, "a read must be at the address of its state");
    holding = {found->second, buffer.version, buffer.writtenAt};
    if (buffer.writtenBy >= 0)
      holding.arrived = memory.clocks.endOf(buffer.writtenBy);
  }
  holdings[node.result()] = holding;
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runWrite(const Node &node) {
  const State *state = module.state(node.get<StateAttributes>().state.name);
  auto found = stateBuffers.find(state);
  if (found == stateBuffers.end())
    return llvm::Error::success();
  Buffer &buffer = memory[found->second];
  const Value *value = node.operand(0);
  int32_t held = holdings.lookup(value).buffer;
  if (held >= 0 && ownerOf(held) == found->second && value->place == buffer.place) {
    buffer.awaitsWrite = false;
    return llvm::Error::success();
  }
  if (buffer.awaitsWrite)
    return fault(Fault::staleVersion, node, "the state is overwritten twice before it is written");
  if (!memory.isQuiet(buffer))
    return fault(Fault::missingEdge, node, "a collective may still read the state's old version");
  memory.overwrite(found->second, node, -1);
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runFree(const Node &node) {
  auto found = holdings.find(node.operand(0));
  if (found == holdings.end())
    return fault(Fault::useBeforeWait, node, "an operand is used before it is made");
  Holding holding = found->second;
  holdings[node.result()] = {-1, 0, memory.clocks.now()};
  if (holding.buffer < 0)
    return llvm::Error::success();
  Buffer &buffer = memory[holding.buffer];
  if (buffer.isPermanent())
    return fault(Fault::useAfterFree, node, "the memory of a state or an input is never freed");
  if (!freedNames.insert(nameKey(holding.buffer, holding.version)).second)
    return fault(Fault::useAfterFree, node, textOf(node.operand(0)) + " is freed twice");
  // Its bytes now belong to a pack or to a result that overwrote it, which has its own free.
  if (buffer.partOf >= 0 || buffer.version != holding.version)
    return llvm::Error::success();
  if (!memory.isQuiet(buffer))
    return fault(Fault::missingEdge, node, "a collective that uses this memory has not been waited for");
  buffer.endedAt = memory.clocks.now();
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runAlias(const Node &node) {
  const Value *operand = node.operand(0), *result = node.result();
  Place expected = operand->place;
  int64_t width = byteSize(result->type().dtype());
  if (node.op() == Op::view)
    expected.offsetBytes += node.get<ViewAttributes>().offset * width;
  if (result->type().bytes() != 0 && !(result->place == expected))
    return fault(node.op() == Op::view ? Fault::shardBounds : Fault::wrongPlace, node,
                 "it is not at the address of the memory that it aliases");
  holdings[result] = holdings.lookup(operand);
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runWait(const Node &node) {
  Holding holding = holdings.lookup(node.operand(0));
  // A function may wait again for a carried future that an earlier one has waited for.
  bool isCarried = !node.operand(0)->definer();
  if (!pending.erase(holding.future) && (!isCarried || !waitedHere.insert(holding.future).second))
    return fault(Fault::useBeforeWait, node, textOf(node.operand(0)) + " is waited for twice");
  waitedHere.insert(holding.future);
  memory.clocks.waitFor(holding.future);
  if (node.result()->type().bytes() != 0 && !(node.result()->place == node.operand(0)->place))
    return fault(Fault::wrongPlace, node, "it is not at the address of the transfer's result");
  // For other collectives the data is available from the end of this one, regardless of the compute stream.
  holdings[node.result()] = {holding.buffer, holding.version, 0, -1, memory.clocks.endOf(holding.future)};
  return llvm::Error::success();
}

CollectiveIndex MemoryWalk::startCollective(const Node &start) {
  Moment ready = 0;
  EndedCollectives arrived;
  for (unsigned i = 0; i < start.operandCount(); ++i) {
    const Holding holding = holdings.lookup(start.operand(i));
    ready = std::max(ready, holding.since);
    arrived.join(holding.arrived);
  }
  for (const std::unique_ptr<Use> &token : start.afterTokens())
    ready = std::max(ready, holdings.lookup(token->value()).since);
  RankGroup group;
  if (infoOf(start).has(collective))
    group = RankGroup::of(module.axis(start.get<CollectiveAttributes>().over.name));
  return memory.clocks.startCollective(start.schedule.stream, group, ready, arrived);
}

llvm::Error MemoryWalk::runStart(const Node &node) {
  const Value *operand = node.operand(0);
  for (const std::unique_ptr<Use> &token : node.afterTokens())
    if (!holdings.contains(token->value()))
      return fault(Fault::missingEdge, node, "a token in after(...) comes from a later free");
  CollectiveIndex collective = startCollective(node);
  pending[collective] = &node;
  if (int32_t held = holdings.lookup(operand).buffer; held >= 0) {
    if (startsCollective(node) && operand->place.space != Space::window)
      return fault(Fault::wrongPlace, node, "its operand does not lie in the window, where the other ranks read it");
    memory.addReader(ownerOf(held), collective);
  }
  if (llvm::Expected<int32_t> workspace = placeWorkspace(node, collective); !workspace)
    return workspace.takeError();
  return define(node, node.result(), collective);
}

llvm::Expected<int32_t> MemoryWalk::partBuffer(const Node &pack, unsigned index, Place place) const {
  const Value *part = pack.operand(index);
  if (!(part->place == place))
    return fault(Fault::shardBounds, pack, textOf(part) + " is not in its part of the pack");
  int32_t buffer = ownerOf(holdings.lookup(part).buffer);
  const Buffer &owner = memory[buffer];
  if (owner.kind != Buffer::Kind::value || !(owner.place == part->place) || owner.bytes != part->type().bytes())
    return fault(Fault::wrongPlace, pack,
                 textOf(part) + " has no memory of its own that could become part of the pack");
  return buffer;
}

llvm::Error MemoryWalk::runPack(const Node &node) {
  const Value *whole = node.result();
  if (whole->type().bytes() == 0)
    return define(node, whole, -1);
  const Shape &offsets = node.get<PackAttributes>().offsets;
  Buffer pack = Buffer::of(whole);
  std::vector<int32_t> parts;
  Holding holding;
  int64_t packedBytes = 0;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    if (node.operand(i)->type().bytes() == 0)
      continue;
    Place place{whole->place.space, whole->place.offsetBytes + offsets[i] * pack.elementBytes};
    llvm::Expected<int32_t> part = partBuffer(node, i, place);
    if (!part)
      return part.takeError();
    parts.push_back(*part);
    packedBytes += memory[*part].bytes;
    const Holding held = holdings.lookup(node.operand(i));
    holding.since = std::max(holding.since, held.since);
    holding.arrived.join(held.arrived);
    llvm::append_range(pack.readBy, memory[*part].readBy);
  }
  llvm::sort(parts);
  llvm::Expected<int32_t> index = memory.occupy(pack, &node, parts);
  if (!index)
    return index.takeError();
  for (int32_t part : parts)
    memory[part].partOf = *index;
  holding.buffer = *index;
  if (packedBytes != pack.bytes) // gaps between the parts are cleared by the pack itself
    holding.since = memory.clocks.now();
  holdings[whole] = holding;
  return llvm::Error::success();
}

llvm::Error MemoryWalk::runReturn(const Node &node) {
  const std::vector<std::string> &names = node.get<ReturnAttributes>().names;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    Holding holding = holdings.lookup(node.operand(i));
    results[names[i]] = {holding, node.operand(i)};
    if (!node.operand(i)->type().isFuture())
      continue;
    if (!taken.contains(names[i]) || !handedOn.insert(holding.future).second)
      return fault(Fault::useBeforeWait, node,
                   textOf(node.operand(i)) + " is returned, but no later function waits for it");
  }
  return llvm::Error::success();
}

} // namespace fsdpc::check

#include "passes/check/arena_memory.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

namespace {

llvm::Error faultAt(Fault kind, const Node *node, const llvm::Twine &message) {
  return node ? fault(kind, *node, message) : fault(kind, message);
}

} // namespace

Buffer Buffer::of(const Value *value, CollectiveIndex writtenBy) {
  Buffer buffer;
  buffer.place = value->place;
  buffer.bytes = value->type().bytes();
  buffer.elementBytes = byteSize(value->type().dtype());
  buffer.value = value;
  buffer.writtenBy = writtenBy;
  return buffer;
}

ArenaMemory::ArenaMemory(const Module &module) {
  for (Space space : allSpaces) {
    arenaBytes[indexOf(space)] = module.facts.arena(space).bytes.value_or(-1);
    predictBytes[indexOf(space)] = std::max(arenaBytes[indexOf(space)], module.facts.predictBytes(space));
  }
}

std::string ArenaMemory::describe(const Buffer &buffer) {
  switch (buffer.kind) {
  case Buffer::Kind::state: return "state " + symbolText('@', buffer.state->name);
  case Buffer::Kind::workspace: return "the workspace of '" + textOf(*buffer.node) + "'";
  case Buffer::Kind::input: return "input " + textOf(buffer.value);
  case Buffer::Kind::value: break;
  }
  return textOf(buffer.value) + " of " + nameOf(buffer.value->function()->kind()).str();
}

llvm::Error ArenaMemory::checkPlace(const Buffer &buffer, const Node *node) const {
  auto wrong = [&](const llvm::Twine &message) {
    return faultAt(Fault::wrongPlace, node, describe(buffer) + " " + message);
  };
  if (!buffer.place.isPlaced())
    return wrong("has no place");
  const bool isOfPredict = node && node->function()->kind() == FunctionKind::predict;
  int64_t arena = (isOfPredict ? predictBytes : arenaBytes)[indexOf(buffer.place.space)];
  if (arena < 0)
    return wrong("is in the " + nameOf(buffer.place.space) + " arena, but the module does not specify its size");
  if (buffer.place.offsetBytes < 0 || buffer.bytes > arena || buffer.place.offsetBytes > arena - buffer.bytes)
    return wrong("ends outside the " + nameOf(buffer.place.space) + " arena of " + llvm::Twine(arena) + " bytes");
  if (buffer.place.offsetBytes % buffer.elementBytes != 0)
    return wrong("is not aligned to its elements of " + llvm::Twine(buffer.elementBytes) + " bytes");
  return llvm::Error::success();
}

void ArenaMemory::overwrite(int32_t index, const Node &by, CollectiveIndex collective) {
  Buffer &buffer = buffers[index];
  ++buffer.version;
  buffer.overwrittenBy = &by;
  buffer.writtenBy = collective;
  buffer.writtenAt = collective < 0 ? clocks.now() : 0;
  buffer.readBy.clear();
}

void ArenaMemory::addReader(int32_t index, CollectiveIndex collective) {
  llvm::SmallVectorImpl<CollectiveIndex> &readers = buffers[index].readBy;
  llvm::erase_if(readers, [&](CollectiveIndex earlier) { return clocks.releasesToo(collective, earlier); });
  readers.push_back(collective);
}

bool ArenaMemory::isQuiet(const Buffer &buffer) const {
  return clocks.hasEnded(buffer.writtenBy) &&
         llvm::all_of(buffer.readBy, [&](CollectiveIndex reader) { return clocks.isReleased(reader, clocks.now()); });
}

bool ArenaMemory::isQuietFor(const Buffer &buffer, CollectiveIndex next) const {
  bool isWritten = buffer.writtenBy < 0 || clocks.begunAfterEnd(next, buffer.writtenBy);
  return isWritten && clocks.begunAfter(next, std::max(buffer.usedAt, buffer.writtenAt)) &&
         llvm::all_of(buffer.readBy,
                      [&](CollectiveIndex reader) { return clocks.isReleased(reader, clocks.beginOf(next)); });
}

llvm::Error ArenaMemory::checkOver(const Buffer &old, const Buffer &next, const Node *node) const {
  bool nextIsComm = next.writtenBy >= 0, ordered;
  if (old.kind == Buffer::Kind::workspace && old.writtenBy >= 0) {
    // In use while its collective runs. The next collective on its stream runs later; all other writers need a wait.
    if (old.writtenBy == next.writtenBy)
      return faultAt(Fault::wrongPlace, node, describe(next) + " overlaps the workspace of the same node");
    ordered = nextIsComm ? clocks.begunAfterEnd(next.writtenBy, old.writtenBy) : clocks.hasEnded(old.writtenBy);
  } else {
    if (old.endedAt < 0)
      return faultAt(Fault::wrongPlace, node,
                     describe(next) + " overlaps " + describe(old) + ", which is still in use");
    ordered = !nextIsComm || clocks.begunAfter(next.writtenBy, old.endedAt);
  }
  if (ordered)
    return llvm::Error::success();
  return faultAt(Fault::missingEdge, node,
                 "no edge makes " + describe(next) + " wait for the end of " + describe(old) +
                     ", whose memory it reuses");
}

llvm::Expected<int32_t> ArenaMemory::occupy(const Buffer &buffer, const Node *node, llvm::ArrayRef<int32_t> parts) {
  if (llvm::Error error = checkPlace(buffer, node))
    return error;
  llvm::SmallVector<int32_t, 8> found;
  extents.overlapping(buffer.place, buffer.bytes, found);
  for (int32_t old : found)
    if (!std::binary_search(parts.begin(), parts.end(), old))
      if (llvm::Error error = checkOver(buffers[old], buffer, node))
        return error;
  buffers.push_back(buffer);
  extents.assign(buffer.place, buffer.bytes, size() - 1);
  return size() - 1;
}

int32_t ArenaMemory::exactlyAt(Place place, int64_t bytes) const {
  llvm::SmallVector<int32_t, 4> found;
  extents.overlapping(place, bytes, found);
  if (found.size() != 1)
    return -1;
  const Buffer &buffer = buffers[found[0]];
  return buffer.place == place && buffer.bytes == bytes && buffer.endedAt < 0 ? found[0] : -1;
}

} // namespace fsdpc::check

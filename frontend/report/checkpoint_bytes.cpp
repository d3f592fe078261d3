#include "frontend/report/checkpoint_bytes.h"

#include "runtime/checkpoint/slice_rule.h"
#include "llvm/ADT/StringMap.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// A segment, with the bytes per element of itself and of each of its optimizer states.
struct Saved {
  const State *segment;
  std::vector<int64_t> elementBytes;
};

std::vector<Saved> savedSegments(const Module &planned) {
  std::vector<Saved> saved;
  llvm::StringMap<size_t> indices;
  for (const State &state : planned.states)
    if (state.isFlat() && state.role != StateRole::replica) {
      indices[state.name] = saved.size();
      saved.push_back({&state, {byteSize(state.type.dtype())}});
    }
  for (const State &state : planned.states)
    if (auto owner = indices.find(state.owner); state.role == StateRole::optimizer && owner != indices.end())
      saved[owner->second].elementBytes.push_back(byteSize(state.type.dtype()));
  return saved;
}

int64_t bytesOf(const Saved &saved, const Module &planned, int64_t rank) {
  const State &segment = *saved.segment;
  const MeshAxis *axis = nullptr;
  for (const MeshAxis &candidate : planned.mesh)
    axis = candidate.name == segment.over ? &candidate : axis;
  int64_t shard = segment.type.elements(), begin = axis ? axis->memberOf(rank) * shard : 0;
  int64_t holders = axis ? planned.worldSize() / axis->size : planned.worldSize();
  int64_t holder = axis ? holderIndex(rank, axis->size, axis->stride) : rank;
  int64_t bytes = 0;
  for (const SegmentSlot &slot : segment.slots) {
    int64_t held = std::min(slot.offsetElements + slot.elements, begin + shard) - std::max(slot.offsetElements, begin);
    for (int64_t width : saved.elementBytes)
      if (held > 0) {
        WrittenPart part = writtenPart(held, width, holders, holder, slot.offsetElements);
        bytes += (part.end - part.begin) * width;
      }
  }
  return bytes;
}

} // namespace

int64_t checkpointStagingBytes(const Module &planned) {
  std::vector<Saved> saved = savedSegments(planned);
  int64_t most = 0;
  for (int64_t rank = 0; rank < planned.worldSize(); ++rank) {
    int64_t bytes = 0;
    for (const Saved &segment : saved)
      bytes += bytesOf(segment, planned, rank);
    most = std::max(most, bytes);
  }
  return most;
}

} // namespace fsdpc

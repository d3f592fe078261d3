#include "runtime/checkpoint/layout.h"

#include "runtime/checkpoint/slice_rule.h"
#include "runtime/common/safetensors.h"
#include "runtime/common/shards.h"

namespace fsdpc::rt {
namespace {

/// The index of a rank among those that hold the same shard of a segment.
std::int64_t indexAmongHolders(const ProgramInfo &program, const SegmentInfo &segment, int rank) {
  if (segment.axis < 0)
    return rank;
  const MeshAxisInfo &axis = program.axes[static_cast<std::size_t>(segment.axis)];
  return holderIndex(rank, axis.size, axis.stride);
}

} // namespace

CheckpointLayout::CheckpointLayout(const ProgramInfo &program) : program(program) {
  std::vector<std::vector<int>> ofSegment(program.segments.size());
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const ParameterInfo &parameter = program.parameters[i];
    const SegmentInfo &segment = program.segments[static_cast<std::size_t>(parameter.segment)];
    ofSegment[static_cast<std::size_t>(parameter.segment)].push_back(static_cast<int>(i));
    all.push_back({parameter.name, segment.dtype, dimsOf(parameter.shape), parameter.shape.elements(),
                   static_cast<int>(i), &segment, segment.place, false});
  }
  for (const OptimizerStateInfo &state : program.optimizerStates)
    for (const int index : ofSegment[static_cast<std::size_t>(state.segment)]) {
      const ParameterInfo &parameter = program.parameters[static_cast<std::size_t>(index)];
      all.push_back({"optimizer." + std::string(state.name) + "." + parameter.name, state.dtype,
                     dimsOf(parameter.shape), parameter.shape.elements(), index,
                     &program.segments[static_cast<std::size_t>(state.segment)], state.place, true});
    }
}

std::vector<TensorSlice> CheckpointLayout::slicesOf(int rank) const {
  std::vector<TensorSlice> slices;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CheckpointTensor &tensor = all[i];
    const ParameterInfo &parameter = program.parameters[static_cast<std::size_t>(tensor.parameter)];
    const ShardRange held = shardRange(*tensor.segment, parameter, shardIndex(program, *tensor.segment, rank));
    const auto [begin, end] = writtenPart(held.elements, byteSize(tensor.dtype), holderCount(program, *tensor.segment),
                                          indexAmongHolders(program, *tensor.segment, rank), parameter.offsetElements);
    if (end > begin)
      slices.push_back(
          {i,
           held.parameterElement + begin,
           end - begin,
           {tensor.place.space, tensor.place.offsetBytes + (held.shardElement + begin) * byteSize(tensor.dtype)}});
  }
  return slices;
}

std::int64_t CheckpointLayout::bytesOf(int rank) const {
  std::int64_t bytes = 0;
  for (const TensorSlice &slice : slicesOf(rank))
    bytes += slice.elements * byteSize(all[slice.tensor].dtype);
  return bytes;
}

std::int64_t CheckpointLayout::totalBytes() const {
  std::int64_t bytes = 0;
  for (const CheckpointTensor &tensor : all)
    bytes += tensor.elements * byteSize(tensor.dtype);
  return bytes;
}

} // namespace fsdpc::rt

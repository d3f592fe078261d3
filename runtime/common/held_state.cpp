#include "runtime/common/held_state.h"

#include "runtime/checkpoint/layout.h"
#include "runtime/common/arena_access.h"
#include "runtime/common/fingerprint.h"
#include "runtime/common/local_parameters.h"
#include "runtime/common/scalars.h"

namespace fsdpc::rt {

std::vector<HeldTensor> heldState(const ProgramInfo &program, int rank) {
  std::vector<HeldTensor> held;
  const auto append = [&](const std::string &name, const ParameterInfo &parameter, const SegmentInfo &segment,
                          Place place, DType dtype) {
    const ShardRange range = shardRange(segment, parameter, shardIndex(program, segment, rank));
    const std::int64_t width = byteSize(dtype);
    place.offsetBytes += range.shardElement * width;
    held.push_back({name, &segment, place, range.elements * width});
  };
  const CheckpointLayout layout(program);
  const LocalParameters copies(program);
  for (const CheckpointTensor &tensor : layout.tensors()) {
    const ParameterInfo &parameter = program.parameters[static_cast<std::size_t>(tensor.parameter)];
    append(tensor.name, parameter, *tensor.segment, tensor.place, tensor.dtype);
    if (tensor.isState)
      continue;
    for (const SegmentInfo *copy : copies.segmentsOf(parameter))
      if (copy != tensor.segment)
        append("copy of " + tensor.name, parameter, *copy, copy->place, copy->dtype);
  }
  for (const ScalarInfo &scalar : program.scalars)
    if (isUpdatedByProgram(scalar.name))
      held.push_back({scalar.name, nullptr, scalar.place, 8});
  return held;
}

std::vector<std::uint64_t> hashesOf(const std::vector<HeldTensor> &tensors, const Context &context) {
  std::vector<std::uint64_t> hashes;
  hashes.reserve(tensors.size());
  for (const HeldTensor &tensor : tensors) {
    Fingerprint hash;
    for (std::int64_t done = 0; done < tensor.bytes; done += arenaPieceBytes) {
      const std::int64_t piece = std::min(arenaPieceBytes, tensor.bytes - done);
      hash.addBytes(readArena(context, {tensor.place.space, tensor.place.offsetBytes + done}, piece), piece);
    }
    hashes.push_back(hash.value());
  }
  return hashes;
}

} // namespace fsdpc::rt

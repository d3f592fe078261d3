#include "runtime/common/held_state.h"

#include "runtime/common/arena_access.h"
#include "runtime/common/fingerprint.h"
#include "runtime/common/scalars.h"
#include "runtime/common/shards.h"

namespace fsdpc::rt {
namespace {

/// Appends the parts of parameters in segments of one layout: the segment itself, a replica, or an optimizer state.
class Parts {
public:
  Parts(const ProgramInfo &program, int rank) : program(program), rank(rank), ofSegment(program.segments.size()) {
    for (const ParameterInfo &parameter : program.parameters)
      ofSegment[static_cast<std::size_t>(parameter.segment)].push_back(&parameter);
  }

  /// `parametersOf`: the segment whose parameters lie at `place`, which is split over ranks as `segment` is.
  void append(std::vector<HeldTensor> &to, const std::string &prefix, int segment, int parametersOf, Place place,
              DType dtype) const {
    const SegmentInfo &info = program.segments[static_cast<std::size_t>(segment)];
    for (const ParameterInfo *parameter : ofSegment[static_cast<std::size_t>(parametersOf)]) {
      const ShardRange range = shardRange(info, *parameter, shardIndex(program, info, rank));
      const std::int64_t width = byteSize(dtype);
      to.push_back({prefix + parameter->name,
                    segment,
                    {place.space, place.offsetBytes + range.shardElement * width},
                    range.elements * width});
    }
  }

private:
  const ProgramInfo &program;
  int rank;
  std::vector<std::vector<const ParameterInfo *>> ofSegment;
};

} // namespace

std::vector<HeldTensor> heldState(const ProgramInfo &program, int rank) {
  std::vector<HeldTensor> held;
  const Parts parts(program, rank);
  for (std::size_t i = 0; i < program.segments.size(); ++i) {
    const SegmentInfo &segment = program.segments[i];
    const auto index = static_cast<int>(i);
    const bool isReplica = segment.replicaOf >= 0;
    parts.append(held, isReplica ? "copy of " : "", index, isReplica ? segment.replicaOf : index, segment.place,
                 segment.dtype);
  }
  for (const OptimizerStateInfo &state : program.optimizerStates)
    parts.append(held, "optimizer." + std::string(state.name) + ".", state.segment, state.segment, state.place,
                 state.dtype);
  for (const ScalarInfo &scalar : program.scalars)
    if (isUpdatedByProgram(scalar.name))
      held.push_back({scalar.name, -1, scalar.place, 8});
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

// Where a rank keeps its part of each parameter.
#pragma once

#include "runtime/common/arena_access.h"
#include "runtime/common/shards.h"

#include <vector>

namespace fsdpc::rt {

/// Calls fill(range, dtype, to) for the part of a parameter that this rank holds in `segment`, or in a state that is
/// laid out like it; `place` and `dtype` are those of the shard.
template <class Fill>
void writeHeld(const ProgramInfo &program, const Context &context, const SegmentInfo &segment,
               const ParameterInfo &parameter, Place place, DType dtype, const Fill &fill) {
  const ShardRange range = shardRange(segment, parameter, shardIndex(program, segment, context.rank));
  const std::int64_t width = byteSize(dtype);
  const Place first{place.space, place.offsetBytes + range.shardElement * width};
  writeArenaInPieces(context, first, range.elements * width,
                     [&](std::byte *to, std::int64_t firstByte, std::int64_t bytes) {
                       fill(ShardRange{range.parameterElement + firstByte / width, 0, bytes / width}, dtype, to);
                     });
}

/// The copies of parameters on a rank: in their segment and in its replica, if it has one, which may round them.
class LocalParameters {
public:
  explicit LocalParameters(const ProgramInfo &program) : program(program), copies(program.segments.size()) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const SegmentInfo &segment = program.segments[i];
      copies[segment.replicaOf < 0 ? i : static_cast<std::size_t>(segment.replicaOf)].push_back(&segment);
    }
  }

  /// The segment of the parameter and its replica, in the order of ProgramInfo::segments.
  const std::vector<const SegmentInfo *> &segmentsOf(const ParameterInfo &parameter) const {
    return copies[static_cast<std::size_t>(parameter.segment)];
  }

  /// Calls fill(range, dtype, to) for every part of the parameter that this rank holds.
  template <class Fill>
  void write(std::size_t index, const Context &context, const Fill &fill) const {
    const ParameterInfo &parameter = program.parameters[index];
    for (const SegmentInfo *segment : segmentsOf(parameter))
      writeHeld(program, context, *segment, parameter, segment->place, segment->dtype, fill);
  }

private:
  const ProgramInfo &program;
  std::vector<std::vector<const SegmentInfo *>> copies; ///< per segment; empty for replicas
};

} // namespace fsdpc::rt

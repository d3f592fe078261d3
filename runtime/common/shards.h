// Which elements of a parameter are in the shard of a rank.
//
// A segment is a flat, padded range of parameters. If it is sharded over a mesh axis, member m of a group holds
// elements [m, m + 1) x shardElements. If it is replicated, every rank holds all of it. So a rank holds one contiguous
// range of each parameter, possibly empty.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

struct ShardRange {
  std::int64_t parameterElement = 0; ///< index of the first element in the flattened parameter
  std::int64_t shardElement = 0;     ///< its index in the shard
  std::int64_t elements = 0;         ///< 0: this rank holds nothing of the parameter
};

/// Returns the index of the shard that a rank holds.
constexpr int shardIndex(const ProgramInfo &program, const SegmentInfo &segment, int rank) {
  return segment.axis < 0 ? 0 : program.axes[static_cast<std::size_t>(segment.axis)].memberOf(rank);
}

/// The number of ranks that hold the same shard.
constexpr int holderCount(const ProgramInfo &program, const SegmentInfo &segment) {
  return segment.axis < 0 ? program.worldSize
                          : program.worldSize / program.axes[static_cast<std::size_t>(segment.axis)].size;
}

/// `shard`: index of one of the segment's shards.
constexpr ShardRange shardRange(const SegmentInfo &segment, const ParameterInfo &parameter, int shard) {
  const std::int64_t shardBegin = shard * segment.shardElements;
  const std::int64_t shardEnd = shardBegin + segment.shardElements;
  const std::int64_t begin = parameter.offsetElements > shardBegin ? parameter.offsetElements : shardBegin;
  const std::int64_t parameterEnd = parameter.offsetElements + parameter.shape.elements();
  const std::int64_t end = parameterEnd < shardEnd ? parameterEnd : shardEnd;
  if (end <= begin)
    return {};
  return {begin - parameter.offsetElements, begin - shardBegin, end - begin};
}

} // namespace fsdpc::rt

// Keeps gradients from the middle of a step, when their memory is reused, to the end, when they are saved. Host memory
// outside the plan, used only in a step that saves gradients.
#pragma once

#include "runtime/common/program.h"

#include <vector>

namespace fsdpc::rt {

class GradientStash {
public:
  explicit GradientStash(const ProgramInfo &program) {
    for (const SegmentInfo &segment : program.segments)
      shards.emplace_back(
          segment.replicaOf < 0 ? static_cast<std::size_t>(segment.shardElements * byteSize(segment.dtype)) : 0);
  }

  /// Memory for the gradient of this rank's shard; `segment` indexes ProgramInfo::segments.
  std::byte *of(int segment) { return shards[static_cast<std::size_t>(segment)].data(); }

private:
  std::vector<std::vector<std::byte>> shards;
};

} // namespace fsdpc::rt

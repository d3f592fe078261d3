#include "runtime/common/weight_averages.h"

#include "runtime/common/arena_access.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace fsdpc::rt {
namespace {

bool isAverage(const OptimizerStateInfo &state) { return std::string_view(state.name) == averageField; }

} // namespace

bool keepsAverages(const ProgramInfo &program) {
  return std::any_of(program.optimizerStates.begin(), program.optimizerStates.end(), isAverage);
}

void startAverages(const ProgramInfo &program, const Context &context) {
  std::vector<std::byte> piece;
  for (const OptimizerStateInfo &state : program.optimizerStates) {
    if (!isAverage(state))
      continue;
    const SegmentInfo &segment = program.segments[static_cast<std::size_t>(state.segment)];
    const std::int64_t total = segment.shardElements * byteSize(segment.dtype);
    for (std::int64_t done = 0; done < total; done += arenaPieceBytes) {
      const std::int64_t bytes = std::min(arenaPieceBytes, total - done);
      const std::byte *weights = readArena(context, {segment.place.space, segment.place.offsetBytes + done}, bytes);
      piece.assign(weights, weights + bytes);
      writeArena(context, {state.place.space, state.place.offsetBytes + done}, bytes,
                 [&](std::byte *to) { std::memcpy(to, piece.data(), piece.size()); });
    }
  }
}

} // namespace fsdpc::rt

// How the host reads and writes the arenas between steps: in place if they are host memory (cpu), otherwise through
// host memory that the target copies (DeviceMemory).
#pragma once

#include "runtime/common/program.h"

#include <algorithm>

namespace fsdpc::rt {

/// The maximum size of one access. Longer ranges are split.
inline constexpr std::int64_t arenaPieceBytes = 1 << 24;

/// Calls write(std::byte *to) to fill `bytes` at `place`. The next function of the program sees the new bytes.
template <class Write>
void writeArena(const Context &context, Place place, std::int64_t bytes, const Write &write) {
  if (!context.memory)
    return write(context.at<std::byte>(place));
  write(context.memory->stage(bytes));
  context.memory->store(place, bytes);
}

/// Same as above, in slices: calls write(std::byte *to, firstByte, bytes) for each.
template <class Write>
void writeArenaInPieces(const Context &context, Place place, std::int64_t bytes, const Write &write) {
  for (std::int64_t done = 0; done < bytes; done += arenaPieceBytes) {
    const std::int64_t piece = std::min(arenaPieceBytes, bytes - done);
    writeArena(context, {place.space, place.offsetBytes + done}, piece, [&](std::byte *to) { write(to, done, piece); });
  }
}

/// Returns `bytes` at `place` as the functions called so far leave them. Valid until the next access.
inline const std::byte *readArena(const Context &context, Place place, std::int64_t bytes) {
  return context.memory ? context.memory->load(place, bytes) : context.at<std::byte>(place);
}

} // namespace fsdpc::rt

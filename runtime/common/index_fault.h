// The failure for an index that is outside its axis. Data is checked when it is loaded, so the model computed this
// index.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/program.h"

namespace fsdpc::rt {

/// node: as in the shape of the kernel; negative if the kernel has none. Exit code `corrupt`, of this rank alone.
inline Failure indexFailure(int node, std::int64_t index, std::int64_t size) {
  const auto nodes = programIndexNodes();
  const bool isNamed = node >= 0 && static_cast<std::size_t>(node) < nodes.size();
  return {ExitCode::corrupt,
          (isNamed ? "node '" + std::string(nodes[static_cast<std::size_t>(node)].name) + "': " : "") + "index " +
              std::to_string(index) + " is outside an axis of " + std::to_string(size) + " elements"};
}

} // namespace fsdpc::rt

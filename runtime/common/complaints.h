// A list of differences between a file and a program, for one message.
#pragma once

#include "runtime/common/failure.h"

#include <cstdint>
#include <string>

namespace fsdpc::rt {

/// Collects complaints about one file and lists the first ten of each kind.
class Complaints {
public:
  void add(const std::string &complaint) {
    if (++count <= 10)
      text += "\n  " + complaint;
  }
  /// Throws Failure{incompatible} "<what>: <complaints>".
  void throwIfAny(const std::string &what) const {
    if (count == 0)
      return;
    const std::string more = count > 10 ? "\n  ... and " + std::to_string(count - 10) + " more" : "";
    throw Failure(ExitCode::incompatible, what + ":" + text + more);
  }

private:
  std::int64_t count = 0;
  std::string text;
};

} // namespace fsdpc::rt

// Ranges for NVIDIA's profilers (NVTX), one for each section of the program while the host enqueues it, and with
// --node_ranges one for each node inside; nothing but a test of a pointer where no profiler listens. A replayed step is
// one range.
#pragma once

#include "runtime/common/program.h"
#include "runtime/cuda/device.h"

#include <string>
#include <vector>

namespace fsdpc::rt {

class SectionRanges final : public SectionObserver {
public:
  SectionRanges(const ProgramInfo &program, const Device &device);
  /// Also notifies the device's tape, if any, and leaves a mark on compute (device_progress.h) after a section that has
  /// started no collective.
  void begin(int section) override;
  void beginNode(int node) override;
  void end() override;

private:
  void leaveMark();
  void endNode();
  const Device &device;
  std::span<const NodeInfo> nodes;
  std::vector<std::size_t> firstNodes; ///< by section
  std::size_t current = 0;             ///< section
  bool inNode = false;
  std::uint64_t markedSequence = 0; ///< of the last collective before the previous section
  std::vector<std::string> names;   ///< by section
};

/// A range as long as this object's lifetime.
class Range {
public:
  explicit Range(const char *name);
  ~Range();
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;
};

} // namespace fsdpc::rt

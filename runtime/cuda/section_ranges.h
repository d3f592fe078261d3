// Ranges for NVIDIA's profilers (NVTX), one for each section of the program while the host enqueues it; nothing but a
// test of a pointer where no profiler listens. A replayed step is one range.
#pragma once

#include "runtime/common/program.h"
#include "runtime/cuda/device.h"

#include <string>
#include <vector>

namespace fsdpc::rt {

class SectionRanges final : public SectionObserver {
public:
  SectionRanges(const ProgramInfo &program, const Device &device);
  /// Also tells the device's tape, if there is one.
  void begin(int section) override;
  void end() override;

private:
  const Device &device;
  std::vector<std::string> names; ///< by section
};

/// A range as long as this lives.
class Range {
public:
  explicit Range(const char *name);
  ~Range();
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;
};

} // namespace fsdpc::rt

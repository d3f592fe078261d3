// For tests that need a specific order of streams.
#pragma once

#include "tests/emulated/device.h"

namespace fsdpc::emulated {

/// While this lives, streams run in the order of this seed. Otherwise every call is complete when it returns.
class Interleaved {
public:
  explicit Interleaved(unsigned seed) { Device::instance().interleave({seed, false}); }
  ~Interleaved() { Device::instance().interleave({0, true}); }
  Interleaved(const Interleaved &) = delete;
  Interleaved &operator=(const Interleaved &) = delete;
};

/// The number of seeds a test tries. A missing edge shows in many of them.
inline constexpr unsigned seedsTried = 64;

} // namespace fsdpc::emulated

// Tests that want streams to run in some order of their own.
#pragma once

#include "tests/emulated/device.h"

namespace fsdpc::emulated {

/// Streams go on in the order of this seed as long as this lives; afterwards every call is done when it returns.
class Interleaved {
public:
  explicit Interleaved(unsigned seed) { Device::instance().interleave({seed, false}); }
  ~Interleaved() { Device::instance().interleave({0, true}); }
  Interleaved(const Interleaved &) = delete;
  Interleaved &operator=(const Interleaved &) = delete;
};

/// How many a test tries. A missing edge shows in a good part of them.
inline constexpr unsigned seedsTried = 64;

} // namespace fsdpc::emulated

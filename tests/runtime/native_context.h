// A context whose kernels use all that this processor has, as a program whose ranks all have it.
#pragma once

#include "runtime/cpu/cpu_level.h"
#include "tests/runtime/kernels_support.h"

namespace fsdpc::rt {

inline Context nativeContext() {
  static CpuContext processor = [] {
    CpuContext own;
    own.level = limitLibraryTo(ownCpuLevel(""));
    return own;
  }();
  Context c = contextOf(2);
  c.target = &processor;
  return c;
}

} // namespace fsdpc::rt

// The part of NVTX that the runtime uses: ranges of the calling thread, kept for tests.
#pragma once

#include <string>
#include <vector>

namespace fsdpc::emulated {

/// "push NAME" and "pop", in the order of this thread's calls; null: not kept.
inline thread_local std::vector<std::string> *ranges = nullptr;

} // namespace fsdpc::emulated

inline int nvtxRangePushA(const char *name) {
  if (fsdpc::emulated::ranges)
    fsdpc::emulated::ranges->push_back(std::string("push ") + name);
  return 0;
}
inline int nvtxRangePop() {
  if (fsdpc::emulated::ranges)
    fsdpc::emulated::ranges->push_back("pop");
  return 0;
}

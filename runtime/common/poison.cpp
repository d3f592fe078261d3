#include "runtime/common/poison.h"

#include <cstdlib>
#include <string_view>

namespace fsdpc::rt {

bool poisonsFreedMemory() {
  static const bool isOn = [] {
    const char *wanted = std::getenv("FSDPC_POISON");
    return !wanted || std::string_view(wanted) != "off";
  }();
  return isOn;
}

} // namespace fsdpc::rt

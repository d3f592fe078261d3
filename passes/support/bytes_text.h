#pragma once

#include <cstdint>
#include <string>

namespace fsdpc {

/// For people: "512 bytes", "1.50 GiB".
std::string bytesText(int64_t bytes);

} // namespace fsdpc

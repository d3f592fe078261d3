// Times as people write them: "90", "90s", "10min", "3h59m", "1d12h".
#pragma once

#include <optional>
#include <string_view>

namespace fsdpc::rt {

/// Seconds. Units are d, h, m or min, and s, from large to small, each once. A number alone is not a time. nullopt:
/// `text` is not a time.
std::optional<double> parseDuration(std::string_view text);

} // namespace fsdpc::rt

#include "runtime/common/duration.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace fsdpc::rt {

std::optional<double> parseDuration(std::string_view text) {
  static constexpr std::pair<std::string_view, double> units[] = {
      {"d", 86400}, {"h", 3600}, {"min", 60}, {"m", 60}, {"s", 1}};
  double seconds = 0, smallest = 1e9;
  if (text.empty())
    return std::nullopt;
  while (!text.empty()) {
    std::int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || count < 0 || count > 1'000'000'000)
      return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const auto *found = std::begin(units);
    while (found != std::end(units) && !text.starts_with(found->first))
      ++found;
    if (found == std::end(units) || found->second >= smallest)
      return std::nullopt;
    text.remove_prefix(found->first.size());
    smallest = found->second;
    seconds += static_cast<double>(count) * found->second;
  }
  return seconds;
}

} // namespace fsdpc::rt

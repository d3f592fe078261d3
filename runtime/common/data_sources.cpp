#include "runtime/common/data_sources.h"

#include "runtime/common/file.h"

#include <charconv>
#include <cmath>

namespace fsdpc::rt {
namespace {

/// The number behind the last colon; nullopt if there is none.
std::optional<double> weightOf(const std::string &part) {
  const std::size_t colon = part.rfind(':');
  if (colon == std::string::npos || colon == 0 || fileExists(part))
    return std::nullopt;
  double weight = 0;
  const char *end = part.data() + part.size();
  const auto [behind, error] = std::from_chars(part.data() + colon + 1, end, weight);
  if (error != std::errc() || behind != end)
    return std::nullopt;
  if (!(weight > 0) || !std::isfinite(weight))
    throw Failure(ExitCode::usage, "'" + part + "': the weight of a source is a positive number");
  return weight;
}

std::vector<std::string> splitAtCommas(const std::string &text) {
  if (fileExists(text))
    return {text};
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

} // namespace

std::vector<SourceFiles> readSources(const std::string &text) {
  std::vector<SourceFiles> sources;
  for (const std::string &part : splitAtCommas(text)) {
    const std::optional<double> weight = weightOf(part);
    std::vector<std::string> paths = expandGlob(weight ? part.substr(0, part.rfind(':')) : part);
    if (!sources.empty() && sources.back().weight.has_value() != weight.has_value())
      throw Failure(ExitCode::usage, "'" + text + "': give all sources a weight, as in A.bin:0.7,B.bin:0.3, or none");
    if (sources.empty() || weight)
      sources.push_back({std::move(paths), weight});
    else
      sources.back().paths.insert(sources.back().paths.end(), paths.begin(), paths.end());
  }
  return sources;
}

} // namespace fsdpc::rt

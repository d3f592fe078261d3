// What --train_data names: one pattern, several, or several with weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// The files of one source of a data set.
struct SourceFiles {
  std::vector<std::string> paths;
  std::optional<double> weight; ///< of all sources, or of none
};

/// Reads "A.bin", "shards-*.bin,B.bin" (one source) or "A-*.bin:0.7,B.bin:0.3" (two). A comma or colon in the name of a
/// file that exists is part of the name. Throws Failure{usage} for weights that are not positive, or not of all
/// sources; Failure{corrupt} for a pattern that no file matches.
std::vector<SourceFiles> readSources(const std::string &text);

} // namespace fsdpc::rt

// From the sources in OUT/ to OUT/train.
#pragma once

#include "frontend/output/output_folder.h"

namespace fsdpc {

struct BuildOptions {
  std::string target;            ///< "cpu" or "cuda"
  std::string testBuild = "off"; ///< as the option says
};
/// Compiles the program in `folder` with the host compiler, without a shell. On failure the error carries the
/// compiler's output.
llvm::Error buildProgram(const OutputFolder &folder, llvm::ArrayRef<std::string> sources, const BuildOptions &options);

/// Returns whether `buildProgram` can build programs of the cuda target here: nvcc was present when fsdpc was built,
/// and still is.
bool buildsCudaPrograms();

} // namespace fsdpc

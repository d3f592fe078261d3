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

/// Whether `buildProgram` can build programs of the cuda target here: there was nvcc when fsdpc was built, and is
/// still.
bool buildsCudaPrograms();

} // namespace fsdpc

// What a pass is: a name, the stages it goes from and to, and a function. The runner (runner.h) does everything else.
#pragma once

#include "ir/module.h"
#include "ir/target.h"
#include "passes/options.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

struct PassContext {
  const PipelineOptions &options;
  const Target &target;
  std::vector<std::string> &remarks; ///< lines for people; the driver prints them
};

struct Pass {
  llvm::StringRef name; ///< snake_case: --passes=insert_gathers
  Stage from;
  Stage to;
  bool optional; ///< may be skipped alone and the program stays right
  llvm::Error (*run)(Module &module, const PassContext &context);
};

} // namespace fsdpc

// The input of a compile: the module that its file holds, and its options as resolved for this module.
#pragma once

#include "frontend/compilation/machine.h"
#include "frontend/onnx/import.h"
#include "frontend/options/resolve.h"
#include "ir/text/constant_store.h"
#include <map>

namespace fsdpc {

struct Compilation {
  std::unique_ptr<Module> module;
  ImportedModel imported;                 ///< model is null when a stage was read
  std::map<Stage, std::string> stageText; ///< of every stage passed through, and the last
  ConstantStore constants;                ///< that these texts name
  Machine machine;
  std::unique_ptr<Target> target;
  PipelineOptions options;
  std::vector<std::string> remarks;
  std::vector<PassTime> times;
};

/// Fills module, imported and remarks from MODEL.onnx or STAGE.fsir.
llvm::Error readInput(llvm::StringRef input, const OptionValues &values, bool weightsMayBeAbsent, Compilation &result);

/// Fills options, machine and target for the module, and stores the resolved options in `values`.
llvm::Error resolveOptions(OptionValues &values, Compilation &result);

llvm::Expected<std::unique_ptr<Module>> readStage(llvm::StringRef path);

} // namespace fsdpc

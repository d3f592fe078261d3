// One compile, from a file to a module at the stage asked for.
#pragma once

#include "frontend/driver/machine.h"
#include "frontend/driver/resolve.h"
#include "frontend/onnx/import.h"
#include <map>

namespace fsdpc {

struct Compilation {
  std::unique_ptr<Module> module;
  ImportedModel imported;                 ///< model is null when a stage was read
  std::map<Stage, std::string> stageText; ///< of every stage passed through, and the last
  Machine machine;
  std::unique_ptr<Target> target;
  PipelineOptions options;
  std::vector<std::string> remarks;
  std::vector<PassTime> times;
};

/// Fills module, imported and remarks from MODEL.onnx or STAGE.fsir.
llvm::Error readInput(llvm::StringRef input, const OptionValues &values, bool weightsMayBeAbsent, Compilation &result);

/// Fills options, machine and target for the module, and what they resolve in `values`.
llvm::Error resolveOptions(OptionValues &values, Compilation &result);

/// Reads MODEL.onnx or STAGE.fsir and runs the pipeline; a planned result has passed the schedule checker.
llvm::Expected<Compilation> compileModule(llvm::StringRef input, OptionValues &values);

llvm::Expected<std::unique_ptr<Module>> readStage(llvm::StringRef path);

} // namespace fsdpc

// From option values to what the importer, the passes and the target are asked for.
#pragma once

#include "codegen/cpu/target.h"
#include "frontend/driver/option_schema.h"
#include "frontend/onnx/import.h"
#include "passes/options.h"
#include "passes/runner.h"

namespace fsdpc {

/// Errors are UsageErrors: an option that can change nothing, a value out of range.
llvm::Expected<ImportOptions> importOptions(const OptionValues &values);

/// Fills defaults that depend on the optimizer and on the model (an in-graph loss) into `values` and returns the
/// pipeline's options.
llvm::Expected<PipelineOptions> pipelineOptions(OptionValues &values, const Module &module);

/// Resolves `threads` in `values`.
CpuTargetOptions cpuTargetOptions(OptionValues &values);
llvm::Expected<RunnerOptions> runnerOptions(const OptionValues &values);

} // namespace fsdpc

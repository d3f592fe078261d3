// From option values to the options of the importer, the passes and the target.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"
#include "passes/options.h"
#include "passes/runner.h"

namespace fsdpc {

/// Errors are UsageErrors: an option without effect, a value out of range.
llvm::Expected<ImportOptions> importOptions(const OptionValues &values);

/// Fills defaults that depend on the optimizer and on the model (an in-graph loss) into `values` and returns the
/// pipeline's options.
llvm::Expected<PipelineOptions> pipelineOptions(OptionValues &values, const Module &module);

/// The part of pipelineOptions that decides which rank holds what and how collectives are split: strategy, mesh,
/// buckets. Runs after unitOptions.
llvm::Error shardingOptions(const OptionValues &values, PipelineOptions &options);

/// The default of an option of the schema, as text.
llvm::StringRef defaultOf(llvm::StringRef name);

/// Resets options without effect for --strategy to their defaults. For plans that the user did not name.
void dropWithoutEffect(OptionValues &values);

/// Returns whether the option is given with another value than its default.
bool changed(const OptionValues &values, llvm::StringRef name);

/// Returns whether --unit sets choices of some units for which `isSo` holds.
bool isGivenForUnits(const PipelineOptions &options, llvm::function_ref<bool(const UnitChoices &)> isSo);

/// Returns whether a unit's choice is a type of 16 bits.
inline bool isLow(std::optional<DType> dtype) { return dtype && *dtype != DType::f32; }

/// The value of a choice option, in its type. The schema has checked it; `auto` is resolved.
template <class T>
T choiceOf(const OptionValues &values, llvm::StringRef name) {
  std::optional<T> value = choiceFrom<T>(values.text(name));
  assert(value && "the schema lets no other value through");
  return *value;
}

/// 25000000, 25MB, 16MiB, 1.5GiB; an error names the option.
llvm::Expected<int64_t> bytesOf(const OptionValues &values, llvm::StringRef name);

/// --loss_chunk: positions, 0 for off, nullopt for auto. Nothing: another text.
std::optional<std::optional<int64_t>> lossChunkOf(llvm::StringRef text);

/// The part of pipelineOptions that --auto_wrap_policy, --ignored_params and --unit determine.
llvm::Error unitOptions(const OptionValues &values, PipelineOptions &options);

/// --lora; nullopt without it. Its default alpha and rank are peft's.
llvm::Expected<std::optional<LoraOptions>> loraOptions(const OptionValues &values);

/// The part of the optimizer's options that --group, --no_decay and --layer_decay determine. Requires the others.
llvm::Error groupOptions(const OptionValues &values, OptimizerOptions &optimizer);

/// Checks that `value` is in the range of the scalar `name`. If not, the UsageError calls it --`option` `text`.
llvm::Error checkRange(llvm::StringRef name, double value, llvm::StringRef option, llvm::StringRef text);

/// Checks that the passes of --passes, --skip and --print_ir_* exist and run on this module. Replaces their names by
/// the passes' own spelling, where `-` was `_`.
llvm::Error checkPassNames(RunnerOptions &options, const Module &module);

/// Checks that the text given for --option, if any, is a regular expression.
llvm::Error checkPattern(llvm::StringRef option, llvm::StringRef text);

llvm::Expected<RunnerOptions> runnerOptions(const OptionValues &values);

} // namespace fsdpc

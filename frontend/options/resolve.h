// From option values to what the importer, the passes and the target are asked for.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/options/option_schema.h"
#include "passes/options.h"
#include "passes/runner.h"

namespace fsdpc {

/// Errors are UsageErrors: an option that can change nothing, a value out of range.
llvm::Expected<ImportOptions> importOptions(const OptionValues &values);

/// Fills defaults that depend on the optimizer and on the model (an in-graph loss) into `values` and returns the
/// pipeline's options.
llvm::Expected<PipelineOptions> pipelineOptions(OptionValues &values, const Module &module);

/// The part of pipelineOptions that says who holds what and how collectives are cut: strategy, mesh, buckets. After
/// unitOptions.
llvm::Error shardingOptions(const OptionValues &values, PipelineOptions &options);

/// Of an option of the schema, as text.
llvm::StringRef defaultOf(llvm::StringRef name);

/// Gives options that change nothing for --strategy their defaults: for plans that nobody asked for by name.
void dropWithoutEffect(OptionValues &values);

/// Was the option given, with another value than its default?
bool changed(const OptionValues &values, llvm::StringRef name);

/// Does --unit say something of some units that is so?
bool isSaidOfUnits(const PipelineOptions &options, llvm::function_ref<bool(const UnitChoices &)> isSo);

/// Does the choice of a unit say a type of 16 bits?
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

/// What pipelineOptions takes from --auto_wrap_policy, --ignored_params and --unit.
llvm::Error unitOptions(const OptionValues &values, PipelineOptions &options);

/// `value` lies in the range of the scalar `name`; if not, a UsageError that calls it --`option` `text`.
llvm::Error checkRange(llvm::StringRef name, double value, llvm::StringRef option, llvm::StringRef text);

/// Passes that --passes, --skip and --print_ir_* name exist, and run on this module. They get their own spelling, where
/// `-` was `_`.
llvm::Error checkPassNames(RunnerOptions &options, const Module &module);

/// What is given for --option, if anything, is a regular expression.
llvm::Error checkPattern(llvm::StringRef option, llvm::StringRef text);

llvm::Expected<RunnerOptions> runnerOptions(const OptionValues &values);

} // namespace fsdpc

#include "frontend/compilation/compilation.h"

#include "frontend/compilation/program_target.h"
#include "ir/text/text.h"
#include "passes/analysis/samples_apart.h"
#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

namespace {

/// --deterministic world compiles the graph of one sample. Imports a batch as well and checks that its graph is that
/// graph for each sample separately.
llvm::Error checkBatch(llvm::StringRef input, ImportOptions options, int64_t samples, const Module &one) {
  options.microBatchSize = std::max<int64_t>(samples, 2);
  llvm::Expected<ImportedModel> batch = importOnnx(input, options);
  return batch ? checkSeparateSamples(one, *batch->module) : batch.takeError();
}

void resolveStates(Module &module, const PipelineOptions &options) {
  if (State *seed = module.state("seed"))
    seed->initialValue = static_cast<double>(options.seed);
}

} // namespace

llvm::Expected<std::unique_ptr<Module>> readStage(llvm::StringRef path) { return parseFile(path); }

llvm::Error readInput(llvm::StringRef input, const OptionValues &values, bool weightsMayBeAbsent, Compilation &result) {
  if (input.ends_with(".fsir")) {
    if (changed(values, "init"))
      return llvm::make_error<UsageError>(
          "--init: changes nothing for a stage, whose parameters have their initial values");
    llvm::Expected<std::unique_ptr<Module>> module = readStage(input);
    if (!module)
      return module.takeError();
    result.module = std::move(*module);
    return llvm::Error::success();
  }
  llvm::Expected<ImportOptions> options = importOptions(values);
  if (!options)
    return options.takeError();
  options->weightsMayBeAbsent |= weightsMayBeAbsent;
  int64_t samples = options->microBatchSize;
  bool splitsSamples = values.text("deterministic") == "world";
  if (splitsSamples)
    options->microBatchSize = 1;
  llvm::Expected<ImportedModel> imported = importOnnx(input, *options);
  if (!imported)
    return imported.takeError();
  // A graph without modes is in eval mode, so asking for eval mode is no error.
  if (values.text("train_mode") == "train" && !imported->hasTrainingModes)
    return llvm::make_error<UsageError>(
        "--train_mode train: changes nothing: the graph has no Dropout and no BatchNormalization. Exporters leave them "
        "out of a model in "
        "eval mode: export it with model.train() and without optimization (torch.onnx.export(..., optimize=False, "
        "do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE))");
  if (splitsSamples)
    if (llvm::Error error = checkBatch(input, *options, samples, *imported->module))
      return error;
  result.imported = std::move(*imported);
  result.module = std::move(result.imported.module);
  result.remarks = result.imported.remarks;
  return llvm::Error::success();
}

llvm::Error resolveOptions(OptionValues &values, Compilation &result) {
  llvm::Expected<PipelineOptions> options = pipelineOptions(values, *result.module);
  if (!options)
    return options.takeError();
  result.options = *options;
  resolveStates(*result.module, result.options);
  if (llvm::Error error = resolveTarget(values))
    return error;
  llvm::Expected<Machine> machine = machineOf(values);
  if (!machine)
    return machine.takeError();
  result.machine = *machine;
  result.target = makeTarget(values, machine->deciding);
  return llvm::Error::success();
}

} // namespace fsdpc

#include "frontend/driver/compile.h"

#include "frontend/driver/crash_reproducer.h"
#include "frontend/driver/joint_search.h"
#include "frontend/driver/memory_budget.h"
#include "frontend/driver/share_search.h"
#include "ir/text/text.h"
#include "passes/analysis/samples_apart.h"
#include "passes/check/check_schedule.h"
#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

namespace {

/// --deterministic world compiles the graph of one sample. That a batch is that graph for each sample on its own is
/// seen on the graph of a batch.
llvm::Error checkBatch(llvm::StringRef input, ImportOptions options, int64_t samples, const Module &one) {
  options.microBatchSize = std::max<int64_t>(samples, 2);
  llvm::Expected<ImportedModel> batch = importOnnx(input, options);
  return batch ? checkSamplesApart(one, *batch->module) : batch.takeError();
}

/// The checker trusts nothing but the two texts: what the train stage said, and what is about to be emitted.
llvm::Error checkPlan(const Compilation &compilation) {
  if (llvm::Error error = checkPlanned(*compilation.module))
    return error;
  auto train = compilation.stageText.find(Stage::train);
  if (train == compilation.stageText.end())
    return llvm::Error::success();
  llvm::Expected<std::unique_ptr<Module>> module = parse(llvm::MemoryBufferRef(train->second, "train.fsir"));
  if (!module)
    return module.takeError();
  return checkAgainstTrain(**module, *compilation.module);
}

void resolveStates(Module &module, const PipelineOptions &options) {
  if (State *seed = module.state("seed"))
    seed->initialValue = static_cast<double>(options.seed);
}

/// Resolves in `values` what --strategy auto stands for, and says why.
llvm::Error chooseStrategy(const Module &module, OptionValues &values) {
  if (module.stage != Stage::graph || !module.units.empty())
    return llvm::make_error<UsageError>("--strategy auto: the units of this stage are decided already");
  llvm::Expected<JointSearch> search = searchJointly(Estimator::of(module), values);
  if (!search)
    return search.takeError();
  printSearch(*search, **memoryBudget(values), llvm::errs());
  values = std::move(search->points[search->winner].values);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::unique_ptr<Module>> readStage(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError(path + ": " + llvm::Twine(buffer.getError().message()));
  return parse((*buffer)->getMemBufferRef());
}

llvm::Error readInput(llvm::StringRef input, const OptionValues &values, bool weightsMayBeAbsent, Compilation &result) {
  if (input.ends_with(".fsir")) {
    if (changed(values, "init"))
      return llvm::make_error<UsageError>("--init: changes nothing for a stage, whose parameters say how they start");
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
  // A graph without modes is one in eval mode, so asking for that is no error.
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

llvm::Expected<Compilation> compileModule(llvm::StringRef input, OptionValues &values) {
  Compilation result;
  if (llvm::Error error = readInput(input, values, /*weightsMayBeAbsent=*/false, result))
    return error;
  if (!result.module->mesh.empty())
    values.resolve("world_size", std::to_string(result.module->worldSize()));
  if (result.module->stage >= Stage::train)
    values.resolve("gradient_accumulation_steps", std::to_string(result.module->microSteps));
  llvm::Expected<RunnerOptions> runner = runnerOptions(values);
  if (!runner)
    return runner.takeError();
  if (llvm::Error error = checkPassNames(*runner, *result.module))
    return error;
  // Passes of the graph stage know no loss; whoever names passes gives one if they need it.
  bool needsLoss = runner->only.empty() && (!runner->stopAfter || *runner->stopAfter > Stage::graph);
  if (!needsLoss && !values.given("loss"))
    values.resolve("loss", "model");
  if (values.text("strategy") == "auto")
    if (llvm::Error error = chooseStrategy(*result.module, values))
      return error;
  if (searchesShares(values) && result.module->stage == Stage::graph && runner->only.empty())
    if (llvm::Error error = settleShares(Estimator::of(*result.module), values))
      return error;
  if (llvm::Error error = resolveOptions(values, result))
    return error;
  PassContext context{result.options, *result.target, result.remarks};
  runner->reproducerPath = "fsdpc-reproducer.fsir";
  CrashReproducer crash(runner->reproducerPath);
  runner->beforePass = [&](llvm::StringRef pass, const Module &before) { crash.remember(pass, before); };
  auto observer = [&](Stage stage, const Module &module) { result.stageText[stage] = toText(module); };
  llvm::Error ended = runPasses(*result.module, context, *runner, result.times, observer);
  crash.forget();
  if (ended)
    return ended;
  if (result.module->stage == Stage::planned && runner->only.empty())
    if (llvm::Error error = checkPlan(result))
      return llvm::make_error<InternalError>(
          "the planned program fails the schedule checker: " + toString(std::move(error)), "");
  return result;
}

} // namespace fsdpc

#include "frontend/driver/compile.h"

#include "frontend/driver/crash_reproducer.h"
#include "frontend/search/joint_search.h"
#include "frontend/search/memory_budget.h"
#include "frontend/search/share_search.h"
#include "ir/op.h"
#include "ir/queries.h"
#include "ir/text/text.h"
#include "passes/analysis/samples_apart.h"
#include "passes/check/check_schedule.h"
#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

namespace {

/// The checker relies only on two texts: that of the train stage, and that of the module to be emitted.
llvm::Error checkPlan(const Compilation &compilation) {
  if (llvm::Error error = checkPlanned(*compilation.module))
    return error;
  auto train = compilation.stageText.find(Stage::train);
  if (train == compilation.stageText.end())
    return llvm::Error::success();
  llvm::Expected<std::unique_ptr<Module>> module =
      parse(llvm::MemoryBufferRef(train->second, "train.fsir"), &compilation.constants);
  if (!module)
    return module.takeError();
  return checkAgainstTrain(**module, *compilation.module);
}

/// Resolves --strategy auto in `values` and prints the reason.
llvm::Error chooseStrategy(const Module &module, OptionValues &values) {
  if (module.stage != Stage::graph || !module.units.empty())
    return llvm::make_error<UsageError>("--strategy auto: the units of this stage are decided already");
  llvm::Expected<Candidate> asked = Candidate::of(values);
  if (!asked)
    return asked.takeError();
  llvm::Expected<JointSearch> search = searchJointly(Estimator::of(module), *asked);
  if (!search)
    return search.takeError();
  printSearch(*search, *asked->budgetBytes, llvm::errs());
  values = search->points[search->winner].plan.values();
  return llvm::Error::success();
}

/// Resolves in `values` the shares that --memory_budget leaves open.
llvm::Error chooseShares(const Module &module, OptionValues &values) {
  llvm::Expected<Candidate> plan = Candidate::of(values);
  if (!plan)
    return plan.takeError();
  if (!searchesShares(*plan))
    return llvm::Error::success();
  if (llvm::Error error = settleShares(Estimator::of(module), *plan))
    return error;
  values = plan->values();
  return llvm::Error::success();
}

/// Rows are asked for, but the passes have found no parameter that is looked up by rows.
llvm::Error checkRowsAreUsed(const Compilation &compilation) {
  const PipelineOptions &options = compilation.options;
  bool isAsked =
      options.choices.rows == RowLookup::on || llvm::any_of(options.unitOverrides, [](const UnitOverride &unit) {
        return llvm::is_contained(unit.made, unitChoice("rows")) && unit.choices.rows == RowLookup::on;
      });
  const Function *step = compilation.module->function(FunctionKind::microStep);
  bool isUsed = !step || containsOp(*step, Op::gatherRows);
  if (!isAsked || isUsed || compilation.module->stage < Stage::sharded)
    return llvm::Error::success();
  return llvm::make_error<UsageError>(
      "rows on: changes nothing here: no f32 parameter that is split, gathered in the step and in device memory is "
      "looked up by rows (Gather on axis 0); use rows auto");
}

} // namespace

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
  // Passes of the graph stage need no loss. With --passes, users give a loss if these passes need it.
  bool needsLoss = runner->only.empty() && (!runner->stopAfter || *runner->stopAfter > Stage::graph);
  if (!needsLoss && !values.given("loss"))
    values.resolve("loss", "model");
  if (values.text("strategy") == "auto")
    if (llvm::Error error = chooseStrategy(*result.module, values))
      return error;
  if (result.module->stage == Stage::graph && runner->only.empty())
    if (llvm::Error error = chooseShares(*result.module, values))
      return error;
  if (llvm::Error error = resolveOptions(values, result))
    return error;
  PassContext context{result.options, *result.target, result.remarks};
  runner->reproducerPath = "fsdpc-reproducer.fsir";
  CrashReproducer crash(runner->reproducerPath);
  runner->beforePass = [&](llvm::StringRef pass, const Module &before) { crash.remember(pass, before); };
  auto observer = [&](Stage stage, const Module &module) {
    result.stageText[stage] = toText(module, &result.constants);
  };
  llvm::Error ended = runPasses(*result.module, context, *runner, result.times, observer);
  crash.forget();
  if (ended)
    return ended;
  if (llvm::Error error = checkRowsAreUsed(result))
    return error;
  if (result.module->stage == Stage::planned && runner->only.empty())
    if (llvm::Error error = checkPlan(result))
      return llvm::make_error<InternalError>(
          "the planned program fails the schedule checker: " + toString(std::move(error)), "");
  return result;
}

} // namespace fsdpc

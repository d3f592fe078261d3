#include "runtime/common/trainer.h"

#include "runtime/common/agreement.h"
#include "runtime/common/finite_gradients.h"
#include "runtime/common/memory_report.h"
#include "runtime/common/profile.h"
#include "runtime/common/scalars.h"
#include "runtime/common/step_faults.h"
#include "runtime/common/step_guard.h"
#include "runtime/common/taps.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace fsdpc::rt {
namespace {

double microsecondsBetween(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

std::int64_t countSteps(const Options &options, const TrainingOrder &order) {
  const std::int64_t byEpochs = options.epochs ? order.stepsUntil(*options.epochs) : options.steps.value_or(0);
  return std::min(byEpochs, options.steps.value_or(byEpochs));
}

std::int64_t tokensInSampleOf(const ProgramInfo &program) {
  for (const InputInfo &input : program.inputs)
    if (input.kind == InputKind::data && !isFloat(input.dtype) && input.shape.rank == 2)
      return input.shape.dims[1];
  return 0;
}

void checkFixedBatch(const Job &job, const BatchFeeder &feeder) {
  const std::int64_t wanted = job.layout().globalBatch();
  if (feeder.samples() != wanted)
    throw Failure(ExitCode::corrupt, feeder.source() + ": holds " + std::to_string(feeder.samples()) +
                                         " rows, the global batch of this program is " + std::to_string(wanted));
  const bool evaluatesByEpoch = job.options.evalEvery.inEpochs && job.options.given.contains("eval_every");
  if (job.options.stepSize.inEpochs || evaluatesByEpoch)
    throw Failure(ExitCode::usage, "--batch has no epochs: give --step_size and --eval_every in steps");
}

/// "the loss of step 3 is NaN", "" if it is finite.
std::string nonFiniteText(const std::string &what, double value, std::int64_t step) {
  return std::isfinite(value)
             ? ""
             : "the " + what + " of step " + std::to_string(step) + " is " + (std::isnan(value) ? "NaN" : "infinite");
}

/// Why a step was not applied.
std::string reasonFor(const StepOutcome &outcome, std::int64_t step) {
  const double norm = outcome.gradientNorm.value_or(0);
  const std::string loss = nonFiniteText("loss", outcome.loss, step);
  if (!loss.empty())
    return loss;
  return std::isfinite(norm) ? "the gradient norm of step " + std::to_string(step) + ", " + jsonNumber(norm) +
                                   ", is a spike (--spike_zscore)"
                             : nonFiniteText("gradient norm", norm, step);
}

/// Whether a smaller loss scale may help.
bool overflows(const StepOutcome &outcome) {
  return !std::isfinite(outcome.loss) || !std::isfinite(outcome.gradientNorm.value_or(0));
}

/// 0: the program has none.
double currentLossScale(const ProgramInfo &program, const Context &context) {
  for (const ScalarInfo &scalar : program.scalars)
    if (std::string_view(scalar.name) == "loss_scale")
      return readScalar(context, scalar);
  return 0;
}

} // namespace

SampleOrder sampleOrder(const BatchFeeder &training, const Options &options) {
  return SampleOrder(training.sources(), {options.shuffle, options.shuffleWindow.value_or(0),
                                          static_cast<std::uint64_t>(options.seed.value_or(0))});
}

std::string orderText(const BatchFeeder &training, const Options &options) {
  return training.rowsText() + sampleOrder(training, options).text();
}

Trainer::Trainer(const Job &job, BatchFeeder &training, Evaluator *validation, Checkpoints *checkpoints,
                 const TrainingState *resumedState)
    : job(job), feeder(training), validation(validation), checkpoints(checkpoints),
      resumed(resumedState ? *resumedState : TrainingState{}), fixedBatch(!job.options.batch.empty()),
      sampler(sampleOrder(training, job.options), job.layout(), job.options.dropLast),
      order(sampler, resumed.step, resumed.next, fixedBatch), total(countSteps(job.options, order)),
      schedule(job.options, order, total, resumed),
      progress(progressStyle(job.options.progress, job.context.rank), total, rt::plannedBytes(job.program)),
      rows(static_cast<std::size_t>(job.program.microBatchSize)), pending(job.program, job.context),
      stopping(job.options, resumed.evaluations), tokensInSample(tokensInSampleOf(job.program)),
      plannedBytes(rt::plannedBytes(job.program)), lossScale(currentLossScale(job.program, job.context)),
      skippedSteps(resumed.skippedSteps), epochLossSum(resumed.epochLossSum), epochSteps(resumed.epochSteps) {
  if (fixedBatch)
    checkFixedBatch(job, feeder);
  if (order.stepsPerEpoch() == 0)
    throw Failure(ExitCode::corrupt, feeder.source() + ": " + std::to_string(feeder.samples()) +
                                         " samples do not fill one global batch of " +
                                         std::to_string(job.layout().globalBatch()) + " (see --no_drop_last)");
  if (!job.options.dropLast && feeder.samples() % job.layout().globalBatch() != 0 && !feeder.hasSampleWeight())
    throw Failure(ExitCode::usage, "--no_drop_last: this program has no sample weights to leave padding out");
  if (!fixedBatch)
    ahead.emplace(feeder, rows.size());
  if (job.options.replicaCheck)
    replicas.emplace(job);
  if (job.options.rerunCheck)
    rerun.emplace(job);
  if (job.program.worldSize > 1 && !job.options.log.empty())
    stragglers.emplace(job);
}

void Trainer::run() {
  peakBytes = job.platform.maxOverRanks(job.platform.mappedArenaBytes());
  if (resumed.evaluationDue && validation)
    evaluate(resumed.step);
  else
    atBoundary(resumed.step, nullptr, false);
  for (std::int64_t i = resumed.step + 1; i <= total && !stopping.isOver(); ++i) {
    if (const TrainingOrder::Batch batch = order.at(i); batch.beginsEpoch)
      beginEpoch(batch);
    step(i);
    // Before a checkpoint of this step.
    if (replicas && i % *job.options.replicaCheck == 0)
      replicas->run(i);
    finishStep(i);
    job.page.update();
    if (i == resumed.step + 1) {
      reportOutsidePlan(job, "first_step", stagingBytes(job));
      stash.reset();
    }
  }
  // A gather may be outstanding that was started for a next step.
  job.platform.drainCollectives();
  job.pulse.setStep(0);
}

/// The sums of an epoch that an earlier run began go on.
void Trainer::beginEpoch(const TrainingOrder::Batch &batch) {
  epochBegin = Clock::now();
  if (!fixedBatch && batch.epoch == resumed.next.epoch && resumed.next.sample > 0)
    return;
  epochLossSum = 0;
  epochSteps = 0;
}

TrainingState Trainer::stateAfter(std::int64_t step, bool evaluationDue) const {
  TrainingState state;
  state.step = step;
  state.next = order.after(step);
  state.samplesInEpoch = fixedBatch ? 0 : feeder.samples();
  state.globalBatch = job.layout().globalBatch();
  state.warmUp = schedule.warmUpOfRun();
  state.shuffle = job.options.shuffle;
  state.sampleOrder = fixedBatch ? "" : feeder.rowsText() + sampler.text();
  state.seed = job.options.seed.value_or(0);
  state.skippedSteps = skippedSteps;
  if (state.next.sample > 0 || evaluationDue) {
    state.epochLossSum = epochLossSum;
    state.epochSteps = epochSteps;
  }
  state.evaluationDue = evaluationDue;
  state.evaluations = stopping.history();
  for (const ScalarInfo &scalar : job.program.scalars)
    if (isUpdatedByProgram(scalar.name))
      state.scalars.emplace_back(scalar.name, readScalar(job.context, scalar));
  return state;
}

void Trainer::atBoundary(std::int64_t step, const EvaluationResult *evaluation, bool evaluationDue) {
  if (!checkpoints)
    return;
  const auto state = [&] { return stateAfter(step, evaluationDue); };
  checkpoints->atBoundary({step, step == total || stopping.isOver(), evaluation},
                          std::ref(state)); // a reference needs no allocation
}

void Trainer::setStepScalars(std::int64_t step) {
  setIntegerScalar(job.program, job.context, "step", step);
  setIntegerScalar(job.program, job.context, "seed", job.options.seed.value_or(0));
  setIntegerScalar(job.program, job.context, "rank", job.context.rank);
  setScalar(job.program, job.context, "lr", schedule.at(step));
  for (const ScalarInfo &scalar : job.program.scalars)
    if (std::string_view(scalar.base) == "lr")
      storeScalar(job.context, scalar, schedule.at(step, scalar, job.options));
}

void Trainer::step(std::int64_t step) {
  job.pulse.setStep(step);
  job.platform.takeCommunicationTimes(); // drops the times of evaluation or start-up
  if (job.options.timeMatmuls && step == resumed.step + 1)
    job.platform.recordMatmuls(true);
  dataMicroseconds = 0;
  const auto begin = Clock::now();
  if (job.context.profile)
    job.context.profile->beginStep(step);
  const auto compute = [&] { return computeStep(step); };
  last = rerun ? rerun->run(step, compute) : compute();
  if (job.context.profile)
    job.context.profile->endStep();
  const double microseconds = microsecondsBetween(begin, Clock::now());
  window.microseconds += microseconds;
  window.dataMicroseconds += dataMicroseconds;
  if (const std::optional<JsonObject> notice = job.platform.takeNotice())
    job.log.write(*notice);
  if (const std::optional<CommunicationTimes> times = job.platform.takeCommunicationTimes()) {
    ++window.measuredSteps;
    window.measuredMicroseconds += microseconds;
    window.measuredDataMicroseconds += dataMicroseconds;
    window.communicationMicroseconds += times->communicationMicroseconds;
    window.exposedMicroseconds += times->exposedMicroseconds;
    window.skewMicroseconds += times->skewMicroseconds.value_or(0);
    window.knowsSkew = times->skewMicroseconds.has_value();
  }
  window.samples += sampler.samplesInBatch(order.at(step).firstSample);
  ++window.steps;
  checkOutcome(last, step);
  if (last.applied) {
    epochLossSum += last.loss;
    ++epochSteps;
  }
  if (job.options.timeMatmuls)
    replayMatmuls();
}

void Trainer::replayMatmuls() {
  job.platform.recordMatmuls(false);
  job.platform.barrier(); // all ranks start together, as in the step: they share caches and memory
  window.matmulMicroseconds += job.platform.replayMatmulsMicroseconds();
}

void Trainer::fillInputs(std::int64_t step) {
  setStepScalars(step);
  if (job.program.gradientAccumulationSteps == 1)
    feed(step, 0, BatchFeeder::Inputs::all);
}

StepOutcome Trainer::computeStep(std::int64_t step) {
  injectStepFaults(job, step);
  fillInputs(step);
  if (savesGradients(step))
    job.context.stash = &stash.emplace(job.program);
  job.platform.runStep([&] { callFunctions(step); }, [&] { feedMicroSteps(step); }, isMeasured(step));
  const StepOutcome outcome = pending.value();
  job.platform.checkIndices();
  job.platform.finishStep();
  job.context.stash = nullptr;
  return outcome;
}

void Trainer::feed(std::int64_t step, int microStep, BatchFeeder::Inputs which) {
  const auto fill = [&] {
    const StepScope scope(StepPart::feeding);
    job.pulse.enter(Phase::data);
    const auto begin = Clock::now();
    const TrainingOrder::Batch batch = order.at(step);
    sampler.rows(batch.epoch, batch.firstSample, microStep, rows);
    feeder.fill(job.context, rows, which);
    if (which == BatchFeeder::Inputs::all)
      readAhead(step, microStep);
    dataMicroseconds += microsecondsBetween(begin, Clock::now());
    job.pulse.enter(Phase::step);
  };
  job.platform.feed(std::ref(fill)); // a reference needs no allocation
}

/// After the samples of a micro-step, asks for those of the same micro-step of a later step; in the first step, for
/// those in between too. It overwrites `rows`.
void Trainer::readAhead(std::int64_t step, int microStep) {
  constexpr std::int64_t distance = 4;
  const std::int64_t from = step == resumed.step + 1 ? step + 1 : step + distance;
  for (std::int64_t later = from; ahead && later <= std::min(step + distance, total); ++later) {
    const TrainingOrder::Batch batch = order.at(later);
    sampler.rows(batch.epoch, batch.firstSample, microStep, rows);
    ahead->request(rows);
  }
}

/// Feeds everything that callForMicroSteps feeds in a step, in the same order.
void Trainer::feedMicroSteps(std::int64_t step) {
  const int microSteps = job.program.gradientAccumulationSteps;
  if (microSteps == 1)
    return;
  for (int microStep = 0; job.functions.prologue && microStep < microSteps; ++microStep)
    feed(step, microStep, BatchFeeder::Inputs::ofPrologue);
  for (int microStep = 0; microStep < microSteps; ++microStep)
    feed(step, microStep, BatchFeeder::Inputs::all);
}

/// Calls a function once per micro-step, each time on the next micro-batch. If the step has only one micro-batch, it
/// was already fed: the code below may be recorded.
void Trainer::callForMicroSteps(std::int64_t step, void (*function)(Context &), BatchFeeder::Inputs which) {
  const int microSteps = job.program.gradientAccumulationSteps;
  for (int microStep = 0; microStep < microSteps; ++microStep) {
    if (microSteps > 1)
      feed(step, microStep, which);
    job.context.batchRank = microStep * job.program.worldSize + job.context.rank;
    const StepScope scope;
    function(job.context);
  }
}

void Trainer::computeGradients(std::int64_t step) {
  if (job.functions.prologue)
    callForMicroSteps(step, job.functions.prologue, BatchFeeder::Inputs::ofPrologue);
  callForMicroSteps(step, job.functions.microStep, BatchFeeder::Inputs::all);
}

/// If the device is not the host, does not wait for it in the middle of a step: the update is enqueued first. A guarded
/// update may be called in any case.
void Trainer::callFunctions(std::int64_t step) {
  computeGradients(step);
  pending.fetchLoss();
  const std::optional<double> loss = pending.isGuarded() ? std::nullopt : pending.knownLoss();
  if (loss && !std::isfinite(*loss)) {
    if (job.program.stashesGradients)
      job.functions.update(job.context);
    failNonFinite(nonFiniteText("loss", *loss, step), firstNonFiniteGradient(job));
  }
  if (savesGradients(step))
    saveGradients();
  {
    const StepScope scope;
    job.functions.update(job.context);
  }
  pending.fetchUpdate();
}

void Trainer::failNonFinite(const std::string &why, const std::string &gradient) {
  throw Failure(ExitCode::nonFinite,
                gradient.empty() ? why : why + "; the first gradient that is not finite is that of " + gradient, true);
}

/// With a dynamic loss scale an overflow is normal, as long as a smaller scale exists.
void Trainer::checkOutcome(const StepOutcome &outcome, std::int64_t step) {
  const double usedScale = lossScale;
  lossScale = outcome.nextLossScale.value_or(lossScale);
  if (!pending.isGuarded() && !std::isfinite(outcome.loss))
    failNonFinite(nonFiniteText("loss", outcome.loss, step),
                  job.program.stashesGradients ? firstNonFiniteGradient(job) : "");
  if (outcome.applied)
    return;
  const bool isInOrder = outcome.nextLossScale && !outcome.lossScaleExhausted && overflows(outcome);
  std::string why = reasonFor(outcome, step);
  if (outcome.lossScaleExhausted)
    why += " with the smallest loss scale, " + jsonNumber(usedScale);
  if (!isInOrder && std::string_view(job.program.nonFinite) == "error")
    failNonFinite(why, overflows(outcome) ? blameForUpdate(step) : "");
  skip(outcome, step, why);
}

void Trainer::skip(const StepOutcome &outcome, std::int64_t step, const std::string &why) {
  ++skippedSteps;
  JsonObject line;
  line.add("skipped_step", step).add("loss", outcome.loss).add("grad_norm", outcome.gradientNorm.value_or(0));
  line.add("why", why);
  job.log.write(line);
  if (job.context.rank != 0 || std::string_view(job.program.nonFinite) != "warn")
    return;
  progress.clear();
  std::fprintf(stderr, "fsdpc: warning: %s; the step was skipped\n", why.c_str());
}

/// The step left the state unchanged, so its gradients can be computed again.
std::string Trainer::blameForUpdate(std::int64_t step) {
  job.platform.drainCollectives();
  fillInputs(step);
  computeGradients(step);
  return firstNonFiniteGradient(job);
}

void Trainer::saveGradients() {
  job.pulse.enter(Phase::saving);
  std::unique_ptr<FileTap> tap;
  agreed(job.platform, [&] { tap = gradientsTap(job.program, job.options.saveGradients, job.context.rank); });
  job.context.tap = tap.get();
  job.functions.tapGradients(job.context);
  job.context.tap = nullptr;
  agreed(job.platform, [&] { tap->finish(); });
  job.pulse.enter(Phase::step);
}

bool Trainer::savesGradients(std::int64_t step) const { return step == 1 && !job.options.saveGradients.empty(); }

bool Trainer::isLogged(std::int64_t step) const { return step % job.options.logFreq == 0 || step == total; }

/// Measuring may cost time, so only steps whose times are reported are measured.
bool Trainer::isMeasured(std::int64_t step) const {
  return job.context.profile || (!job.options.log.empty() && isLogged(step));
}

bool Trainer::evaluationDue(std::int64_t step) const {
  if (!validation)
    return false;
  const Interval &every = job.options.evalEvery;
  if (step == total)
    return true;
  if (!every.inEpochs)
    return every.count > 0 && step % every.count == 0;
  const TrainingOrder::Batch batch = order.at(step);
  return batch.endsEpoch && every.count > 0 && (batch.epoch + 1) % every.count == 0;
}

void Trainer::finishStep(std::int64_t step) {
  const bool logged = isLogged(step);
  reportStep(step, logged);
  if (evaluationDue(step))
    return evaluate(step);
  report(step, std::nullopt);
  atBoundary(step, nullptr, false);
}

/// After `step`. An evaluation that a request to stop ends early is repeated by the run that goes on.
void Trainer::evaluate(std::int64_t step) {
  const std::optional<EvaluationResult> evaluation =
      validation->run([&] { return checkpoints && checkpoints->stopsEvaluation(); });
  if (!evaluation)
    return atBoundary(step, nullptr, true);
  logEvaluation(job, *evaluation, step, order.at(step).epoch + 1);
  stopping.note(*evaluation);
  if (stopping.isOver())
    job.log.write(JsonObject().add("note", "ended after step " + std::to_string(step) + ": " +
                                               std::to_string(stopping.history().sinceBest) +
                                               " evaluations in a row were no better (--early_stopping)"));
  report(step, evaluation);
  atBoundary(step, &*evaluation, false);
}

} // namespace fsdpc::rt

// What the training loop says of its steps: lines of the log, progress, lines per epoch.
#include "runtime/common/trainer.h"

#include "runtime/common/step_guard.h"

#include <algorithm>

namespace fsdpc::rt {

void Trainer::logStep(std::int64_t step) {
  const auto steps = static_cast<double>(window.steps);
  const double seconds = window.microseconds * 1e-6;
  const double samplesPerSecond = static_cast<double>(window.samples) / seconds;
  Metrics metrics(job.events, step);
  metrics.add("loss", last.loss).add("lr", schedule.at(step));
  for (const ScalarInfo &scalar : job.program.scalars)
    if (std::string_view(scalar.base) == "lr" && !scalar.factor)
      metrics.add(scalar.name, schedule.at(step, scalar, job.options));
  if (last.gradientNorm) {
    metrics.add("grad_norm", *last.gradientNorm);
    metrics.line().add("skipped_steps", skippedSteps);
  }
  if (lossScale > 0)
    metrics.add("loss_scale", lossScale);
  metrics.add("step_ms", window.microseconds / steps * 1e-3).add("samples_per_s", samplesPerSecond);
  if (tokensInSample > 0)
    metrics.add("tokens_per_s", samplesPerSecond * static_cast<double>(tokensInSample));
  if (const std::optional<double> utilization = mfu())
    metrics.add("mfu", *utilization);
  logCommunication(metrics);
  metrics.add("data_ms", window.dataMicroseconds / steps * 1e-3);
  if (job.options.timeMatmuls)
    metrics.add("matmul_ms", window.matmulMicroseconds / steps * 1e-3);
  metrics.add("predicted_comm_exposed_ms", job.program.predictedExposedMicroseconds * 1e-3);
  if (stragglers && window.measuredSteps > 0)
    stragglers->addTo(metrics.line());
  metrics.line().add("memory_planned_bytes", plannedBytes).add("memory_peak_bytes", peakBytes);
  job.log.write(metrics.line());
  job.events.flush();
}

/// Of the steps since the last line of the log; nullopt if the peak of the device is unknown.
std::optional<double> Trainer::mfu() const {
  if (job.program.peakStepMicroseconds <= 0)
    return std::nullopt;
  return job.program.peakStepMicroseconds * static_cast<double>(window.steps) / window.microseconds;
}

ProgressFigures Trainer::figures(std::int64_t step) const {
  const double samplesPerSecond = static_cast<double>(window.samples) / (window.microseconds * 1e-6);
  const bool hasTokens = tokensInSample > 0;
  return {last.loss,
          schedule.at(step),
          window.microseconds / static_cast<double>(window.steps) * 1e-3,
          samplesPerSecond * static_cast<double>(hasTokens ? tokensInSample : 1),
          hasTokens ? "tokens" : "samples",
          last.gradientNorm,
          mfu()};
}

/// The mean time of a measured step in which this rank did not wait for others. There must be one.
double Trainer::busyMicroseconds() const {
  return (window.measuredMicroseconds - window.exposedMicroseconds - window.skewMicroseconds) / window.measuredSteps;
}

/// Averages over the steps that were measured.
void Trainer::logCommunication(Metrics &metrics) const {
  const auto addMeasured = [&](const char *name, double microseconds, bool isKnown) {
    if (isKnown)
      metrics.add(name, microseconds * 1e-3);
    else
      metrics.line().addRaw(name, "null");
  };
  const bool isKnown = window.measuredSteps > 0;
  const double steps = std::max(1.0, window.measuredSteps);
  const double computeMicroseconds =
      isKnown ? busyMicroseconds() - window.measuredDataMicroseconds / window.measuredSteps : 0;
  addMeasured("compute_ms", computeMicroseconds, isKnown);
  addMeasured("comm_ms", window.communicationMicroseconds / steps, isKnown);
  addMeasured("comm_exposed_ms", window.exposedMicroseconds / steps, isKnown);
  addMeasured("comm_skew_ms", window.skewMicroseconds / steps, isKnown && window.knowsSkew);
}

void Trainer::reportStep(std::int64_t step, bool logged) {
  if (logged && stragglers && window.measuredSteps > 0)
    stragglers->look(step, busyMicroseconds());
  const StepScope scope(StepPart::logging);
  progress.step(step, figures(step), logged);
  if (logged) {
    logStep(step);
    window = {};
  }
}

/// Prints one line per epoch, and one per evaluation in between.
void Trainer::report(std::int64_t step, const std::optional<EvaluationResult> &evaluation) {
  const TrainingOrder::Batch batch = order.at(step);
  const bool epochEnds = batch.endsEpoch;
  if (job.context.rank != 0 || (!epochEnds && !evaluation))
    return;
  progress.clear();
  const std::string figures = evaluation ? "  " + evaluationText(*evaluation) : "";
  if (epochEnds)
    std::printf("epoch %2lld  train loss %.4f%s  %.1f s\n", static_cast<long long>(batch.epoch + 1),
                epochLossSum / static_cast<double>(std::max<std::int64_t>(epochSteps, 1)), figures.c_str(),
                std::chrono::duration<double>(Clock::now() - epochBegin).count());
  else
    std::printf("step %lld%s\n", static_cast<long long>(step), figures.c_str());
  std::fflush(stdout);
}

} // namespace fsdpc::rt

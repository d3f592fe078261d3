// The training loop: steps, epochs, learning rate, log lines, evaluation in between.
#pragma once

#include "runtime/checkpoint/checkpoints.h"
#include "runtime/common/early_stopping.h"
#include "runtime/common/evaluation.h"
#include "runtime/common/gradient_stash.h"
#include "runtime/common/read_ahead.h"
#include "runtime/common/replica_check.h"
#include "runtime/common/rerun_check.h"
#include "runtime/common/run_learning_rate.h"
#include "runtime/common/step_outcome.h"
#include "runtime/common/stragglers.h"
#include "runtime/common/training_order.h"

#include <chrono>

namespace fsdpc::rt {

/// The order in which training takes the samples.
SampleOrder sampleOrder(const BatchFeeder &training, const Options &options);
/// What decides that order and, where samples share rows, which ones do.
std::string orderText(const BatchFeeder &training, const Options &options);

class Trainer {
public:
  /// `validation` is null without --val_data, `checkpoints` without --checkpoint_folder. `resumed`: where the run goes
  /// on; null: at the start. Calls no collective. Throws Failure if the data is too small or the program is not one
  /// that this loop can drive.
  Trainer(const Job &job, BatchFeeder &training, Evaluator *validation, Checkpoints *checkpoints,
          const TrainingState *resumed);

  /// Runs all steps. Throws Failure{nonFinite}, on every rank, at the first loss or norm that is not finite, unless the
  /// program skips such steps. If updates are guarded, the state is then that before the step.
  void run();

  std::int64_t totalSteps() const { return total; }

private:
  using Clock = std::chrono::steady_clock;
  /// Sums since the last line of the log.
  struct Window {
    double microseconds = 0;
    double communicationMicroseconds = 0;
    double exposedMicroseconds = 0;
    double skewMicroseconds = 0;
    bool knowsSkew = true;
    double measuredSteps = 0;        ///< steps whose collectives were timed
    double measuredMicroseconds = 0; ///< time of these steps
    double matmulMicroseconds = 0;   ///< --time_matmuls
    double dataMicroseconds = 0;     ///< reading and copying micro-batches
    double measuredDataMicroseconds = 0;
    std::int64_t samples = 0;
    std::int64_t steps = 0;
  };

  void step(std::int64_t step);
  StepOutcome computeStep(std::int64_t step);
  void fillInputs(std::int64_t step);
  void feed(std::int64_t step, int microStep, BatchFeeder::Inputs which);
  void feedMicroSteps(std::int64_t step);
  void readAhead(std::int64_t step, int microStep);
  void callForMicroSteps(std::int64_t step, void (*function)(Context &), BatchFeeder::Inputs which);
  void computeGradients(std::int64_t step);
  void callFunctions(std::int64_t step);
  void checkOutcome(const StepOutcome &outcome, std::int64_t step);
  void skip(const StepOutcome &outcome, std::int64_t step, const std::string &why);
  std::string blameForUpdate(std::int64_t step);
  [[noreturn]] static void failNonFinite(const std::string &why, const std::string &gradient);
  void replayMatmuls();
  void setStepScalars(std::int64_t step);
  bool savesGradients(std::int64_t step) const;
  void saveGradients();
  bool isLogged(std::int64_t step) const;
  bool isMeasured(std::int64_t step) const;
  void logStep(std::int64_t step);
  double busyMicroseconds() const;
  void logCommunication(Metrics &metrics) const;
  std::optional<double> mfu() const;
  ProgressFigures figures(std::int64_t step) const;
  bool evaluationDue(std::int64_t step) const;
  void finishStep(std::int64_t step);
  void evaluate(std::int64_t step);
  void atBoundary(std::int64_t step, const EvaluationResult *evaluation, bool evaluationDue);
  TrainingState stateAfter(std::int64_t step, bool evaluationDue) const;
  void beginEpoch(const TrainingOrder::Batch &batch);
  void reportStep(std::int64_t step, bool logged);
  void report(std::int64_t step, const std::optional<EvaluationResult> &evaluation);

  const Job &job;
  BatchFeeder &feeder;
  Evaluator *validation;
  Checkpoints *checkpoints;
  const TrainingState resumed; ///< step 0: the run starts anew
  bool fixedBatch;
  Sampler sampler;
  TrainingOrder order;
  std::int64_t total;
  RunLearningRate schedule;
  Progress progress;
  std::vector<std::int64_t> rows;
  std::optional<ReadAhead> ahead; ///< none with --batch
  PendingOutcome pending;
  std::optional<GradientStash> stash; ///< from the first step until its memory has been measured
  std::optional<ReplicaCheck> replicas;
  std::optional<RerunCheck> rerun;
  std::optional<Stragglers> stragglers;
  EarlyStopping stopping;
  std::int64_t tokensInSample = 0; ///< 0: the program has no [B, T] integer input
  std::int64_t plannedBytes = 0;
  std::int64_t peakBytes = 0;
  Window window;
  double dataMicroseconds = 0; ///< of the current step
  StepOutcome last;
  double lossScale = 0;          ///< of the last step
  std::int64_t skippedSteps = 0; ///< since the start
  double epochLossSum = 0;
  std::int64_t epochSteps = 0;
  Clock::time_point epochBegin;
};

} // namespace fsdpc::rt

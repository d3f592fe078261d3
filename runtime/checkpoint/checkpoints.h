// When a run saves checkpoints, and when it stops.
//
// The training loop asks after every step. A checkpoint is due at the interval, after the best evaluation so far, at
// the end, and when a signal or --max_runtime ends the run.
#pragma once

#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/requests.h"
#include "runtime/checkpoint/resume.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/common/evaluation.h"
#include "runtime/common/job.h"

#include <chrono>
#include <functional>
#include <optional>

namespace fsdpc::rt {

/// When this process started, as far as --max_runtime is concerned.
using RunClock = std::chrono::steady_clock;

/// What --checkpoint_staging host maps on this rank; 0: nothing.
std::int64_t stagingBytes(const Job &job);

class Checkpoints {
public:
  /// A moment between two steps.
  struct Boundary {
    std::int64_t step = 0;                        ///< done so far
    bool isLast = false;                          ///< the training is over
    const EvaluationResult *evaluation = nullptr; ///< after this step
  };

  /// Collective. Locks and cleans the folder and checks its free space, on rank 0. `resumed`: where the run goes on
  /// from, if it does. Throws Failure{storage, usage, memory} on every rank.
  Checkpoints(const Job &job, RunClock::time_point start, const ResumedRun *resumed);

  /// Every rank calls this after every step, and before the first. `state` is called if a checkpoint is due. Throws
  /// Failure{stopped} on every rank after the last checkpoint is written, and Failure{storage}.
  void atBoundary(const Boundary &boundary, const std::function<TrainingState()> &state);
  /// Every rank calls this after every batch of an evaluation. Returns whether the run stops: the evaluation ends
  /// there, and `atBoundary` saves and throws.
  bool stopsEvaluation();

private:
  void prepareFolder(const ResumedRun *resumed);
  std::uint8_t wishes();
  bool isDue(const Boundary &boundary, std::uint8_t requested);
  bool noteBest(const Boundary &boundary);
  void save(TrainingState state);
  void logSaved();
  void finish();
  [[noreturn]] void stop(std::int64_t step);

  const Job &job;
  const RunClock::time_point start;
  const std::int64_t checkpointBytes; ///< of all ranks
  std::optional<FolderLock> lock;
  std::optional<CheckpointWriter> writer;
  RunRequests requests;
  bool isStopping = false;
  std::int64_t lastSavedStep = -1;
  RunClock::time_point lastSave, lastBoundary;
  double longestStepSeconds = 0, longestSaveSeconds = 0;
  std::optional<BestEvaluation> best;
};

} // namespace fsdpc::rt

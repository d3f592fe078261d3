#include "runtime/checkpoint/checkpoints.h"

#include "runtime/common/agreement.h"
#include "runtime/common/file.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

/// What a disk is taken to write per second before the first checkpoint was written.
constexpr double assumedBytesPerSecond = 1e8;

double secondsBetween(RunClock::time_point begin, RunClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// A number that no earlier run in the folder had; that of rank 0.
std::string agreedRunId(Platform &platform) {
  std::uint64_t id = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  id = id * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(::getpid());
  platform.broadcast(&id, sizeof id);
  return hexOf({id});
}

void requireMetric(const ProgramInfo &program, const std::string &metric) {
  if (metric == "val_accuracy" && !program.isClassification)
    throw Failure(ExitCode::usage, "--save_best val_accuracy: this program counts no correct answers", true);
  if (metric == "val_top_k_accuracy" && topKOf(program) == 0)
    throw Failure(ExitCode::usage,
                  "--save_best val_top_k_accuracy: this program counts no labels among the highest scores; compile it "
                  "with --top_k K",
                  true);
}

} // namespace

std::int64_t stagingBytes(const Job &job) {
  const Options &options = job.options;
  const bool saves = !options.checkpointFolder.empty() && (!options.trainData.empty() || !options.batch.empty());
  return saves && options.checkpointStaging != "off" ? CheckpointLayout(job.program).bytesOf(job.context.rank) : 0;
}

Checkpoints::Checkpoints(const Job &job, RunClock::time_point start, const ResumedRun *resumed)
    : job(job), start(start), checkpointBytes(CheckpointLayout(job.program).totalBytes()), requests(job.platform),
      lastSave(RunClock::now()), lastBoundary(RunClock::now()) {
  requireMetric(job.program, job.options.saveBest);
  const std::string runId = agreedRunId(job.platform);
  agreed(job.platform, [&] {
    if (job.context.rank == 0)
      prepareFolder(resumed);
    writer.emplace(job.program, job.context,
                   CheckpointSettings{job.options.checkpointFolder, runId, job.options.checkpointStaging != "off",
                                      job.options.keepLatest});
  });
  if (resumed) {
    std::error_code ignored;
    if (std::filesystem::equivalent(parentDirectory(resumed->path), job.options.checkpointFolder, ignored))
      lastSavedStep = resumed->state.step;
    if (resumed->state.bestMetric == job.options.saveBest)
      best = resumed->state.best;
  }
}

void Checkpoints::prepareFolder(const ResumedRun *resumed) {
  const std::string &folder = job.options.checkpointFolder;
  lock.emplace(folder);
  removeLeftovers(folder);
  const std::vector<StepFolder> present = listCheckpoints(folder);
  if (!present.empty() && job.options.resume == "none")
    throw Failure(ExitCode::usage, "--checkpoint_folder " + folder + ": holds checkpoints of a run (step " +
                                       std::to_string(present.back().step) +
                                       "); give --resume auto to go on from it, or another folder");
  if (!present.empty() && job.options.resume != "auto" && resumed && present.back().step > resumed->state.step)
    throw Failure(ExitCode::usage, "--checkpoint_folder " + folder + ": holds a checkpoint of step " +
                                       std::to_string(present.back().step) + ", and the run would go on from step " +
                                       std::to_string(resumed->state.step) + "; give another folder");
  // A checkpoint is deleted only after the next one is written.
  const std::int64_t wanted =
      std::max<std::int64_t>(1, job.options.keepLatest + (job.options.saveBest.empty() ? 1 : 2));
  const std::int64_t missing =
      std::max<std::int64_t>(1, job.options.keepLatest == 0 ? 1 : wanted - static_cast<std::int64_t>(present.size()));
  requireFreeSpace(folder, missing * checkpointBytes, std::to_string(missing) + " checkpoint(s)");
}

std::uint8_t Checkpoints::wishes() {
  const RunClock::time_point now = RunClock::now();
  longestStepSeconds = std::max(longestStepSeconds, secondsBetween(lastBoundary, now));
  lastBoundary = now;
  std::uint8_t wanted = stopSignal() != 0 ? stopRequest : 0;
  if (job.context.rank != 0)
    return wanted;
  const double every = job.options.checkpointSeconds();
  if (every > 0 && secondsBetween(lastSave, now) >= every)
    wanted |= saveRequest;
  const double limit = job.options.maxRuntimeSeconds();
  const double save =
      longestSaveSeconds > 0 ? longestSaveSeconds : static_cast<double>(checkpointBytes) / assumedBytesPerSecond;
  // The wish is followed after one more step.
  if (limit > 0 && secondsBetween(start, now) + 2 * longestStepSeconds + 1.5 * save + 1 >= limit)
    wanted |= stopRequest;
  return wanted;
}

void Checkpoints::atBoundary(const Boundary &boundary, const std::function<TrainingState()> &state) {
  writer->check();
  logSaved();
  // An evaluation that was ended early is no new boundary: no collective lies in between.
  const std::uint8_t requested = isStopping ? stopRequest : requests.atBoundary(wishes());
  isStopping = isStopping || (requested & stopRequest) != 0;
  if (isDue(boundary, requested) && boundary.step != lastSavedStep)
    save(state());
  if (boundary.isLast || isStopping)
    finish();
  if (isStopping && !boundary.isLast)
    stop(boundary.step);
}

bool Checkpoints::stopsEvaluation() {
  isStopping = isStopping || (requests.atBoundary(wishes()) & stopRequest) != 0;
  return isStopping;
}

bool Checkpoints::isDue(const Boundary &boundary, std::uint8_t requested) {
  const bool isBest = noteBest(boundary);
  const std::int64_t every = job.options.checkpointSteps();
  return isBest || isStopping || boundary.isLast || (requested & saveRequest) != 0 ||
         (every > 0 && boundary.step > 0 && boundary.step % every == 0);
}

bool Checkpoints::noteBest(const Boundary &boundary) {
  if (job.options.saveBest.empty() || !boundary.evaluation)
    return false;
  const double value = boundary.evaluation->metric(job.options.saveBest);
  const bool isBest = !best || isBetter(job.options.saveBest, value, best->value);
  if (isBest)
    best = BestEvaluation{boundary.step, value};
  return isBest;
}

void Checkpoints::save(TrainingState state) {
  job.pulse.enter(Phase::saving);
  state.bestMetric = job.options.saveBest;
  state.best = best;
  writer->save(state, [&] { job.pulse.beatWhileAllRun(); });
  lastSavedStep = state.step;
  lastSave = lastBoundary = RunClock::now();
  job.pulse.enter(Phase::step);
}

void Checkpoints::logSaved() {
  const std::optional<SavedCheckpoint> saved = writer->takeSaved();
  if (!saved)
    return;
  longestSaveSeconds = std::max(longestSaveSeconds, saved->writeMicroseconds * 1e-6);
  JsonObject line;
  line.add("step", saved->step).add("path", saved->path).add("bytes", saved->bytes);
  line.add("copy_ms", saved->copyMicroseconds * 1e-3).add("write_ms", saved->writeMicroseconds * 1e-3);
  line.add("staging_bytes", writer->stagingBytes());
  job.log.write(JsonObject().addRaw("checkpoint", line.str()));
}

/// Collective. After it every checkpoint has its name.
void Checkpoints::finish() {
  job.pulse.enter(Phase::saving);
  writer->wait([&] { job.pulse.beatWhileAllRun(); });
  job.platform.barrier();
  logSaved();
  job.pulse.enter(Phase::step);
}

void Checkpoints::stop(std::int64_t step) {
  const int signal = stopSignal();
  int any = static_cast<int>(job.platform.maxOverRanks(signal));
  const std::string why =
      any != 0 ? "SIG" + std::string(::sigabbrev_np(any)) : "--max_runtime " + job.options.maxRuntime;
  const std::string name = stepFolderName(step);
  Failure failure(ExitCode::stopped,
                  "stopped by " + why + " after step " + std::to_string(step) + "; saved " +
                      job.options.checkpointFolder + "/" + name + ", go on with --resume auto",
                  true);
  failure.details = "checkpoint=" + name;
  throw failure;
}

} // namespace fsdpc::rt

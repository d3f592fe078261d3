#include "runtime/checkpoint/resume.h"

#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/common/agreement.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace fsdpc::rt {
namespace {

/// Collective. The text of rank 0.
std::string agreedText(Platform &platform, std::string text) {
  auto bytes = static_cast<std::int64_t>(text.size());
  platform.broadcast(&bytes, sizeof bytes);
  text.resize(static_cast<std::size_t>(bytes));
  if (bytes > 0)
    platform.broadcast(text.data(), bytes);
  return text;
}

/// Of rank 0, the newest first.
std::vector<std::string> findCandidates(const Options &options) {
  if (options.resume != "auto")
    return {checkpointsAt(options.resume).back()};
  std::vector<std::string> paths;
  for (const StepFolder &step : listCheckpoints(options.checkpointFolder))
    paths.push_back(step.path);
  std::reverse(paths.begin(), paths.end());
  return paths;
}

} // namespace

std::vector<std::string> resumeCandidates(const Options &options, Platform &platform) {
  if (options.resume == "none")
    return {};
  std::string list;
  agreed(platform, [&] {
    if (platform.rank() == 0)
      for (const std::string &path : findCandidates(options))
        list += path + '\0';
  });
  list = agreedText(platform, list);
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < list.size(); begin = list.find('\0', begin) + 1)
    paths.emplace_back(list.c_str() + begin);
  return paths;
}

ResumedRun resumeFrom(const std::vector<std::string> &candidates, const ProgramInfo &program, const Options &options,
                      Platform &platform, const Context &context, Pulse &pulse) {
  for (std::size_t i = 0;; ++i) {
    ResumedRun resumed{candidates[i], {}};
    const auto begin = std::chrono::steady_clock::now();
    try {
      agreed(platform, [&] {
        CheckpointReader reader(resumed.path);
        requireFits(program, reader);
        loadState(program, context, reader, [&] { pulse.beat(); });
        resumed.state = reader.manifest().training;
      });
      resumed.loadMilliseconds =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
      return resumed;
    } catch (const Failure &failure) {
      const bool mayFallBack =
          options.resume == "auto" && failure.code == ExitCode::corrupt && i + 1 < candidates.size();
      if (!mayFallBack)
        throw;
      if (platform.rank() == failure.reportingRank)
        std::fprintf(stderr, "fsdpc: warning: a damaged checkpoint is not used: %s\nfsdpc: warning: goes back to %s\n",
                     failure.what(), candidates[i + 1].c_str());
    }
  }
}

void requireSameOrder(const ResumedRun &resumed, std::int64_t samples, const std::string &order, Options &options) {
  const TrainingState &state = resumed.state;
  const auto refuse = [&](const std::string &what) {
    throw Failure(ExitCode::incompatible,
                  resumed.path + ": " + what + ", so samples would be skipped or repeated; " +
                      "to start anew from its weights, export them and give --load_model",
                  true);
  };
  const auto sharesRows = [](const std::string &text) { return text.starts_with("rows of "); };
  if (sharesRows(order) != sharesRows(state.sampleOrder))
    refuse(std::string("its run was given ") + (sharesRows(order) ? "no " : "") + "--sample_packing");
  if (samples != state.samplesInEpoch)
    refuse("its run had " + std::to_string(state.samplesInEpoch) + " samples in an epoch, this one has " +
           std::to_string(samples));
  if (options.shuffle != state.shuffle)
    refuse(std::string("its run was ") + (state.shuffle ? "" : "not ") + "shuffled");
  if (!state.sampleOrder.empty() && order != state.sampleOrder)
    refuse("its run took the samples as '" + state.sampleOrder + "', this one as '" + order + "'");
  if (options.given.contains("seed") && options.seed != state.seed)
    refuse("its run had --seed " + std::to_string(state.seed));
  options.seed = state.seed;
}

} // namespace fsdpc::rt

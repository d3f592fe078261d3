#include "runtime/common/run_program.h"

#include "runtime/checkpoint/checkpoints.h"
#include "runtime/checkpoint/resume.h"
#include "runtime/common/adapters.h"
#include "runtime/common/agreement.h"
#include "runtime/common/final_weights.h"
#include "runtime/common/memory_report.h"
#include "runtime/common/model_folder.h"
#include "runtime/common/onnx_file.h"
#include "runtime/common/output_paths.h"
#include "runtime/common/profile.h"
#include "runtime/common/recompile_line.h"
#include "runtime/common/scalars.h"
#include "runtime/common/trace_file.h"
#include "runtime/common/trainer.h"
#include "runtime/common/weight_averages.h"
#include "runtime/common/weights.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace fsdpc::rt {
namespace {

/// The input files of a run, opened and checked before any memory is mapped.
struct Inputs {
  std::optional<BatchFeeder> training;
  std::optional<BatchFeeder> validation;
  std::optional<Weights> compiled; ///< OUT/weights
  std::optional<Weights> user;     ///< --load_model
  std::optional<Weights> adapters; ///< --load_adapters
  /// Whether OUT/weights and drawn values are where the parameters start, or some of them.
  bool usesOwn = true;
};

bool hasCompiledWeights(const ProgramInfo &program) {
  for (const ParameterInfo &parameter : program.parameters)
    if (parameter.inWeightsFile)
      return true;
  return false;
}

FeedOptions feedOptions(const Options &options) {
  return {options.maps, options.fills, options.documentEnd, options.truncate, options.samplePacking};
}

DataRequest dataRequest(const ProgramInfo &program, const Options &options, const std::string &pattern) {
  DataRequest request{
      pattern, options.dataFormat, tokensPerSample(program, feedOptions(options)), {}, integerInputs(program)};
  if (!options.normalize.empty())
    request.normalize = options.meanAndStd();
  return request;
}

void openData(std::optional<BatchFeeder> &feeder, const ProgramInfo &program, const Options &options, Pulse &pulse,
              const DataRequest &request) {
  feeder.emplace(program, openDataset(request), feedOptions(options));
  feeder->checkRanges(pulse.rank(), program.worldSize, [&] { pulse.beat(); });
}

void openInputs(Inputs &inputs, const ProgramInfo &program, const Options &options, Pulse &pulse,
                const std::string &outDirectory, bool resumes) {
  if (!options.trainData.empty())
    openData(inputs.training, program, options, pulse, dataRequest(program, options, options.trainData));
  if (!options.batch.empty())
    openData(inputs.training, program, options, pulse, {options.batch, "safetensors", 0, {}, ""});
  if (!options.valData.empty())
    openData(inputs.validation, program, options, pulse, dataRequest(program, options, options.valData));
  // A run that goes on reads the names alone, for the folder that it saves.
  if (!options.loadModel.empty() && (!resumes || isFolderName(options.saveModel) || isFolderName(options.saveEma)))
    inputs.user.emplace(program, options.loadModel, WeightsOrigin::user, options.loadPartial);
  if (inputs.user && pulse.rank() == 0 && !resumes)
    inputs.user->requireEqualCopies([&] { pulse.beat(); });
  if (!options.loadAdapters.empty() && !resumes) {
    requireSameAdapters(program, options.loadAdapters);
    inputs.adapters.emplace(program, options.loadAdapters, WeightsOrigin::adapters);
  }
  inputs.usesOwn = !resumes && (!inputs.user || inputs.user->areIncomplete());
  if (inputs.usesOwn && hasCompiledWeights(program))
    inputs.compiled.emplace(program, outDirectory + "/weights/model.safetensors", WeightsOrigin::compiled);
}

void checkOutputs(const ProgramInfo &program, const Options &options) {
  for (const std::string &path : {options.saveModel, options.saveEma})
    if (!path.empty() && !isFolderName(path))
      requireWritable(path);
  for (const std::string &path : {options.saveGradients, options.predict, options.log, options.report, options.profile})
    if (!path.empty())
      requireWritable(path);
  if (!options.saveOnnx.empty())
    requireOnnxWritable(program, options.saveOnnx);
}

void initialize(const ProgramInfo &program, const Functions &functions, const Options &options, Context &context,
                const Inputs &inputs, Pulse &pulse, bool resumes) {
  resetState(program, context);
  if (inputs.usesOwn)
    drawInitialValues(
        program, context, static_cast<std::uint64_t>(options.seed.value_or(0)),
        [&](std::size_t parameter) { return !inputs.user || !inputs.user->has(parameter); }, [&] { pulse.beat(); });
  if (inputs.compiled)
    inputs.compiled->load(context, [&] { pulse.beat(); });
  if (inputs.user && !resumes)
    inputs.user->load(context, [&] { pulse.beat(); });
  if (inputs.adapters)
    inputs.adapters->load(context, [&] { pulse.beat(); });
  startAverages(program, context);
  for (const ScalarValue &scalar : options.scalars)
    setScalar(program, context, scalar.scalar->name, scalar.value);
  for (const ScalarInfo &scalar : program.scalars)
    if (scalar.factor)
      storeScalar(context, scalar, *scalar.factor * options.scalar(scalar.base));
  // The evaluation step may run before the first training step.
  setIntegerScalar(program, context, "step", 0);
  setIntegerScalar(program, context, "seed", options.seed.value_or(0));
  setIntegerScalar(program, context, "rank", context.rank);
  if (functions.start)
    functions.start(context);
}

std::string hostsText(int hosts) { return hosts > 1 ? " on " + std::to_string(hosts) + " hosts" : ""; }

void announce(const Job &job) {
  const ProgramInfo &program = job.program;
  JsonObject settings;
  settings.addRaw("options", settingsJson(job.options));
  settings.add("model", program.modelName).add("plan_hash", program.planHash).add("world_size", program.worldSize);
  settings.add("micro_batch_size", program.microBatchSize).add("threads", job.context.threads);
  settings.add("streams", job.platform.streamModeName());
  if (const char *level = job.platform.cpuLevelName())
    settings.add("cpu_level", level);
  if (job.platform.hosts() > 1)
    settings.add("hosts", job.platform.hosts());
  if (program.settingsJson && program.settingsJson[0])
    settings.addRaw("compiled", program.settingsJson);
  job.log.write(JsonObject().addRaw("settings", settings.str()));
  if (progressStyle(job.options.progress, job.context.rank) != ProgressStyle::none)
    std::fprintf(stderr, "%s: %d rank(s)%s, %d compute thread(s) per rank, streams %s\n", program.modelName,
                 program.worldSize, hostsText(job.platform.hosts()).c_str(), job.context.threads,
                 job.platform.streamModeName());
}

void announceResumed(const Job &job, const ResumedRun &resumed) {
  JsonObject line;
  line.add("step", resumed.state.step).add("checkpoint", resumed.path);
  line.add("epoch", resumed.state.next.epoch).add("sample", resumed.state.next.sample);
  line.add("load_ms", resumed.loadMilliseconds);
  job.log.write(JsonObject().addRaw("resumed", line.str()));
  if (progressStyle(job.options.progress, job.context.rank) != ProgressStyle::none)
    std::fprintf(stderr, "goes on after step %lld, from %s\n", static_cast<long long>(resumed.state.step),
                 resumed.path.c_str());
}

void announceInputs(const Job &job, const Inputs &inputs) {
  std::set<std::string> notes;
  if (inputs.user)
    for (const std::string &note : inputs.user->notes())
      notes.insert(note);
  for (const std::optional<BatchFeeder> *feeder : {&inputs.training, &inputs.validation})
    if (*feeder)
      notes.insert((*feeder)->notes().begin(), (*feeder)->notes().end());
  for (const std::string &note : notes) {
    job.log.write(JsonObject().add("note", note.c_str()));
    if (progressStyle(job.options.progress, job.context.rank) != ProgressStyle::none)
      std::fprintf(stderr, "note: %s\n", note.c_str());
  }
}

/// Reports the memory that the ranks together have added since the arenas were mapped, measured after the last step.
void reportGrowth(const Job &job) {
  const std::int64_t growth = job.platform.proportionalSetGrowthBytes();
  const std::int64_t beside = stagingBytes(job) + job.platform.hostLinkBytes();
  const std::int64_t mine = growth < 0 ? growth : std::max<std::int64_t>(0, growth - beside);
  const bool unknown = job.platform.maxOverRanks(mine < 0) != 0;
  const std::int64_t all = unknown ? -1 : job.platform.sumOverRanks(mine);
  if (job.options.memoryReport && job.context.rank == 0)
    std::fputs(growthReport(job.program, all).c_str(), stdout);
  JsonObject report;
  report.add("planned_bytes", plannedBytes(job.program)).add("world_size", job.program.worldSize);
  report.add("host_arena_bytes", arenaBytes(job.program, Space::host));
  if (unknown)
    report.addRaw("pss_growth_bytes", "null").addRaw("pss_before_bytes", "null");
  else
    report.add("pss_growth_bytes", all)
        .add("pss_before_bytes", job.platform.sumOverRanks(job.platform.proportionalSetBytesBefore()));
  job.log.write(JsonObject().addRaw("memory_report", report.str()));
}

/// Time zero of the traces: one clock value that the ranks of a host share; across hosts, the end of a barrier.
ProfileClock::time_point traceBase(Platform &platform) {
  platform.barrier();
  std::int64_t ticks = ProfileClock::now().time_since_epoch().count();
  if (platform.hosts() == 1)
    platform.broadcast(&ticks, sizeof ticks);
  return ProfileClock::time_point(ProfileClock::duration(ticks));
}

void train(const Job &job, Trainer &trainer) {
  if (!job.options.profile.empty()) {
    job.platform.profile = std::make_shared<Profile>(job.program, programCollectives(), traceBase(job.platform));
    job.context.profile = job.platform.profile.get();
  }
  trainer.run();
  if (job.context.profile)
    agreed(job.platform, [&] { writeProfile(*job.context.profile, job.options.profile, job.context.rank); });
}

void evaluateOnce(const Job &job, Evaluator &evaluator) {
  const EvaluationResult result = evaluator.run();
  logEvaluation(job, result, 0, 0);
  if (job.context.rank == 0)
    std::printf("%s\n", evaluationText(result).c_str());
}

PlatformOptions platformOptions(const ProgramInfo &program, const Options &options, Pulse &pulse) {
  PlatformOptions result;
  result.threads = static_cast<int>(options.threads.value_or(program.threads));
  result.timeoutSeconds = static_cast<double>(options.trainTimeoutSeconds);
  result.slowLink = {options.slowLinkMicroseconds, options.slowLinkBytesPerMicrosecond};
  result.pulse = &pulse;
  result.debug = options.debugCollectives == "off"      ? DebugCollectives::off
                 : options.debugCollectives == "detail" ? DebugCollectives::detail
                                                        : DebugCollectives::sequence;
  result.streams = options.streams == "inline"    ? StreamMode::inlined
                   : options.streams == "threads" ? StreamMode::threads
                                                  : StreamMode::automatic;
  result.stepReplay = options.stepReplay == "on"    ? StepReplay::on
                      : options.stepReplay == "off" ? StepReplay::off
                                                    : StepReplay::automatic;
  return result;
}

/// Rejects options that so far need a platform with host streams.
void requireHostStreams(const Options &options) {
  const std::pair<const char *, bool> wanted[] = {
      {"time_matmuls", options.timeMatmuls},
      {"debug_collectives detail", options.debugCollectives == "detail"},
      {"slow_link_microseconds and --slow_link_bytes_per_microsecond",
       options.slowLinkMicroseconds > 0 || options.slowLinkBytesPerMicrosecond > 0}};
  for (const auto &[name, isWanted] : wanted)
    if (isWanted)
      throw Failure(ExitCode::usage, "--" + std::string(name) + ": programs of this target do not have it yet", true);
}

void work(const Job &job, Inputs &inputs, const ResumedRun *resumed, RunClock::time_point start) {
  std::optional<Checkpoints> checkpoints;
  if (!job.options.checkpointFolder.empty() && inputs.training)
    checkpoints.emplace(job, start, resumed);
  std::optional<Evaluator> evaluator;
  std::optional<Trainer> trainer;
  std::optional<Predictor> predictor;
  agreed(job.platform, [&] {
    if (inputs.validation && (job.options.evalOnly || inputs.training))
      evaluator.emplace(job, *inputs.validation, job.options.evalSteps);
    if (inputs.training)
      trainer.emplace(job, *inputs.training, evaluator ? &*evaluator : nullptr, checkpoints ? &*checkpoints : nullptr,
                      resumed ? &resumed->state : nullptr);
  });
  if (job.options.evalOnly)
    evaluateOnce(job, *evaluator);
  if (trainer) {
    train(job, *trainer);
    reportGrowth(job);
  }
  if (job.options.predict.empty())
    return;
  agreed(job.platform, [&] { predictor.emplace(job, *inputs.validation, job.options.predict); });
  predictor->run();
  job.pulse.enter(Phase::saving);
  agreed(job.platform, [&] { predictor->finish(); });
}

void runJob(const Job &job, Inputs &inputs, const ResumedRun *resumed, const std::string &outDirectory,
            RunClock::time_point start) {
  const std::int64_t mappedBytes = job.platform.maxOverRanks(job.platform.mappedArenaBytes());
  if (job.options.memoryReport && job.context.rank == 0)
    std::fputs(memoryReport(job.program, mappedBytes).c_str(), stdout);
  announce(job);
  if (resumed)
    announceResumed(job, *resumed);
  announceInputs(job, inputs);
  reportOutsidePlan(job, "start_up", 0);
  job.page.update();
  const FinalWeights finalWeights = openFinalWeights(job, inputs.user, outDirectory);
  work(job, inputs, resumed, start);
  saveFinalWeights(job, finalWeights);
  if (job.options.debugCollectives == "detail") {
    writeTraceFile(job.pulse, nullptr);
    requireSameTraces(job.platform, job.pulse);
  }
}

} // namespace

void requireWorldSize(const ProgramInfo &program, int worldSize) {
  if (program.worldSize == worldSize)
    return;
  throw Failure(ExitCode::incompatible,
                "this program is for " + std::to_string(program.worldSize) + " rank(s) and was started with " +
                    std::to_string(worldSize) + ". Start it with mpirun -n " + std::to_string(program.worldSize) +
                    ", or compile again:\n  " +
                    recompileLine(program, "--world_size=" + std::to_string(worldSize),
                                  "-" + std::to_string(worldSize) + "_ranks"),
                true);
}

void runProgram(const ProgramInfo &program, const Options &given, Platform &platform, const std::string &outDirectory,
                Pulse &pulse) {
  const RunClock::time_point start = RunClock::now();
  requireWorldSize(program, platform.worldSize());
  Options options = given;
  const std::vector<std::string> candidates = resumeCandidates(options, platform);
  const bool resumes = !candidates.empty();
  Inputs inputs;
  agreed(platform, [&] {
    if (platform.rank() == 0)
      requireSeparateOutputs(program, options, outDirectory);
    openInputs(inputs, program, options, pulse, outDirectory, resumes);
    if (platform.rank() == 0)
      checkOutputs(program, options);
  });
  Context &context = platform.openArenas(program, platformOptions(program, options, pulse));
  if (context.memory)
    requireHostStreams(options);
  const Functions &functions = platform.functionsOf(program);
  agreed(platform, [&] { initialize(program, functions, options, context, inputs, pulse, resumes); });
  std::optional<ResumedRun> resumed;
  if (resumes) {
    resumed = resumeFrom(candidates, program, options, platform, context, pulse);
    if (inputs.training && options.batch.empty())
      requireSameOrder(*resumed, inputs.training->samples(), orderText(*inputs.training, options), options);
    else if (inputs.training)
      requireSameOrder(*resumed, 0, "", options);
  }
  platform.finishStart(outDirectory);
  std::optional<RunLog> log;
  agreed(platform, [&] { log.emplace(options.log, platform.rank(), resumes); });
  std::optional<EventFile> events;
  agreed(platform, [&] { events.emplace(options.tensorboard, platform.rank()); });
  std::optional<RunPage> page;
  agreed(platform,
         [&] { page.emplace(options.report, options.log, outDirectory + "/run_page.html", platform.rank()); });
  const Job job{program, functions, options, platform, context, *log, *events, *page, pulse};
  try {
    runJob(job, inputs, resumed ? &*resumed : nullptr, outDirectory, start);
  } catch (const std::exception &error) {
    page->end(error.what());
    throw;
  }
  page->end("");
}

__attribute__((weak)) std::span<const CollectiveInfo> programCollectives() { return {}; }
__attribute__((weak)) std::span<const IndexNodeInfo> programIndexNodes() { return {}; }

} // namespace fsdpc::rt

#include "runtime/cuda/platform.h"

#include "runtime/common/agreement.h"
#include "runtime/common/json.h"
#include "runtime/common/options.h"
#include "runtime/common/process_memory.h"
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/index_faults.h"
#include "runtime/cuda/kernels/matmul.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {
namespace {

/// The number of host threads of one rank. A host's ranks share its cores, however many devices each of them sees.
int hostThreads(int wanted, HostGroup &group) {
  const int share = static_cast<int>(std::thread::hardware_concurrency()) / ranksOfHost(group, nameOfHost());
  return wanted > 0 ? wanted : std::max(1, share);
}

std::int64_t freeDeviceBytes() {
  std::size_t freeBytes = 0, totalBytes = 0;
  checkCuda(cudaMemGetInfo(&freeBytes, &totalBytes), "cudaMemGetInfo");
  return static_cast<std::int64_t>(freeBytes);
}

} // namespace

CudaPlatform::CudaPlatform(std::unique_ptr<HostGroup> joined) : group(std::move(joined)), heartbeatMemory(*group) {}

CudaPlatform::~CudaPlatform() {
  memory.reset();
  plain = {}; // destroyed before the communicators, whose collectives the graphs contain
  timed = {};
  calledTape.reset();
  communicators.reset();
  progress.reset();
  if (context.windowArena)
    ncclMemFree(context.windowArena);
  if (context.privateArena)
    cudaFree(context.privateArena);
  if (context.hostArena)
    cudaFreeHost(context.hostArena);
  if (device.compute)
    closeDevice(device);
}

Context &CudaPlatform::openArenas(const ProgramInfo &program, const PlatformOptions &options) {
  context.rank = context.batchRank = rank();
  context.worldSize = worldSize();
  context.threads = hostThreads(options.threads, *group);
  context.target = &device;
  // A single rank waits for no other, so its device has no time limit.
  device.timeoutSeconds = worldSize() > 1 ? options.timeoutSeconds : std::numeric_limits<double>::infinity();
  device.allowsTf32 = program.allowRoundedOperands;
  const auto microSteps = static_cast<std::size_t>(program.gradientAccumulationSteps);
  sectionCount = program.sections.size() * microSteps;
  collectiveCount = programCollectives().size() * microSteps;
  agreed(*this, [&] {
    openDevice(device, programCollectives().size());
    auto watched = std::make_unique<DeviceProgress>(options.pulse, collectiveCount, sectionCount);
    device.progress = watched.get();
    const auto held = options.pulse ? options.pulse->lock() : std::unique_lock<std::mutex>();
    progress = std::move(watched);
  });
  agreed(*this, [&] {
    mapArenas(program);
    if (program.tune)
      tuner = std::make_unique<Tuner>(matmulMachine());
  });
  device.tuner = tuner.get();
  joinCommunicators(program);
  memory = std::make_unique<StagedMemory>(context);
  context.memory = memory.get();
  ranges = std::make_unique<SectionRanges>(program, device);
  context.observer = ranges.get();
  stepReplay = options.stepReplay;
  return context;
}

void CudaPlatform::mapArenas(const ProgramInfo &program) {
  privateBytes = arenaBytes(program, Space::privateSpace);
  windowBytes = arenaBytes(program, Space::window);
  hostBytes = arenaBytes(program, Space::host);
  freeBytesBefore = freeDeviceBytes();
  if (freeBytesBefore < privateBytes + windowBytes)
    throw Failure(ExitCode::memory, "the plan needs " + std::to_string(privateBytes + windowBytes) +
                                        " bytes of device memory, " + std::to_string(freeBytesBefore) + " are free");
  if (privateBytes > 0)
    checkCuda(cudaMalloc(reinterpret_cast<void **>(&context.privateArena), static_cast<std::size_t>(privateBytes)),
              "cudaMalloc of the private arena");
  if (windowBytes > 0)
    checkNccl(ncclMemAlloc(reinterpret_cast<void **>(&context.windowArena), static_cast<std::size_t>(windowBytes)),
              "ncclMemAlloc of the window");
  if (hostBytes > 0)
    checkCuda(cudaMallocHost(reinterpret_cast<void **>(&context.hostArena), static_cast<std::size_t>(hostBytes)),
              "cudaMallocHost of the arena in the host's memory");
}

void CudaPlatform::joinCommunicators(const ProgramInfo &program) {
  ncclUniqueId id{};
  agreed(*this, [&] {
    if (rank() == 0)
      checkNccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  });
  broadcast(&id, sizeof id);
  communicators = std::make_unique<NcclCommunicators>(program, rank(), id, context.windowArena, windowBytes);
  device.communicators = communicators.get();
}

std::unique_ptr<StepTape> CudaPlatform::makeTape() const {
  return std::make_unique<StepTape>(context, sectionCount, collectiveCount, context.profile != nullptr);
}

/// The first step is called directly, since libraries initialize at first use. So is a step after an evaluation that
/// dropped the gather which the previous step had started for it.
void CudaPlatform::runStep(const std::function<void()> &step, const std::function<void()> &feeds, bool isMeasured) {
  if (stepReplay == StepReplay::off || !isWarm || device.leftoversDiscarded)
    return callStep(step, isMeasured);
  feedAs(Feeding::ahead, feeds);
  Replay &replay = isMeasured ? timed : plain;
  if (!replay.graph) {
    if (isMeasured)
      replay.tape = makeTape();
    feedAs(Feeding::copies, [&] { captureStep(replay, step); });
  }
  if (stepReplay == StepReplay::off)
    callStep(step, isMeasured);
  else
    launch(replay);
}

void CudaPlatform::feedAs(Feeding how, const std::function<void()> &feeds) {
  memory->rewind();
  feeding = how;
  feeds();
  feeding = Feeding::direct;
}

void CudaPlatform::feed(const std::function<void()> &fill) {
  switch (feeding) {
  case Feeding::direct: return fill();
  case Feeding::ahead: return memory->keepBatch(fill);
  case Feeding::copies: return memory->copyBatch();
  }
}

void CudaPlatform::callStep(const std::function<void()> &step, bool isMeasured) {
  if (std::exchange(mustJoin, false))
    joinStreams(context);
  device.leftoversDiscarded = false;
  if (isMeasured) {
    if (!calledTape)
      calledTape = makeTape();
    calledTape->clear();
    calledTape->begin();
    device.tape = unread = calledTape.get();
  }
  step();
  device.tape = nullptr;
  isWarm = true;
}

void CudaPlatform::launch(const Replay &replay) {
  const Range range("step");
  if (!mustJoin)
    returnChannels(context);
  mustJoin = true;
  if (replay.tape)
    replay.tape->begin();
  replay.graph->launch();
  unread = replay.tape.get();
}

/// Collective: either all ranks replay or none, since a captured collective must not meet one that is not captured.
void CudaPlatform::captureStep(Replay &replay, const std::function<void()> &step) {
  auto graph = std::make_unique<StepGraph>(context);
  device.tape = replay.tape.get();
  const std::optional<std::string> why = graph->capture(step);
  device.tape = nullptr;
  agreed(*this, [&] {
    if (why && stepReplay == StepReplay::on)
      throw Failure(ExitCode::internal, "--cuda_graph on: the step cannot be captured: " + *why);
  });
  if (maxOverRanks(why.has_value()) == 0)
    replay.graph = std::move(graph);
  else
    stepReplay = StepReplay::off;
  reportGraph(replay, why);
}

/// Reports once, if all goes well: the graphs with and without times are the same step.
void CudaPlatform::reportGraph(const Replay &replay, const std::optional<std::string> &why) {
  if (plain.graph && timed.graph)
    return;
  JsonObject line;
  line.add("state", replay.graph ? "on" : "off");
  if (replay.graph)
    line.add("nodes", replay.graph->nodes());
  else
    line.add("why", why.value_or("another rank could not capture it"));
  notice = JsonObject().addRaw("cuda_graph", line.str());
}

std::span<const OptionRow> targetOptions() {
  static constexpr OptionRow rows[] = {
      {"cuda_graph", "on|off|auto", &Options::stepReplay,
       "from the second step on, replay the step as one graph; default: as compiled"},
  };
  return rows;
}

void CudaPlatform::checkIndices() { requireNoIndexFault(device); }

void CudaPlatform::finishStep() {
  StepTape *tape = std::exchange(unread, nullptr);
  if (!tape)
    return;
  tape->read();
  times = tape->times();
  if (context.profile)
    context.profile->take(tape->sections(), tape->collectives());
}

/// The device's CUDA context exists before the first query of free memory, so it is not included.
OutsidePlan CudaPlatform::outsidePlan() const {
  return {freeBytesBefore - freeDeviceBytes() - privateBytes - windowBytes,
          readProportionalSetSizeBytes({{context.hostArena, hostBytes}})};
}

void CudaPlatform::arrive() {
  if (progress)
    progress->arrive();
  else if (HeartbeatPage *page = heartbeats())
    page->of(rank()).arrive();
}

void CudaPlatform::broadcast(void *data, std::int64_t bytes) {
  arrive();
  group->broadcast(data, bytes);
}

void CudaPlatform::gatherToRoot(const void *mine, std::int64_t bytes, void *all) {
  arrive();
  group->gatherToRoot(mine, bytes, all);
}

void CudaPlatform::barrier() { maxOverRanks(0); }

std::int64_t CudaPlatform::maxOverRanks(std::int64_t value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(worldSize()));
  arrive();
  group->exchange(&value, sizeof value, all.data());
  return *std::max_element(all.begin(), all.end());
}

std::int64_t CudaPlatform::sumOverRanks(std::int64_t value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(worldSize()));
  arrive();
  group->exchange(&value, sizeof value, all.data());
  std::int64_t sum = 0;
  for (std::int64_t one : all)
    sum += one;
  return sum;
}

void CudaPlatform::finishStart(const std::string &outDirectory) {
  if (tuner)
    tuner->choose(*group, outDirectory + "/tuning.json");
}

void CudaPlatform::drainCollectives() {
  joinStreams(context);
  synchronizeCompute(device);
}

void CudaPlatform::lookAtDevice() {
  if (progress)
    progress->look();
}

void CudaPlatform::abort(int exitCode) {
  if (communicators)
    communicators->abort();
  _exit(exitCode);
}

} // namespace fsdpc::rt

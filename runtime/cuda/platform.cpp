#include "runtime/cuda/platform.h"

#include "runtime/common/agreement.h"
#include "runtime/common/json.h"
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/kernels/matmul.h"

#include <algorithm>
#include <string>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {
namespace {

std::int64_t arenaBytes(const ProgramInfo &program, Space space) {
  std::int64_t bytes = 0;
  for (const ArenaInfo &arena : program.arenas)
    if (arena.space == space)
      bytes += arena.bytes;
  return bytes;
}

} // namespace

CudaPlatform::CudaPlatform(std::unique_ptr<HostGroup> group) : group(std::move(group)) {}

CudaPlatform::~CudaPlatform() {
  memory.reset();
  graph.reset(); // it holds collectives of the communicators
  communicators.reset();
  if (context.windowArena)
    ncclMemFree(context.windowArena);
  if (context.privateArena)
    cudaFree(context.privateArena);
  if (device.compute)
    closeDevice(device);
}

Context &CudaPlatform::openArenas(const ProgramInfo &program, const PlatformOptions &options) {
  context.rank = rank();
  context.worldSize = worldSize();
  context.device = &device;
  device.timeoutSeconds = options.timeoutSeconds;
  device.allowsTf32 = program.allowTf32;
  agreed(*this, [&] {
    openDevice(device, programCollectives().size());
    mapArenas(program);
    if (program.tune)
      tuner = std::make_unique<Tuner>(matmulMachine());
  });
  device.tuner = tuner.get();
  joinCommunicators(program);
  memory = std::make_unique<StagedMemory>(context);
  context.memory = memory.get();
  if (options.cudaGraph != CudaGraph::off)
    graph = std::make_unique<StepGraph>(context);
  mayFail = options.cudaGraph == CudaGraph::automatic;
  return context;
}

void CudaPlatform::mapArenas(const ProgramInfo &program) {
  privateBytes = arenaBytes(program, Space::privateSpace);
  windowBytes = arenaBytes(program, Space::window);
  std::size_t freeBytes = 0, totalBytes = 0;
  checkCuda(cudaMemGetInfo(&freeBytes, &totalBytes), "cudaMemGetInfo");
  if (static_cast<std::int64_t>(freeBytes) < privateBytes + windowBytes)
    throw Failure(ExitCode::memory, "the plan needs " + std::to_string(privateBytes + windowBytes) +
                                        " bytes of device memory, " + std::to_string(freeBytes) + " are free");
  if (privateBytes > 0)
    checkCuda(cudaMalloc(reinterpret_cast<void **>(&context.privateArena), static_cast<std::size_t>(privateBytes)),
              "cudaMalloc of the private arena");
  if (windowBytes > 0)
    checkNccl(ncclMemAlloc(reinterpret_cast<void **>(&context.windowArena), static_cast<std::size_t>(windowBytes)),
              "ncclMemAlloc of the window");
}

void CudaPlatform::joinCommunicators(const ProgramInfo &program) {
  ncclUniqueId id{};
  agreed(*this, [&] {
    if (rank() == 0)
      checkNccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  });
  group->broadcast(&id, sizeof id);
  communicators = std::make_unique<NcclCommunicators>(program, rank(), id, context.windowArena, windowBytes);
  device.communicators = communicators.get();
}

/// The first step is called as usual, for libraries set up what they need when they are first used; so is one behind an
/// evaluation, if that has taken what the step before left to it.
void CudaPlatform::runStep(const std::function<void()> &step) {
  const bool mayReplay = isWarm && !device.leftoversDiscarded;
  if (graph && mayReplay && !graph->exists())
    captureStep(step);
  if (!graph || !mayReplay)
    return callStep(step);
  if (!mustJoin)
    returnChannels(context);
  graph->launch();
  mustJoin = true;
}

void CudaPlatform::callStep(const std::function<void()> &step) {
  if (std::exchange(mustJoin, false))
    joinStreams(context);
  device.leftoversDiscarded = false;
  step();
  isWarm = true;
}

/// Collective: all ranks replay, or none does, for a captured collective must not meet one that is not.
void CudaPlatform::captureStep(const std::function<void()> &step) {
  const std::optional<std::string> why = graph->capture(step);
  agreed(*this, [&] {
    if (why && !mayFail)
      throw Failure(ExitCode::internal, "--cuda_graph on: the step cannot be captured: " + *why);
  });
  const bool isCaptured = maxOverRanks(why.has_value()) == 0;
  JsonObject line;
  line.add("state", isCaptured ? "on" : "off");
  if (isCaptured)
    line.add("nodes", graph->nodes());
  else
    line.add("why", why.value_or("another rank could not capture it"));
  notice = line.str();
  if (!isCaptured)
    graph.reset();
}

void CudaPlatform::barrier() { maxOverRanks(0); }

std::int64_t CudaPlatform::maxOverRanks(std::int64_t value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(worldSize()));
  group->exchange(&value, sizeof value, all.data());
  return *std::max_element(all.begin(), all.end());
}

std::int64_t CudaPlatform::sumOverRanks(std::int64_t value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(worldSize()));
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

void CudaPlatform::abort(int exitCode) { _exit(exitCode); }

} // namespace fsdpc::rt

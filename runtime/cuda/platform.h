// The cuda target's Platform. Each rank is one GPU and one process (or, in tests, one thread).
#pragma once

#include "runtime/common/platform.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/device_progress.h"
#include "runtime/cuda/heartbeat_memory.h"
#include "runtime/cuda/host_group.h"
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/cuda/section_ranges.h"
#include "runtime/cuda/step_graph.h"
#include "runtime/cuda/step_tape.h"
#include "runtime/cuda/tuning.h"

namespace fsdpc::rt {

class CudaPlatform final : public Platform {
public:
  /// Requires that the group's ranks have joined and this rank's device is set.
  explicit CudaPlatform(std::unique_ptr<HostGroup> group);
  ~CudaPlatform() override;

  int rank() const override { return group->rank(); }
  int worldSize() const override { return group->size(); }
  Context &openArenas(const ProgramInfo &program, const PlatformOptions &options) override;
  void runStep(const std::function<void()> &step, const std::function<void()> &feeds, bool isMeasured) override;
  void feed(const std::function<void()> &fill) override;
  void checkIndices() override;
  void finishStep() override;
  std::optional<JsonObject> takeNotice() override { return std::exchange(notice, std::nullopt); }
  void barrier() override;
  void broadcast(void *data, std::int64_t bytes) override;
  std::int64_t maxOverRanks(std::int64_t value) override;
  std::int64_t sumOverRanks(std::int64_t value) override;
  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override;
  std::int64_t mappedArenaBytes() const override { return privateBytes + windowBytes; }
  /// Device memory does not count towards the process's proportional set size.
  std::int64_t proportionalSetGrowthBytes() const override { return -1; }
  OutsidePlan outsidePlan() const override;
  const char *streamModeName() const override { return "cuda"; }
  std::optional<CommunicationTimes> takeCommunicationTimes() override { return std::exchange(times, std::nullopt); }
  void finishStart(const std::string &outDirectory) override;
  void drainCollectives() override;
  HeartbeatPage *heartbeats() override { return heartbeatMemory.page(); }
  void lookAtDevice() override;
  /// Also aborts the communicators, so that none of their kernels keeps the device or another rank waiting.
  [[noreturn]] void abort(int exitCode) override;

private:
  void arrive();
  void mapArenas(const ProgramInfo &program);
  void joinCommunicators(const ProgramInfo &program);
  /// A step as a graph, with times or without.
  struct Replay {
    std::unique_ptr<StepTape> tape; ///< null: a step without times
    std::unique_ptr<StepGraph> graph;
  };
  /// How a micro-batch fed to the step is handled.
  enum class Feeding : std::uint8_t {
    direct, ///< stored where the functions read it
    ahead,  ///< kept in host memory before a replay
    copies, ///< kept micro-batches are copied, in the step that is recorded
  };
  void feedAs(Feeding how, const std::function<void()> &feeds);
  std::unique_ptr<StepTape> makeTape() const;
  void captureStep(Replay &replay, const std::function<void()> &step);
  void reportGraph(const Replay &replay, const std::optional<std::string> &why);
  void callStep(const std::function<void()> &step, bool isMeasured);
  void launch(const Replay &replay);

  std::unique_ptr<HostGroup> group;
  HeartbeatMemory heartbeatMemory;
  std::unique_ptr<DeviceProgress> progress;
  Device device;
  Context context;
  std::unique_ptr<NcclCommunicators> communicators;
  std::unique_ptr<Tuner> tuner;
  std::unique_ptr<StagedMemory> memory;
  std::unique_ptr<SectionRanges> ranges;
  std::size_t sectionCount = 0, collectiveCount = 0; ///< of a step, over all its micro-steps
  Feeding feeding = Feeding::direct;
  StepReplay stepReplay = StepReplay::off;
  Replay plain, timed;
  std::unique_ptr<StepTape> calledTape; ///< of measured steps that are called, not replayed
  StepTape *unread = nullptr;           ///< the tape that measured the last step
  bool isWarm = false;                  ///< libraries have been used, hence set up
  bool mustJoin = true;                 ///< streams must join before a called step: after stores, or a replay
  std::optional<CommunicationTimes> times;
  std::optional<JsonObject> notice;
  std::int64_t privateBytes = 0, windowBytes = 0, hostBytes = 0;
  std::int64_t freeBytesBefore = 0; ///< of the device, just before the arenas were mapped
};

} // namespace fsdpc::rt

// The cuda target's Platform: one GPU, one process (or, in tests, one thread) per rank.
#pragma once

#include "runtime/common/platform.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/host_group.h"
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/cuda/step_graph.h"
#include "runtime/cuda/tuning.h"

namespace fsdpc::rt {

class CudaPlatform final : public Platform {
public:
  /// The group's ranks have joined and this one's device is set.
  explicit CudaPlatform(std::unique_ptr<HostGroup> group);
  ~CudaPlatform() override;

  int rank() const override { return group->rank(); }
  int worldSize() const override { return group->size(); }
  Context &openArenas(const ProgramInfo &program, const PlatformOptions &options) override;
  void runStep(const std::function<void()> &step) override;
  std::optional<std::string> takeNotice() override { return std::exchange(notice, std::nullopt); }
  void barrier() override;
  void broadcast(void *data, std::int64_t bytes) override { group->broadcast(data, bytes); }
  std::int64_t maxOverRanks(std::int64_t value) override;
  std::int64_t sumOverRanks(std::int64_t value) override;
  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override { group->gatherToRoot(mine, bytes, all); }
  std::int64_t mappedArenaBytes() const override { return privateBytes + windowBytes; }
  /// Memory of the device is not in the process's set.
  std::int64_t proportionalSetGrowthBytes() const override { return -1; }
  const char *streamModeName() const override { return "cuda"; }
  std::optional<CommunicationTimes> takeCommunicationTimes() override { return std::nullopt; }
  void finishStart(const std::string &outDirectory) override;
  void drainCollectives() override;
  [[noreturn]] void abort(int exitCode) override;

private:
  void mapArenas(const ProgramInfo &program);
  void joinCommunicators(const ProgramInfo &program);
  void captureStep(const std::function<void()> &step);
  void callStep(const std::function<void()> &step);

  std::unique_ptr<HostGroup> group;
  Device device;
  Context context;
  std::unique_ptr<NcclCommunicators> communicators;
  std::unique_ptr<Tuner> tuner;
  std::unique_ptr<StagedMemory> memory;
  std::unique_ptr<StepGraph> graph; ///< null: steps are not replayed
  bool isWarm = false;              ///< libraries have been used
  bool mayFail = false;             ///< steps are called as usual where the graph cannot be had
  bool mustJoin = true;             ///< streams before a step that is called: behind what was stored, or a replay
  std::optional<std::string> notice;
  std::int64_t privateBytes = 0, windowBytes = 0;
};

} // namespace fsdpc::rt

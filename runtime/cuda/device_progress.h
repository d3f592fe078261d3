// How far the device has come, as the host can see it without stopping it. Distinguishes a long step from one that
// hangs.
//
// The device makes progress when a collective begins or ends on its stream, and at marks that sections leave on compute
// if they start no collective. All of these are events, and a step writes nothing else. They are queried only if no
// rank has made progress for a while (Watchdog, `synchronize`), so a step that takes less than a second is never looked
// at.
#pragma once

#include "runtime/common/heartbeat.h"
#include "runtime/common/program.h"

#include <cuda_runtime.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace fsdpc::rt {

/// One start of a collective, on its stream.
struct CollectiveMark {
  cudaEvent_t begun = nullptr, ended = nullptr;
  std::atomic<std::uint64_t> sequence{0};             ///< of the last start; 0: none, or it is being enqueued
  std::uint64_t begunSequence = 0, endedSequence = 0; ///< of the last start seen to have begun, or ended
};

class DeviceProgress {
public:
  /// `collectives`, `sections`: their maximum numbers in one step. `pulse`: receives heartbeats and the trace, and
  /// outlives this object. With null, other ranks do not see this one.
  DeviceProgress(Pulse *pulse, std::size_t collectives, std::size_t sections);
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress &) = delete;
  DeviceProgress &operator=(const DeviceProgress &) = delete;

  /// The mark of the next collective of a step that is called, not replayed. The host is never further ahead than one
  /// step and what the previous step started for it.
  CollectiveMark &ofCalled(std::uint64_t sequence);
  /// The mark of the `index`-th collective of a captured step.
  CollectiveMark &ofCaptured(std::size_t index) { return captured.at(index); }
  /// The host has enqueued this start, or launched it in a graph.
  void given(CollectiveMark &mark, std::uint64_t sequence, int collective);
  /// An event for a section's mark; null beyond the number in a captured step of this program.
  cudaEvent_t sectionMark(bool isCaptured);
  /// Restarts the count of marks, for the captured step.
  void beginCapture();
  /// Prevents event queries, which are not allowed during stream capture.
  std::unique_lock<std::mutex> withoutLooking() { return std::unique_lock(mutex); }

  /// A message to other ranks outside of steps.
  void arrive();
  /// Queries the device, beats if it has made progress, and updates arrivals and the trace. May be called from any
  /// thread.
  void look();
  Pulse &pulse() { return *signs; }

private:
  bool lookAt(CollectiveMark &mark, std::int64_t now);
  bool sectionsProgressed();

  Pulse own{0};
  Pulse *signs;
  std::mutex mutex;
  std::vector<CollectiveMark> called, captured;
  std::vector<cudaEvent_t> calledSections, capturedSections;
  std::size_t nextCalled = 0, nextCaptured = 0;
  std::vector<bool> sectionsSeen; ///< which marks had been passed at the last look
  std::atomic<std::uint64_t> lastGiven{0};
  std::atomic<std::int64_t> exchanges{0};
  std::int64_t notBegun = 0;     ///< in the current look
  std::uint64_t oldestBegun = 0; ///< the oldest that has not ended
};

} // namespace fsdpc::rt

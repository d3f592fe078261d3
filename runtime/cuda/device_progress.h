// How far the device has come, as the host can see it without stopping it: what tells a long step from one that hangs.
//
// The device gets on when a collective begins on its stream or ends there, and at marks that sections leave on compute
// where they start no collective. All of these are events; a step writes nothing else. They are asked only when no rank
// has got on for a while (Watchdog, `synchronize`), so a step that takes less than a second is never looked at.
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
  std::uint64_t begunSequence = 0, endedSequence = 0; ///< of the last start that was seen to have begun, or ended
};

class DeviceProgress {
public:
  /// `collectives`, `sections`: at most so many are in one step. `pulse`: where signs of life and the trace go, which
  /// outlives this object; null: nowhere that others see.
  DeviceProgress(Pulse *pulse, std::size_t collectives, std::size_t sections);
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress &) = delete;
  DeviceProgress &operator=(const DeviceProgress &) = delete;

  /// Of the collective that is started next, called: the host is never further ahead than one step and what the step
  /// before started for it.
  CollectiveMark &ofCalled(std::uint64_t sequence);
  /// Of the `index`-th collective of a captured step.
  CollectiveMark &ofCaptured(std::size_t index) { return captured.at(index); }
  /// The host has given this start to the device, or launched it in a graph.
  void given(CollectiveMark &mark, std::uint64_t sequence, int collective);
  /// A place for a section to leave a mark; null beyond what a captured step of this program has.
  cudaEvent_t sectionMark(bool isCaptured);
  /// The marks of a captured step are counted from here.
  void beginCapture();
  /// While streams capture, nobody may ask for events.
  std::unique_lock<std::mutex> withoutLooking() { return std::unique_lock(mutex); }

  /// A message to other ranks outside of steps.
  void arrive();
  /// Asks the device, beats if it has got on, and brings arrivals and the trace up to date. From any thread.
  void look();
  Pulse &pulse() { return *signs; }

private:
  bool lookAt(CollectiveMark &mark, std::int64_t now);
  bool sectionsGotOn();

  Pulse own{0};
  Pulse *signs;
  std::mutex mutex;
  std::vector<CollectiveMark> called, captured;
  std::vector<cudaEvent_t> calledSections, capturedSections;
  std::size_t nextCalled = 0, nextCaptured = 0;
  std::vector<bool> sectionsSeen; ///< which marks had been passed at the last look
  std::atomic<std::uint64_t> lastGiven{0};
  std::atomic<std::int64_t> exchanges{0};
  std::int64_t notBegun = 0;     ///< of the look that is under way
  std::uint64_t oldestBegun = 0; ///< and has not ended
};

} // namespace fsdpc::rt

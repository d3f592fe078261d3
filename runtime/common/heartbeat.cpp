#include "runtime/common/heartbeat.h"

#include <algorithm>

namespace fsdpc::rt {

const char *nameOf(Phase phase) {
  switch (phase) {
  case Phase::startUp: return "start_up";
  case Phase::data: return "data";
  case Phase::step: return "step";
  case Phase::evaluation: return "evaluation";
  case Phase::saving: return "saving";
  }
  return "";
}

Pulse::Pulse(int rank) : page_(HeartbeatPage::at(own_.bytes)), line_(&page_->of(0)), rank_(rank), worldSize_(rank + 1) {
  static_assert(sizeof(HeartbeatPage) + sizeof(Heartbeat) <= sizeof own_.bytes);
  beat();
}

void Pulse::attach(HeartbeatPage &page, int rank, int worldSize) {
  const auto held = lock();
  moveTo(page.of(rank));
  page_ = &page;
  rank_ = rank;
  worldSize_ = worldSize;
  attached_ = true;
}

void Pulse::detach() {
  const auto held = lock();
  page_ = HeartbeatPage::at(own_.bytes);
  moveTo(page_->of(0));
  worldSize_ = rank_ + 1;
  attached_ = false;
}

void Pulse::enter(Phase phase) {
  line().phase.store(phase, std::memory_order_relaxed);
  beat();
}

void Pulse::beatWhileAllRun() {
  const std::int64_t since = monotonicNanoseconds() - absenceNanoseconds;
  for (int rank = 0; rank < worldSize_; ++rank)
    if (const Heartbeat *line = lineOf(rank); line && line->isSeen() && line->aliveNanoseconds.load() < since)
      return;
  beat();
}

double Pulse::silentSeconds() {
  std::int64_t last = resumedNanoseconds_.load(std::memory_order_relaxed);
  for (int rank = 0; rank < worldSize_; ++rank)
    if (const Heartbeat *line = lineOf(rank))
      last = std::max(last, line->progressNanoseconds.load(std::memory_order_relaxed));
  return static_cast<double>(monotonicNanoseconds() - last) * 1e-9;
}

void Pulse::moveTo(Heartbeat &other) {
  other.step.store(line().step);
  other.phase.store(line().phase);
  other.aliveNanoseconds.store(monotonicNanoseconds());
  other.beat();
  line_.store(&other, std::memory_order_release);
}

} // namespace fsdpc::rt

#include "runtime/common/watchdog.h"

#include "runtime/common/closing_line.h"
#include "runtime/common/thread.h"
#include "runtime/common/trace_file.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>
#include <optional>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr std::chrono::milliseconds interval{100};
/// After this much silence, devices are queried for progress.
constexpr double maxSilentSeconds = 1;

bool leavesTrace(ExitCode code) { return code == ExitCode::timeout || code == ExitCode::disagreement; }

void sleepSeconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// The ranks that are present, according to the heartbeat page.
struct Presence {
  int lowest = -1;   ///< the lowest rank whose watchdog runs
  int reporter = -1; ///< the lowest such rank other than `missing`
  /// The lowest rank that is stopped or has ended. If there is none and all ranks are seen, the one with the least
  /// progress; a rank that is not seen may have made less. -1: none.
  int missing = -1;
  bool missingIsAlive = false;
};

/// Calls `visit(rank, line)` for all visible ranks.
template <class Visit>
void forEachSeen(Pulse &pulse, Visit visit) {
  for (int rank = 0; rank < pulse.worldSize(); ++rank)
    if (const Heartbeat *line = pulse.lineOf(rank); line && line->isSeen())
      visit(rank, *line);
}

Presence presence(Pulse &pulse, double aliveSeconds) {
  const std::int64_t since = monotonicNanoseconds() - static_cast<std::int64_t>(aliveSeconds * 1e9);
  const auto isAlive = [&](const Heartbeat &line) { return line.aliveNanoseconds.load() >= since; };
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  int seen = 0, stopped = -1, behind = -1;
  forEachSeen(pulse, [&](int rank, const Heartbeat &line) {
    ++seen;
    const std::int64_t arrivals = line.arrivals.load();
    most = std::max(most, arrivals);
    if (!isAlive(line) && stopped < 0)
      stopped = rank;
    if (arrivals < least) {
      least = arrivals;
      behind = rank;
    }
  });
  Presence result;
  result.missing = stopped >= 0 ? stopped : seen == pulse.worldSize() && least < most ? behind : -1;
  result.missingIsAlive = stopped < 0;
  forEachSeen(pulse, [&](int rank, const Heartbeat &line) {
    if (isAlive(line) && result.lowest < 0)
      result.lowest = rank;
    if (isAlive(line) && result.reporter < 0 && rank != result.missing)
      result.reporter = rank;
  });
  return result;
}

Failure outsideCollectives(Pulse &pulse, const Presence &found, double seconds) {
  const int subject = found.missing >= 0 ? found.missing : pulse.rank();
  const Heartbeat *line = pulse.lineOf(subject);
  const char *phase = nameOf((line ? *line : pulse.line()).phase.load());
  char text[200];
  const char *form =
      found.missing < 0 ? "no rank has made progress for %g s (rank %d is in phase %s)"
      : found.missingIsAlive
          ? "no rank has made progress for %g s: the others wait for rank %d, which is in phase %s"
          : "no rank has made progress for %g s: the others wait for rank %d, which is stopped or has ended in "
            "phase %s";
  std::snprintf(text, sizeof text, form, seconds, subject, phase);
  Failure failure(ExitCode::timeout, text);
  failure.details = std::string("phase=") + phase;
  if (found.missing >= 0)
    failure.details += " missing=" + std::to_string(found.missing);
  return failure;
}

} // namespace

std::optional<int> missingRank(Pulse &pulse, double seconds) {
  const int missing = presence(pulse, seconds / 2).missing;
  return missing >= 0 && missing != pulse.rank() ? std::optional(missing) : std::nullopt;
}

Diagnosis diagnose(Pulse &pulse, double seconds) {
  const Presence found = presence(pulse, seconds / 2);
  const auto record = pulse.trace().at(pulse.trace().waitingFor());
  Failure failure = record && found.missing < 0               ? stuckFailure(*record, seconds)
                    : record && found.missing != pulse.rank() ? lateFailure(*record, found.missing, seconds)
                                                              : outsideCollectives(pulse, found, seconds);
  return {std::move(failure), found.reporter >= 0 ? found.reporter : pulse.rank()};
}

Watchdog::Watchdog(Pulse &pulse, WatchdogLimits limits, Launcher launcher)
    : pulse(pulse), limits(limits), launcher(launcher), lastLook(monotonicNanoseconds()) {
  thread = startThread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard held(mutex);
    stopping = true;
  }
  wake.notify_one();
  thread.join();
}

void Watchdog::attach(Platform &joined) {
  if (HeartbeatPage *page = joined.heartbeats())
    pulse.attach(*page, joined.rank(), joined.worldSize());
  const auto held = pulse.lock();
  platform = &joined;
}

void Watchdog::detach() {
  pulse.detach();
  const auto held = pulse.lock();
  platform = nullptr;
}

void Watchdog::watch() {
  std::unique_lock held(mutex);
  while (!wake.wait_for(held, interval, [this] { return stopping; }))
    look();
}

void Watchdog::look() {
  if (launcher.isGone())
    std::raise(SIGKILL); // as PR_SET_PDEATHSIG would have done
  const auto held = pulse.lock();
  const std::int64_t now = monotonicNanoseconds();
  if (now - lastLook > absenceNanoseconds)
    pulse.resumed();
  lastLook = now;
  pulse.line().aliveNanoseconds.store(now, std::memory_order_relaxed);
  const std::uint32_t ended = pulse.page().ended();
  const int endedBy = static_cast<int>(ended >> 16) - 1;
  if (ended != 0 && endedBy != pulse.rank())
    end(Failure(static_cast<ExitCode>(ended & 0xFFFF), "rank " + std::to_string(endedBy) + " ended the run"));
  const double limit = limitSeconds();
  if (platform && pulse.silentSeconds() > std::min(maxSilentSeconds, limit / 4))
    platform->lookAtDevice();
  if (ended == 0 && hasPeers() && pulse.silentSeconds() > limit)
    expire(limit);
}

double Watchdog::limitSeconds() const {
  double limit = 0;
  for (int rank = 0; rank < pulse.worldSize(); ++rank)
    if (const Heartbeat *line = pulse.lineOf(rank)) {
      const Phase phase = line->phase.load(std::memory_order_relaxed);
      const bool long_ = phase == Phase::startUp || phase == Phase::saving;
      limit = std::max(limit, long_ ? limits.initSeconds : limits.trainSeconds);
    }
  return limit;
}

void Watchdog::expire(double limit) { end(diagnose(pulse, limit).failure); }

void Watchdog::deferReport(ExitCode code) {
  const Presence found = presence(pulse, 2);
  const int reporter = code == ExitCode::timeout ? found.reporter : found.lowest;
  const Heartbeat *first = pulse.lineOf(0);
  // Ranks on a host without rank 0 leave the report to the host of rank 0.
  if (reporter == pulse.rank() && first && first->isSeen())
    return;
  const std::int64_t until = monotonicNanoseconds() + static_cast<std::int64_t>(limits.graceSeconds * 1e9);
  while (pulse.page().ended() == 0 && monotonicNanoseconds() < until)
    sleepSeconds(0.05);
}

void Watchdog::end(const Failure &failure) {
  // The main thread and the watchdog of this process may find the same failure. One report is enough.
  while (ending.exchange(true))
    ::pause();
  const int code = static_cast<int>(failure.code);
  // A failure that every rank finds is reported by the lowest rank.
  if (leavesTrace(failure.code))
    deferReport(failure.code);
  const bool first = pulse.page().claimEnd(pulse.rank(), code);
  leaveIfEndingHangs(first ? code : static_cast<int>(pulse.page().ended() & 0xFFFF));
  if (leavesTrace(failure.code))
    writeTraceFile(pulse, &failure);
  pulse.line().traced.store(true);
  if (first) {
    if (leavesTrace(failure.code))
      awaitTraces();
    printFailure(failure, pulse.rank(), pulse.line().step.load());
    if (platform)
      platform->abort(code);
    _exit(code);
  }
  for (;;)
    ::pause();
}

/// Ranks that still run write their traces within one or two intervals. The others never will.
void Watchdog::awaitTraces() {
  const std::int64_t now = monotonicNanoseconds(), running = now - absenceNanoseconds, until = now + 1'000'000'000;
  const auto missing = [&] {
    for (int rank = 0; rank < pulse.worldSize(); ++rank)
      if (const Heartbeat *line = pulse.lineOf(rank); line && line->aliveNanoseconds.load() >= running && !line->traced)
        return true;
    return false;
  };
  while (missing() && monotonicNanoseconds() < until)
    sleepSeconds(0.02);
}

void Watchdog::leaveIfEndingHangs(int exitCode) {
  const double seconds = 2 * limits.graceSeconds;
  try {
    startThread([seconds, exitCode] {
      sleepSeconds(seconds);
      _exit(exitCode);
    }).detach();
  } catch (const Failure &) {
    // The failure was already reported. Only the end of the process may hang.
  }
}

} // namespace fsdpc::rt

// --profile: the last steps of a run as a Chrome trace (chrome://tracing, ui.perfetto.dev, OUT/schedule.html), one file
// per rank, the timeline that the compiler predicted beside the measured one.
//
// Recorded are the program's sections (one unit, one phase) on the compute thread, and the moments of every collective
// (communicator.h): started, begun, done, and from when to when compute stood in its `wait`. All records are made at
// the start; a step writes into them and allocates nothing. Without --profile `Context::profile` is null, and each hook
// is one branch.
#pragma once

#include "runtime/common/program.h"

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::rt {

using ProfileClock = std::chrono::steady_clock;

struct SectionRecord {
  int section = 0; ///< index of ProgramInfo::sections
  ProfileClock::time_point begin, end;
};

/// `begun` and `done` are written by the thread that runs the collective, the rest by the compute thread. A moment that
/// never came is the clock's epoch.
struct CollectiveRecord {
  int collective = 0; ///< index of programCollectives()
  ProfileClock::time_point started, begun, done, waitEntered, waitLeft;
};

/// "layers.0 forward"; outside units the phase, or the function where there is none.
std::string nameOf(const SectionInfo &section);

class Profile {
public:
  /// Steps that are kept: the last ones of the run.
  static constexpr std::size_t keptSteps = 20;

  /// `base` is the zero of the trace's times: the same moment on every rank.
  Profile(const ProgramInfo &program, std::span<const CollectiveInfo> collectives, ProfileClock::time_point base);

  void beginStep(std::int64_t step);
  void endStep();

  /// Null outside a step, and when a step does more than the program's tables say.
  SectionRecord *beginSection(int section);
  CollectiveRecord *startCollective(int collective);

  /// Where sections only enqueue: what the device did in the step, all of it, before `endStep`.
  void take(std::span<const SectionRecord> sections, std::span<const CollectiveRecord> done);

  /// The trace of this rank as JSON. Call it when nothing is outstanding.
  std::string trace(int rank) const;

private:
  struct Step {
    std::int64_t step = 0; ///< 0: not used yet
    ProfileClock::time_point begin, end;
    std::vector<SectionRecord> sections;
    std::vector<CollectiveRecord> collectives;
    std::size_t sectionCount = 0, collectiveCount = 0;
  };

  const ProgramInfo &program;
  std::span<const CollectiveInfo> collectives;
  ProfileClock::time_point base;
  std::vector<Step> steps; ///< a ring
  Step *current = nullptr;
};

/// Rank 0 writes its trace to `path`, rank r > 0 beside it: F.json and F.rank1.json, F.rank2.json ... Throws
/// Failure{storage}.
void writeProfile(const Profile &profile, const std::string &path, int rank);

} // namespace fsdpc::rt

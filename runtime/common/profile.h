// --profile: the last steps of a run as a Chrome trace (chrome://tracing, ui.perfetto.dev, OUT/schedule.html). One file
// per rank, with the predicted timeline of the compiler next to the measured one.
//
// Records the program's sections (one unit, one phase) on the compute thread, and the times of every collective
// (communicator.h): started, begun, done, and the begin and end of its `wait`. All records are created at start; a step
// writes into them and allocates nothing. Without --profile `Context::profile` is null, and each hook is one branch.
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

/// The thread that runs the collective writes `begun` and `done`, the compute thread writes the rest. A time that was
/// never set is the clock's epoch.
struct CollectiveRecord {
  int collective = 0; ///< index of programCollectives()
  ProfileClock::time_point started, begun, done, waitEntered, waitLeft;
};

/// "layers.0 forward". Outside units the phase or, without a phase, the function.
std::string nameOf(const SectionInfo &section);

class Profile {
public:
  /// The number of steps kept: the last ones of the run.
  static constexpr std::size_t keptSteps = 20;

  /// `base` is time zero of the trace, the same moment on every rank.
  Profile(const ProgramInfo &program, std::span<const CollectiveInfo> collectives, ProfileClock::time_point base);

  void beginStep(std::int64_t step);
  void endStep();

  /// Returns null outside a step, and if a step has more sections or collectives than the program's tables.
  SectionRecord *beginSection(int section);
  CollectiveRecord *startCollective(int collective);

  /// For targets whose sections only enqueue work: stores everything that the device did in the step. Called before
  /// `endStep`.
  void take(std::span<const SectionRecord> sections, std::span<const CollectiveRecord> done);

  /// Returns the trace of this rank as JSON. Call it when no collective is outstanding.
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

/// Writes the trace of a rank: rank 0 to `path`, rank r > 0 to a file next to it: F.json and F.rank1.json, F.rank2.json
/// ... Throws Failure{storage}.
void writeProfile(const Profile &profile, const std::string &path, int rank);

} // namespace fsdpc::rt

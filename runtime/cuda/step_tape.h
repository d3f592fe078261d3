// When the device came to the sections and collectives of a step: events with timing, which are recorded along with the
// step and read when it is over. In a graph each launch records them anew.
//
// A collective's time is that of its stream, from when it could begin to its end: NCCL's wait for ranks that come later
// is part of it, and of what compute stood in `wait`.
#pragma once

#include "runtime/common/platform.h"
#include "runtime/common/profile.h"
#include "runtime/cuda/device.h"

#include <vector>

namespace fsdpc::rt {

class StepTape {
public:
  /// Creates all events it will need, for a step of so many sections and collectives. Without `withSections` it times
  /// collectives only.
  StepTape(const Context &context, std::size_t sections, std::size_t collectives, bool withSections);
  ~StepTape();
  StepTape(const StepTape &) = delete;
  StepTape &operator=(const StepTape &) = delete;

  /// Before a step is called or captured: forgets what was noted.
  void clear();
  /// Before a step is called or launched: moments count from here.
  void begin();

  void beginSection(int section);
  void endSection();
  /// Null beyond what a step of this program does. Behind `begins` the collective is given to its stream.
  CollectiveRecord *begins(int collective, cudaStream_t stream);
  void ends(CollectiveRecord *record, cudaStream_t stream);
  /// Around what makes compute wait. A collective of the step before has a record of its own here.
  CollectiveRecord *waitBegins(int collective);
  void waitEnds(CollectiveRecord *record);

  /// Waits for all that was noted, and fills in the moments. Throws Failure{timeout}.
  void read();
  CommunicationTimes times() const;
  std::span<const SectionRecord> sections() const { return sectionRecords; }
  std::span<const CollectiveRecord> collectives() const { return collectiveRecords; }

private:
  struct Note {
    cudaEvent_t event;
    ProfileClock::time_point *moment;
  };
  void note(cudaStream_t stream, ProfileClock::time_point &moment);
  CollectiveRecord *add(int collective);

  const Context &context;
  bool withSections;
  cudaEvent_t origin = nullptr;
  ProfileClock::time_point originMoment;
  std::vector<cudaEvent_t> events;
  std::vector<Note> notes;
  // Reserved once: notes point into them.
  std::vector<SectionRecord> sectionRecords;
  std::vector<CollectiveRecord> collectiveRecords;
};

} // namespace fsdpc::rt

// Times at which the device reached a step's sections and collectives, from timed events that are recorded along with
// the step and read after it. In a graph each launch records them again.
//
// A collective's time is that on its stream, from when it could begin to its end. It includes NCCL's wait for ranks
// that arrive later. The same holds for the time that compute spent in `wait`.
#pragma once

#include "runtime/common/platform.h"
#include "runtime/common/profile.h"
#include "runtime/cuda/device.h"

#include <vector>

namespace fsdpc::rt {

class StepTape {
public:
  /// Creates all events needed for a step of so many sections and collectives. Without `withSections`, times
  /// collectives only.
  StepTape(const Context &context, std::size_t sections, std::size_t collectives, bool withSections);
  ~StepTape();
  StepTape(const StepTape &) = delete;
  StepTape &operator=(const StepTape &) = delete;

  /// Called before a step is called or captured. Forgets what was noted.
  void clear();
  /// Called before a step is called or launched. Moments count from here.
  void begin();

  void beginSection(int section);
  void endSection();
  /// Null beyond the number in a step of this program. After `begins`, the collective is enqueued on its stream.
  CollectiveRecord *begins(int collective, cudaStream_t stream);
  void ends(CollectiveRecord *record, cudaStream_t stream);
  /// Called around a wait of compute. A collective of the previous step has a separate record here.
  CollectiveRecord *waitBegins(int collective);
  void waitEnds(CollectiveRecord *record);

  /// Waits for all noted events, and fills in the moments. Throws Failure{timeout}.
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

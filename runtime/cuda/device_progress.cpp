#include "runtime/cuda/device_progress.h"

#include "runtime/cuda/device.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

/// Enough to see that compute makes progress; more marks would cost more queries.
constexpr std::size_t maxSectionMarks = 256;

std::vector<CollectiveMark> makeMarks(std::size_t count) {
  std::vector<CollectiveMark> marks(count);
  for (CollectiveMark &mark : marks) {
    mark.begun = makeEvent();
    mark.ended = makeEvent();
  }
  return marks;
}

std::vector<cudaEvent_t> makeEvents(std::size_t count) {
  std::vector<cudaEvent_t> events(count);
  std::generate(events.begin(), events.end(), makeEvent);
  return events;
}

bool isPassed(cudaEvent_t event) { return cudaEventQuery(event) == cudaSuccess; }

TracedCollective traced(std::uint64_t sequence, int collective) {
  TracedCollective record;
  record.sequence = sequence;
  const auto collectives = programCollectives();
  if (collectives.empty())
    return record;
  const CollectiveInfo &info = collectives[static_cast<std::size_t>(collective)];
  record.op = info.op;
  record.unit = info.unit;
  record.name = info.name;
  record.bytes = info.bytes;
  return record;
}

} // namespace

DeviceProgress::DeviceProgress(Pulse *pulse, std::size_t collectives, std::size_t sections)
    : signs(pulse ? pulse : &own), called(makeMarks(2 * collectives)), captured(makeMarks(collectives)),
      calledSections(makeEvents(std::min(sections, maxSectionMarks))),
      capturedSections(makeEvents(std::min(sections, maxSectionMarks))),
      sectionsSeen(calledSections.size() + capturedSections.size(), true), exchanges(signs->line().arrivals.load()) {}

DeviceProgress::~DeviceProgress() {
  for (const std::vector<CollectiveMark> *marks : {&called, &captured})
    for (const CollectiveMark &mark : *marks) {
      cudaEventDestroy(mark.begun);
      cudaEventDestroy(mark.ended);
    }
  for (const std::vector<cudaEvent_t> *events : {&calledSections, &capturedSections})
    for (cudaEvent_t event : *events)
      cudaEventDestroy(event);
}

CollectiveMark &DeviceProgress::ofCalled(std::uint64_t sequence) {
  CollectiveMark &mark = called[sequence % called.size()];
  mark.sequence.store(0);
  return mark;
}

void DeviceProgress::given(CollectiveMark &mark, std::uint64_t sequence, int collective) {
  const std::int64_t now = monotonicNanoseconds();
  signs->trace().start(traced(sequence, collective), now);
  signs->line().sequence.store(sequence, std::memory_order_relaxed);
  signs->line().beat(now);
  lastGiven.store(sequence);
  mark.sequence.store(sequence);
}

cudaEvent_t DeviceProgress::sectionMark(bool isCaptured) {
  std::vector<cudaEvent_t> &events = isCaptured ? capturedSections : calledSections;
  if (isCaptured)
    return nextCaptured < events.size() ? events[nextCaptured++] : nullptr;
  return events.empty() ? nullptr : events[nextCalled++ % events.size()];
}

void DeviceProgress::beginCapture() { nextCaptured = 0; }

void DeviceProgress::arrive() {
  exchanges.fetch_add(1);
  signs->line().arrive();
}

/// Whether the collective has made progress since the last look.
bool DeviceProgress::lookAt(CollectiveMark &mark, std::int64_t now) {
  const std::uint64_t sequence = mark.sequence.load();
  if (sequence == 0 || mark.endedSequence == sequence)
    return false;
  const bool hasBegun = mark.begunSequence == sequence || isPassed(mark.begun);
  const bool hasEnded = hasBegun && isPassed(mark.ended);
  if (mark.sequence.load() != sequence)
    return true; // started again meanwhile
  notBegun += !hasBegun;
  if (hasBegun && !hasEnded && (oldestBegun == 0 || sequence < oldestBegun))
    oldestBegun = sequence;
  const bool begins = hasBegun && mark.begunSequence != sequence;
  if (begins) {
    mark.begunSequence = sequence;
    signs->trace().begin(sequence, now);
  }
  if (hasEnded) {
    mark.endedSequence = sequence;
    signs->trace().finish(sequence, now);
  }
  return begins || hasEnded;
}

bool DeviceProgress::sectionsProgressed() {
  bool gotOn = false;
  for (std::size_t i = 0; i < sectionsSeen.size(); ++i) {
    const bool isCalled = i < calledSections.size();
    const bool passed = isPassed(isCalled ? calledSections[i] : capturedSections[i - calledSections.size()]);
    gotOn = gotOn || passed != sectionsSeen[i];
    sectionsSeen[i] = passed;
  }
  return gotOn;
}

void DeviceProgress::look() {
  const std::unique_lock held(mutex, std::try_to_lock);
  if (!held)
    return; // another thread is looking, or a step is being captured
  const std::int64_t now = monotonicNanoseconds();
  notBegun = 0;
  oldestBegun = 0;
  bool gotOn = sectionsProgressed();
  for (std::vector<CollectiveMark> *marks : {&called, &captured})
    for (CollectiveMark &mark : *marks)
      gotOn = lookAt(mark, now) || gotOn;
  signs->trace().beginWait(oldestBegun);
  Heartbeat &line = signs->line();
  line.arrivals.store(exchanges.load() + static_cast<std::int64_t>(lastGiven.load()) - notBegun);
  if (gotOn)
    line.beat(now);
}

} // namespace fsdpc::rt

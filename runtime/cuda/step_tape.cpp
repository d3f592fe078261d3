#include "runtime/cuda/step_tape.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

constexpr std::size_t eventsPerSection = 2, eventsPerCollective = 5;

cudaEvent_t makeTimedEvent() {
  cudaEvent_t event = nullptr;
  checkCuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate");
  return event;
}

double microsecondsOf(ProfileClock::time_point begin, ProfileClock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

bool isSet(ProfileClock::time_point moment) { return moment != ProfileClock::time_point{}; }

} // namespace

StepTape::StepTape(const Context &context, std::size_t sections, std::size_t collectives, bool withSections)
    : context(context), withSections(withSections), origin(makeTimedEvent()) {
  // Twice, since the wait for a collective of the previous step also takes a record.
  const std::size_t records = 2 * collectives;
  if (withSections)
    sectionRecords.reserve(sections);
  collectiveRecords.reserve(records);
  notes.reserve(eventsPerSection * sectionRecords.capacity() + eventsPerCollective * records);
  while (events.size() < notes.capacity())
    events.push_back(makeTimedEvent());
}

StepTape::~StepTape() {
  cudaEventDestroy(origin);
  for (cudaEvent_t event : events)
    cudaEventDestroy(event);
}

void StepTape::clear() {
  notes.clear();
  sectionRecords.clear();
  collectiveRecords.clear();
}

/// A trace needs moments in the host's clock, so the clock is read when the device is idle.
void StepTape::begin() {
  if (withSections)
    synchronizeCompute(deviceOf(context));
  originMoment = ProfileClock::now();
  checkCuda(cudaEventRecord(origin, deviceOf(context).compute), "cudaEventRecord");
}

void StepTape::note(cudaStream_t stream, ProfileClock::time_point &moment) {
  if (notes.size() == events.size())
    return;
  cudaEvent_t event = events[notes.size()];
  recordForHost(deviceOf(context), event, stream);
  notes.push_back({event, &moment});
}

void StepTape::beginSection(int section) {
  if (!withSections || sectionRecords.size() == sectionRecords.capacity())
    return;
  SectionRecord &record = sectionRecords.emplace_back();
  record.section = section;
  note(deviceOf(context).compute, record.begin);
}

void StepTape::endSection() {
  if (withSections)
    note(deviceOf(context).compute, sectionRecords.back().end);
}

CollectiveRecord *StepTape::add(int collective) {
  if (collectiveRecords.size() == collectiveRecords.capacity())
    return nullptr;
  CollectiveRecord &record = collectiveRecords.emplace_back();
  record.collective = collective;
  return &record;
}

CollectiveRecord *StepTape::begins(int collective, cudaStream_t stream) {
  CollectiveRecord *record = add(collective);
  if (record && withSections)
    note(deviceOf(context).compute, record->started);
  if (record)
    note(stream, record->begun);
  return record;
}

void StepTape::ends(CollectiveRecord *record, cudaStream_t stream) {
  if (record)
    note(stream, record->done);
}

CollectiveRecord *StepTape::waitBegins(int collective) {
  CollectiveRecord *record = nullptr;
  for (CollectiveRecord &candidate : collectiveRecords)
    if (candidate.collective == collective)
      record = &candidate;
  if (!record)
    record = add(collective);
  if (record)
    note(deviceOf(context).compute, record->waitEntered);
  return record;
}

void StepTape::waitEnds(CollectiveRecord *record) {
  if (record)
    note(deviceOf(context).compute, record->waitLeft);
}

void StepTape::read() {
  for (const Note &note : notes) {
    synchronize(deviceOf(context), note.event);
    float milliseconds = 0;
    checkCuda(cudaEventElapsedTime(&milliseconds, origin, note.event), "cudaEventElapsedTime");
    *note.moment = originMoment + std::chrono::duration_cast<ProfileClock::duration>(
                                      std::chrono::duration<double, std::milli>(milliseconds));
  }
  // A channel may begin before compute reaches that point.
  for (CollectiveRecord &record : collectiveRecords)
    record.started = std::min(record.started, record.begun);
}

CommunicationTimes StepTape::times() const {
  CommunicationTimes times;
  times.skewMicroseconds = std::nullopt;
  for (const CollectiveRecord &record : collectiveRecords) {
    if (isSet(record.done))
      times.communicationMicroseconds += microsecondsOf(record.begun, record.done);
    if (isSet(record.waitLeft))
      times.exposedMicroseconds += microsecondsOf(record.waitEntered, record.waitLeft);
  }
  return times;
}

} // namespace fsdpc::rt

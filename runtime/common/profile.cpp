#include "runtime/common/profile.h"

#include "runtime/common/file.h"
#include "runtime/common/json.h"

#include <algorithm>
#include <cstdio>

namespace fsdpc::rt {
namespace {

/// Threads of the trace. The names are those of the lanes of OUT/schedule.html.
constexpr const char *laneNames[] = {"compute", "comm", "reduce"};
constexpr int computeLane = 0;

int laneOf(const CollectiveInfo &collective) { return collective.channel == Channel::reduce ? 2 : 1; }

std::string joined(const char *first, const char *second) {
  return second[0] ? std::string(first) + " " + second : first;
}

/// "all_gather 3 of layers.0"
std::string nameOf(const CollectiveInfo &collective) {
  const std::string name = joined(collective.op, collective.name);
  return collective.unit[0] ? name + " of " + collective.unit : name;
}

/// Formats microseconds with three decimals; the trace format has nanosecond resolution.
std::string microseconds(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

class TraceWriter {
public:
  /// Process ids differ between ranks, so that the files of several ranks open together.
  TraceWriter(int rank, std::span<const CollectiveInfo> collectives)
      : measured(100 * (rank + 1)), predicted(measured + 50) {
    int lanes = 2;
    for (const CollectiveInfo &info : collectives)
      lanes = std::max(lanes, laneOf(info) + 1);
    nameProcess(measured, "measured, rank " + std::to_string(rank), lanes);
    nameProcess(predicted, "predicted", lanes);
  }

  const int measured, predicted;

  void span(int process, int lane, const char *category, const std::string &name, double begin, double duration,
            const JsonObject &arguments) {
    add(JsonObject()
            .add("ph", "X")
            .add("cat", category)
            .add("name", name)
            .add("pid", process)
            .add("tid", threadOf(process, lane))
            .addRaw("ts", microseconds(begin))
            .addRaw("dur", microseconds(std::max(0.0, duration)))
            .addRaw("args", arguments.str()));
  }

  /// Adds an arrow from a time on one lane to the span at a time on another lane.
  void arrow(int process, std::int64_t id, int fromLane, double from, int toLane, double to) {
    for (const bool isEnd : {false, true}) {
      JsonObject event;
      event.add("ph", isEnd ? "f" : "s").add("cat", "start").add("name", "start").add("id", id).add("pid", process);
      event.add("tid", threadOf(process, isEnd ? toLane : fromLane)).addRaw("ts", microseconds(isEnd ? to : from));
      if (isEnd)
        event.add("bp", "e");
      add(event);
    }
  }

  std::string take() { return std::move(events); }

private:
  /// Never 0, and unique over all processes, because Perfetto identifies threads by id alone. The first thread has the
  /// id of its process.
  static int threadOf(int process, int lane) { return process + lane; }

  void add(const JsonObject &event) { events += (events.empty() ? "\n" : ",\n") + event.str(); }

  void name(const char *what, int process, int lane, const std::string &name) {
    add(JsonObject()
            .add("ph", "M")
            .add("name", what)
            .add("pid", process)
            .add("tid", threadOf(process, lane))
            .addRaw("args", JsonObject().add("name", name).str()));
  }

  void nameProcess(int process, const std::string &processName, int lanes) {
    name("process_name", process, 0, processName);
    for (int lane = 0; lane < lanes; ++lane)
      name("thread_name", process, lane, laneNames[lane]);
  }

  std::string events;
};

JsonObject argumentsOf(const SectionInfo &section) {
  JsonObject arguments;
  arguments.add("unit", section.unit).add("phase", section.phase).add("function", section.function);
  arguments.add("node", section.firstNode);
  return arguments;
}

JsonObject argumentsOf(const CollectiveInfo &collective) {
  JsonObject arguments;
  arguments.add("unit", collective.unit).addRaw("id", collective.name).add("bytes", collective.bytes);
  return arguments;
}

/// Writes the step that the compiler predicted, once, at the start of the first measured step.
void writePredicted(TraceWriter &writer, const ProgramInfo &program, std::span<const CollectiveInfo> collectives,
                    double origin) {
  for (const SectionInfo &section : program.sections)
    if (section.predictedBeginMicroseconds >= 0)
      writer.span(writer.predicted, computeLane, "section", nameOf(section),
                  origin + section.predictedBeginMicroseconds, section.predictedMicroseconds, argumentsOf(section));
  for (const CollectiveInfo &collective : collectives)
    if (collective.predictedBeginMicroseconds >= 0)
      writer.span(writer.predicted, laneOf(collective), "collective", nameOf(collective),
                  origin + collective.predictedBeginMicroseconds, collective.predictedMicroseconds,
                  argumentsOf(collective));
}

} // namespace

std::string nameOf(const SectionInfo &section) {
  const char *where = section.phase[0] ? section.phase : section.function;
  return section.unit[0] ? joined(section.unit, where) : where;
}

Profile::Profile(const ProgramInfo &program, std::span<const CollectiveInfo> collectives, ProfileClock::time_point base)
    : program(program), collectives(collectives), base(base), steps(keptSteps) {
  const auto microSteps = static_cast<std::size_t>(std::max(1, program.gradientAccumulationSteps));
  for (Step &step : steps) {
    step.sections.resize(program.sections.size() * microSteps);
    step.collectives.resize(collectives.size() * microSteps);
  }
}

void Profile::beginStep(std::int64_t step) {
  current = &steps[static_cast<std::size_t>(step) % steps.size()];
  current->step = step;
  current->sectionCount = current->collectiveCount = 0;
  current->begin = current->end = ProfileClock::now();
}

void Profile::endStep() {
  current->end = ProfileClock::now();
  current = nullptr;
}

SectionRecord *Profile::beginSection(int section) {
  if (!current || current->sectionCount == current->sections.size())
    return nullptr;
  SectionRecord &record = current->sections[current->sectionCount++];
  record.section = section;
  record.begin = record.end = ProfileClock::now();
  return &record;
}

CollectiveRecord *Profile::startCollective(int collective) {
  if (!current || current->collectiveCount == current->collectives.size())
    return nullptr;
  CollectiveRecord &record = current->collectives[current->collectiveCount++];
  record = {};
  record.collective = collective;
  record.started = ProfileClock::now();
  return &record;
}

void Profile::take(std::span<const SectionRecord> sections, std::span<const CollectiveRecord> done) {
  current->sections.assign(sections.begin(), sections.end());
  current->collectives.assign(done.begin(), done.end());
  current->sectionCount = sections.size();
  current->collectiveCount = done.size();
}

std::string Profile::trace(int rank) const {
  TraceWriter writer(rank, collectives);
  const auto at = [&](ProfileClock::time_point moment) {
    return std::chrono::duration<double, std::micro>(moment - base).count();
  };
  std::vector<const Step *> used;
  for (const Step &step : steps)
    if (step.step > 0)
      used.push_back(&step);
  std::sort(used.begin(), used.end(), [](const Step *a, const Step *b) { return a->step < b->step; });
  std::int64_t arrows = 0;
  for (const Step *step : used) {
    writer.span(writer.measured, computeLane, "step", "step " + std::to_string(step->step), at(step->begin),
                at(step->end) - at(step->begin), JsonObject().add("step", step->step));
    for (const SectionRecord &record : std::span(step->sections).first(step->sectionCount)) {
      const SectionInfo &section = program.sections[static_cast<std::size_t>(record.section)];
      writer.span(writer.measured, computeLane, "section", nameOf(section), at(record.begin),
                  at(record.end) - at(record.begin), argumentsOf(section).add("step", step->step));
    }
    for (const CollectiveRecord &record : std::span(step->collectives).first(step->collectiveCount)) {
      const CollectiveInfo &collective = collectives[static_cast<std::size_t>(record.collective)];
      JsonObject arguments = argumentsOf(collective).add("step", step->step);
      if (record.waitLeft != ProfileClock::time_point{})
        writer.span(writer.measured, computeLane, "wait", "wait " + nameOf(collective), at(record.waitEntered),
                    at(record.waitLeft) - at(record.waitEntered), arguments);
      if (record.done == ProfileClock::time_point{})
        continue;
      writer.span(writer.measured, laneOf(collective), "collective", nameOf(collective), at(record.begun),
                  at(record.done) - at(record.begun), arguments.addRaw("started", microseconds(at(record.started))));
      writer.arrow(writer.measured, arrows++, computeLane, at(record.started), laneOf(collective), at(record.begun));
    }
  }
  writePredicted(writer, program, collectives, used.empty() ? 0 : at(used.front()->begin));
  JsonObject head;
  head.add("schema", "fsdpc.profile/1").add("plan_hash", program.planHash).add("model", program.modelName);
  head.add("rank", rank).add("world_size", program.worldSize).add("displayTimeUnit", "ms");
  head.add("predicted_step_us", program.predictedStepMicroseconds);
  return head.addRaw("traceEvents", "[" + writer.take() + "\n]").str() + "\n";
}

SectionRecord *beginSection(Profile &profile, int section) { return profile.beginSection(section); }

void endSection(SectionRecord *record) {
  if (record)
    record->end = ProfileClock::now();
}

void writeProfile(const Profile &profile, const std::string &path, int rank) {
  const std::string stem = endsWith(path, ".json") ? path.substr(0, path.size() - 5) : path;
  const std::string own = rank == 0 ? path : stem + ".rank" + std::to_string(rank) + ".json";
  const std::string text = profile.trace(rank);
  OutputFile file(own, static_cast<std::int64_t>(text.size()));
  file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
  file.commit();
}

} // namespace fsdpc::rt

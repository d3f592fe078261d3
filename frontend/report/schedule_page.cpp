// Columns of the page's data (schema fsdpc.schedule_page/1). Times are nanoseconds from the start of the step, units,
// functions, phases, lanes and strings are indices (-1: none).
//
//   units, functions, phases, lanes, strings, facts
//   sections   unit, phase, function, begin_ns, end_ns, first_node, last_node (numbers within the function)
//   events     name, lane, unit, begin_ns, end_ns, bytes, wait (1: compute is stalled), id (of a collective), node,
//              reason, before (events whose results it needs)
//   notes      of an event: [term, text or nanoseconds] ...
//   memory     time_ns, bytes (alive from that time on), permanent_bytes, arena_bytes, peak, live, left_out
#include "frontend/report/schedule_page.h"

#include "frontend/report/memory_curve.h"
#include "frontend/report/page_parts.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/read_json.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>

namespace fsdpc {

namespace {

namespace json = llvm::json;

// Above this only sections and collectives are listed. A page of this size still opens immediately.
constexpr size_t maxEvents = 60000;
/// Per event. The latest ones are first.
constexpr size_t maxDependencies = 8;

int64_t nanoseconds(double microseconds) { return std::llround(microseconds * 1000); }

/// The streams that have a lane, in the order of their lanes. The compute stream waits for host work.
constexpr Stream lanes[] = {Stream::compute, Stream::comm, Stream::reduce, Stream::copy};

int64_t laneOf(const Node &start) { return llvm::find(lanes, start.schedule.stream) - std::begin(lanes); }

int64_t idOf(const Node &start) { return startsCollective(start) ? start.get<CollectiveAttributes>().id : -1; }

class ScheduleWriter {
public:
  ScheduleWriter(const Module &module, const Target &target, const Timeline &timeline,
                 const SchedulePageOptions &options)
      : module(module), target(target), timeline(timeline), options(options), times(timeline) {}

  json::Value write();

private:
  struct Columns {
    std::map<std::string, json::Array> columns;
    void add(std::initializer_list<std::pair<const char *, json::Value>> row) {
      for (const auto &[name, value] : row)
        columns[name].push_back(value);
      ++count;
    }
    int64_t count = 0;
    json::Object take(llvm::ArrayRef<const char *> names) {
      json::Object object;
      for (const char *name : names)
        object[name] = std::move(columns[name]);
      return object;
    }
  };

  void writeFunction(const StepTimes::Placed &placed, int64_t index);
  void writeSection(const Node &first, const Node &last, int64_t function, int64_t firstNumber, int64_t lastNumber);
  void writeEvent(const Node &node, int64_t number);
  void writeCompute(const Node &node, TimeSpan span, int64_t number);
  void writeTransfer(const Node &start, int64_t number);
  void addNote(int64_t event, llvm::StringRef term, json::Value value);
  bool isEvent(const Node &node) const;
  void follow(const Node &node);
  llvm::SmallVector<int64_t, 8> dependencies(const Node &node) const;
  int64_t string(const std::string &text);
  json::Object memoryJson() const;
  json::Array unitsJson() const;

  const Module &module;
  const Target &target;
  const Timeline &timeline;
  const SchedulePageOptions &options;
  StepTimes times;
  bool listsCompute = true;
  llvm::StringMap<int64_t> stringIndex;
  json::Array strings, functions;
  json::Object notes;
  Columns sections, events;
  /// The events that produce a node's results: its own event, or those of its operands for nodes without an event.
  llvm::DenseMap<const Node *, llvm::SmallVector<int64_t, 2>> eventsAfter;
  llvm::StringMap<llvm::SmallVector<int64_t, 2>> eventsAfterCarried;
};

int64_t ScheduleWriter::string(const std::string &text) {
  auto [entry, isNew] = stringIndex.try_emplace(text, static_cast<int64_t>(strings.size()));
  if (isNew)
    strings.push_back(json::fixUTF8(text));
  return entry->second;
}

bool ScheduleWriter::isEvent(const Node &node) const {
  if (times.transfers.contains(&node))
    return true;
  auto span = times.compute.find(&node);
  return listsCompute && span != times.compute.end() && span->second.end > span->second.begin;
}

/// The latest events, which decide when a node can begin.
llvm::SmallVector<int64_t, 8> ScheduleWriter::dependencies(const Node &node) const {
  llvm::SmallVector<int64_t, 8> found;
  auto addAll = [&](llvm::ArrayRef<int64_t> events) {
    for (int64_t event : events)
      if (!llvm::is_contained(found, event))
        found.push_back(event);
  };
  for (const Value *operand : node.operands()) {
    if (const Node *definer = operand->definer()) {
      if (auto behind = eventsAfter.find(definer); behind != eventsAfter.end())
        addAll(behind->second);
      continue;
    }
    for (const Argument &argument : node.function()->arguments())
      if (argument.value.get() == operand)
        if (auto carried = eventsAfterCarried.find(argument.name); carried != eventsAfterCarried.end())
          addAll(carried->second);
  }
  llvm::sort(found, std::greater<>());
  found.resize(std::min(found.size(), maxDependencies));
  return found;
}

void ScheduleWriter::follow(const Node &node) {
  if (auto found = dependencies(node); !found.empty())
    eventsAfter[&node].assign(found.begin(), found.end());
}

void ScheduleWriter::writeEvent(const Node &node, int64_t number) {
  if (!isEvent(node))
    return follow(node);
  if (times.transfers.contains(&node))
    writeTransfer(node, number);
  else
    writeCompute(node, times.compute.lookup(&node), number);
  eventsAfter[&node] = {events.count - 1};
}

void ScheduleWriter::writeCompute(const Node &node, TimeSpan span, int64_t number) {
  const TimelineCollective *awaited = times.transferOfWait.lookup(&node);
  const Node &named = awaited ? *awaited->start : node;
  std::string name = infoOf(node).name.str();
  if (awaited)
    name = "wait " + transferText(named);
  else if (node.resultCount() > 0 && !node.result()->name().empty())
    name += " %" + node.result()->name().str();
  const Cost cost = awaited ? Cost{} : infoOf(node).cost(node);
  int64_t unit = awaited ? named.unit : node.section.unit;
  events.add({{"name", string(name)},
              {"lane", 0},
              {"unit", unit},
              {"begin_ns", nanoseconds(span.begin)},
              {"end_ns", nanoseconds(span.end)},
              {"bytes", std::llround(cost.bytesRead + cost.bytesWritten)},
              {"wait", awaited ? 1 : 0},
              {"id", awaited ? idOf(named) : -1},
              {"node", number},
              {"reason", string(awaited ? "compute has come to where the result is needed" : "")},
              {"before", json::Array(dependencies(node))}});
  if (!node.source.empty())
    addNote(events.count - 1, "from node", json::fixUTF8(node.source));
}

void ScheduleWriter::writeTransfer(const Node &start, int64_t number) {
  const TimelineCollective &transfer = *times.transferOfStart.lookup(&start);
  const TimeSpan span = times.transfers.lookup(&start);
  llvm::SmallVector<int64_t, 8> before = dependencies(start);
  if (transfer.blocker)
    if (auto behind = eventsAfter.find(transfer.blocker); behind != eventsAfter.end())
      for (int64_t event : behind->second)
        if (!llvm::is_contained(before, event))
          before.push_back(event);
  events.add({{"name", string(transferText(start))},
              {"lane", laneOf(start)},
              {"unit", start.unit},
              {"begin_ns", nanoseconds(span.begin)},
              {"end_ns", nanoseconds(span.end)},
              {"bytes", std::max(start.operand(0)->type().bytes(), start.result()->type().bytes())},
              {"wait", 0},
              {"id", idOf(start)},
              {"node", number},
              {"reason", string(whyNotEarlier(transfer))},
              {"before", json::Array(before)}});
  const int64_t event = events.count - 1;
  addNote(event, "started", nanoseconds(span.begin - transfer.beginMicroseconds + transfer.issuedMicroseconds));
  addNote(event, "exposed", nanoseconds(transfer.exposedMicroseconds));
  addNote(event, "hidden behind", json::fixUTF8(hiddenBehindText(transfer)));
  if (!startsCollective(start))
    return;
  const auto &attributes = start.get<CollectiveAttributes>();
  addNote(event, "over", json::fixUTF8(attributes.over.name + ", " + std::to_string(attributes.ranks) + " ranks"));
}

void ScheduleWriter::addNote(int64_t event, llvm::StringRef term, json::Value value) {
  if (value.getAsString() == llvm::StringRef())
    return;
  json::Value &list = notes[std::to_string(event)];
  if (!list.getAsArray())
    list = json::Array();
  list.getAsArray()->push_back(json::Array{term, std::move(value)});
}

void ScheduleWriter::writeSection(const Node &first, const Node &last, int64_t function, int64_t firstNumber,
                                  int64_t lastNumber) {
  const TimeSpan span{times.compute.lookup(&first).begin, times.compute.lookup(&last).end};
  sections.add({{"unit", first.section.unit},
                {"phase", static_cast<int64_t>(first.section.phase)},
                {"function", function},
                {"begin_ns", nanoseconds(span.begin)},
                {"end_ns", nanoseconds(span.end)},
                {"first_node", firstNumber},
                {"last_node", lastNumber}});
}

void ScheduleWriter::writeFunction(const StepTimes::Placed &placed, int64_t index) {
  const Function &function = *placed.function->function;
  functions.push_back(json::Object{{"name", nameOf(function.kind())},
                                   {"begin_ns", nanoseconds(placed.span.begin)},
                                   {"end_ns", nanoseconds(placed.span.end)},
                                   {"calls", placed.function->callsPerStep}});
  const Node *first = nullptr;
  int64_t number = 0, firstNumber = 0;
  for (const Node *node : function) {
    if (first && !(node->section == first->section)) {
      writeSection(*first, *node->previous(), index, firstNumber, number - 1);
      first = nullptr;
    }
    if (!first) {
      first = node;
      firstNumber = number;
    }
    writeEvent(*node, number++);
  }
  if (first)
    writeSection(*first, *function.back(), index, firstNumber, number - 1);
  if (const Node *ret = function.returnNode())
    for (unsigned i = 0; i < ret->operandCount(); ++i)
      if (const Node *definer = ret->operand(i)->definer())
        if (auto behind = eventsAfter.find(definer); behind != eventsAfter.end())
          eventsAfterCarried[ret->get<ReturnAttributes>().names[i]] = behind->second;
}

json::Array ScheduleWriter::unitsJson() const {
  json::Array units;
  for (const Unit &unit : module.units)
    units.push_back(json::Object{{"name", json::fixUTF8(unit.name)}, {"strategy", spelled(unit.choices.strategy)}});
  return units;
}

json::Object ScheduleWriter::memoryJson() const {
  const MemoryCurve curve = memoryCurve(module, target, times);
  json::Array time, bytes, live;
  for (const MemoryCurve::Point &point : curve.points) {
    time.push_back(nanoseconds(point.microseconds));
    bytes.push_back(point.bytes);
  }
  for (const MemoryCurve::Live &value : curve.live)
    live.push_back(json::Object{{"name", json::fixUTF8(value.name)},
                                {"class", nameOf(value.memoryClass)},
                                {"unit", value.unit},
                                {"bytes", value.bytes}});
  const Node *peak = curve.peakNode;
  std::string peakName = peak ? infoOf(*peak).name.str() : "";
  if (peak && peak->resultCount() > 0 && !peak->result()->name().empty())
    peakName += " %" + peak->result()->name().str();
  return json::Object{
      {"permanent_bytes", curve.permanentBytes},
      {"arena_bytes", module.facts.arenaBytes(Space::privateSpace) + module.facts.arenaBytes(Space::window)},
      {"time_ns", std::move(time)},
      {"bytes", std::move(bytes)},
      {"peak",
       json::Object{{"time_ns", nanoseconds(curve.peakMicroseconds)},
                    {"bytes", curve.peakBytes},
                    {"node", json::fixUTF8(peakName)},
                    {"unit", peak && peak->section.unit >= 0 ? json::fixUTF8(module.units[peak->section.unit].name)
                                                             : std::string()},
                    {"function", peak ? nameOf(peak->function()->kind()) : ""},
                    {"in_step", curve.peakInStep}}},
      {"live", std::move(live)},
      {"left_out", json::Object{{"count", curve.leftOutCount}, {"bytes", curve.leftOutBytes}}}};
}

json::Value ScheduleWriter::write() {
  size_t count = 0;
  for (const auto &[node, span] : times.compute)
    count += span.end > span.begin;
  listsCompute = count <= maxEvents;
  for (size_t i = 0; i < times.functions.size(); ++i)
    writeFunction(times.functions[i], static_cast<int64_t>(i));
  json::Array phases, facts, laneNames;
  for (Stream stream : lanes)
    laneNames.push_back(nameOf(stream));
  for (Phase phase : {Phase::none, Phase::forward, Phase::recompute, Phase::backward, Phase::update})
    phases.push_back(nameOf(phase));
  for (const auto &[term, value] : options.facts)
    facts.push_back(json::Array{json::fixUTF8(term), json::fixUTF8(value)});
  if (!listsCompute)
    facts.push_back(json::Array{"operations", std::to_string(count) + ", too many to list one by one"});
  return json::Object{
      {"schema", "fsdpc.schedule_page/1"},
      {"title", json::fixUTF8(options.title)},
      {"plan_hash", options.planHash},
      {"facts", std::move(facts)},
      {"lanes", std::move(laneNames)},
      {"phases", std::move(phases)},
      {"functions", std::move(functions)},
      {"strings", std::move(strings)},
      {"units", unitsJson()},
      {"sections", sections.take({"unit", "phase", "function", "begin_ns", "end_ns", "first_node", "last_node"})},
      {"events",
       events.take({"name", "lane", "unit", "begin_ns", "end_ns", "bytes", "wait", "id", "node", "reason", "before"})},
      {"notes", std::move(notes)},
      {"step_ns", nanoseconds(times.microseconds)},
      {"exposed_ns", nanoseconds(timeline.exposedMicroseconds)},
      {"memory", memoryJson()}};
}

} // namespace

std::string scheduleJson(const Module &planned, const Target &target, const Timeline &timeline,
                         const SchedulePageOptions &options) {
  std::string text;
  llvm::raw_string_ostream(text) << ScheduleWriter(planned, target, timeline, options).write();
  return text;
}

llvm::Expected<std::string> schedulePage(const Module &planned, const Target &target, const Timeline &timeline,
                                         const SchedulePageOptions &options) {
  std::string profiles;
  for (const auto &[file, text] : options.profiles) {
    llvm::Expected<json::Value> parsed = readJson(text);
    if (!parsed)
      return llvm::createStringError(file + ": " + toString(parsed.takeError()));
    profiles += (profiles.empty() ? "" : ",") + text;
  }
  return assemblePage(
      options.resources, "schedule_page", {"style.css", "model.js", "view.js", "page.js"},
      {{"PROFILES", "[" + profiles + "]"}, {"SCHEDULE", scheduleJson(planned, target, timeline, options)}});
}

} // namespace fsdpc

#include "passes/cost/timeline.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <array>
#include <deque>

namespace fsdpc {

namespace {

constexpr size_t streamCount = 4;

/// A node that the compute stream passes without stopping: it neither computes nor waits.
bool isPassedBy(const Node &node) { return node.op() != Op::free && node.op() != Op::wait && !computeClassOf(node); }

class FunctionSimulation {
public:
  FunctionSimulation(const Module &module, const Function &function, const CostModel &model)
      : module(module), model(model) {
    timeline.function = &function;
    bound = std::max<int64_t>(module.decisions.maxInflightAllGathers, 1);
  }

  FunctionTimeline run() {
    for (Node *node : *timeline.function) {
      if (infoOf(*node).has(startsCollective))
        issue(*node);
      else if (node->op() == Op::wait)
        wait(*node);
      else
        compute(*node);
    }
    timeline.microseconds = clock;
    for (const TimelineCollective &collective : timeline.collectives) {
      timeline.exposedMicroseconds += collective.exposedMicroseconds;
      timeline.communicationMicroseconds += collective.endMicroseconds - collective.beginMicroseconds;
    }
    return std::move(timeline);
  }

private:
  void compute(const Node &node) {
    if (node.op() == Op::free && isGathered(node.operand(0)))
      --gatheredUnits;
    if (node.op() == Op::write)
      writtenAt[node.get<StateAttributes>().state.name] = readyTime(node);
    double cost = model.nodeMicroseconds(node);
    if (cost <= 0) {
      ready[&node] = node.op() == Op::free ? clock : readyTime(node);
      return;
    }
    timeline.nodes.push_back({&node, clock, clock + cost});
    noteHidden(node, clock, clock + cost);
    clock += cost;
    ready[&node] = clock;
  }

  /// When everything that a node which costs nothing hands on is made.
  double readyTime(const Node &node) {
    double time = 0;
    if (node.op() == Op::read)
      return writtenAt.lookup(node.get<StateAttributes>().state.name);
    for (unsigned i = 0; i < node.operandCount(); ++i)
      time = std::max(time, readyTime(node.operand(i)));
    return time;
  }
  double readyTime(const Value *value) { return value->definer() ? ready.lookup(value->definer()) : 0; }

  void issue(const Node &start) {
    TimelineCollective collective;
    collective.start = &start;
    collective.issuedMicroseconds = clock;
    indexOf[&start] = timeline.collectives.size();
    timeline.collectives.push_back(collective);
    auto &queue = queued[static_cast<size_t>(start.stream)];
    queue.push_back(timeline.collectives.size() - 1);
    if (start.op() == Op::allGatherStart)
      ++gatheredUnits;
    if (model.inlineStreams)
      return;
    begin(timeline.collectives.back());
    queue.clear();
    running.push_back(timeline.collectives.size() - 1);
  }

  /// The earliest moment that all constraints allow, and the one that was satisfied last.
  void begin(TimelineCollective &collective) {
    const Node &start = *collective.start;
    auto stream = static_cast<size_t>(start.stream);
    double operand = readyTime(start.operand(0));
    double token = 0;
    const Node *freed = nullptr;
    for (const std::unique_ptr<Use> &use : start.afterTokens())
      if (double time = readyTime(use->value()); time >= token) {
        token = time;
        freed = use->value()->definer();
      }
    double place = model.hardware.hostRunsAhead ? 0 : clock;
    double issued = std::max({operand, token, place});
    collective.beginMicroseconds = std::max(issued, freeAt[stream]);
    if (freeAt[stream] > issued) {
      collective.reason = StartReason::order;
      collective.blocker = lastOn[stream];
    } else if (issued > 0) {
      explain(collective, issued, operand, token, freed);
    }
    finish(collective, collective.beginMicroseconds);
  }

  void explain(TimelineCollective &collective, double issued, double operand, double token, const Node *freed) {
    const Node *before = model.hardware.hostRunsAhead ? freed : precedingStop(*collective.start);
    bool atFree = before && before->op() == Op::free && isGathered(before->operand(0));
    if (atFree && collective.start->op() == Op::allGatherStart && gatheredUnits >= bound) {
      collective.reason = StartReason::inflightBound;
      collective.blocker = before;
    } else if (operand >= issued && operand >= token) {
      collective.reason = StartReason::dependency;
      collective.blocker = producerOf(collective.start->operand(0));
    } else if (token >= issued) {
      collective.reason = StartReason::memory;
      collective.blocker = freed;
    } else {
      // Nothing but its place in the program: behind the collective that arrived there, or where it is used.
      collective.reason = StartReason::order;
      collective.blocker = before && before->op() == Op::wait ? before->operand(0)->definer() : nullptr;
    }
  }

  /// Where the schedule put the start: right after this free of a gathered unit, this wait or this computing node. Null
  /// at the beginning of the function. Frees of other memory are there for everybody and say nothing.
  static const Node *precedingStop(const Node &start) {
    const Node *node = start.previous();
    while (node && (isPassedBy(*node) || (node->op() == Op::free && !isGathered(node->operand(0)))))
      node = node->previous();
    return node;
  }

  /// The node that computed a value, seen through views and packs: the last of them in program order.
  static const Node *producerOf(const Value *value) {
    const Node *node = value->definer();
    while (node && isPassedBy(*node) && node->operandCount() > 0) {
      const Node *last = nullptr;
      for (unsigned i = 0; i < node->operandCount(); ++i)
        if (const Node *definer = node->operand(i)->definer(); definer && (!last || last->isBefore(definer)))
          last = definer;
      node = last;
    }
    return node;
  }

  void finish(TimelineCollective &collective, double from) {
    auto stream = static_cast<size_t>(collective.start->stream);
    collective.beginMicroseconds = from;
    collective.endMicroseconds = from + model.collectiveMicroseconds(*collective.start);
    freeAt[stream] = collective.endMicroseconds;
    lastOn[stream] = collective.start;
  }

  void wait(const Node &node) {
    const Node *start = node.operand(0)->definer();
    auto found = start ? indexOf.find(start) : indexOf.end();
    if (found == indexOf.end()) {
      ready[&node] = clock;
      return;
    }
    TimelineCollective &collective = timeline.collectives[found->second];
    collective.wait = &node;
    collective.waitMicroseconds = clock;
    if (model.inlineStreams)
      runQueued(static_cast<size_t>(start->stream), found->second);
    else
      collective.exposedMicroseconds = std::max(0.0, collective.endMicroseconds - clock);
    clock = std::max(clock, collective.endMicroseconds);
    ready[&node] = clock;
    llvm::erase(running, found->second);
  }

  /// Inline streams: everything ahead in the queue runs first, on the compute thread.
  void runQueued(size_t stream, size_t last) {
    while (!queued[stream].empty() && queued[stream].front() <= last) {
      TimelineCollective &collective = timeline.collectives[queued[stream].front()];
      queued[stream].pop_front();
      finish(collective, clock);
      collective.reason = StartReason::order; // on this thread, nothing runs before it is waited for
      collective.blocker = timeline.collectives[last].wait;
      collective.exposedMicroseconds = collective.endMicroseconds - collective.beginMicroseconds;
      clock = collective.endMicroseconds;
    }
  }

  void noteHidden(const Node &node, double from, double to) {
    if (node.section.unit < 0)
      return;
    for (size_t index : running) {
      TimelineCollective &collective = timeline.collectives[index];
      bool overlaps = collective.beginMicroseconds < to && from < collective.endMicroseconds;
      if (overlaps && (collective.hiddenBehind.empty() || collective.hiddenBehind.back() != node.section.unit))
        collective.hiddenBehind.push_back(node.section.unit);
    }
  }

  /// Is this the memory of an all_gather's result?
  static bool isGathered(const Value *value) {
    const Node *wait = value->definer();
    if (!wait || wait->op() != Op::wait)
      return false;
    const Node *start = wait->operand(0)->definer();
    return start && start->op() == Op::allGatherStart;
  }

  const Module &module;
  const CostModel &model;
  FunctionTimeline timeline;
  double clock = 0; ///< of the compute stream
  int64_t bound = 1;
  int64_t gatheredUnits = 0; ///< issued and not yet freed at this place of the program
  std::array<double, streamCount> freeAt{};
  std::array<const Node *, streamCount> lastOn{};
  std::array<std::deque<size_t>, streamCount> queued;
  llvm::SmallVector<size_t, 8> running; ///< issued and not waited for
  llvm::DenseMap<const Node *, size_t> indexOf;
  llvm::DenseMap<const Node *, double> ready;
  llvm::StringMap<double> writtenAt; ///< states that this function has written
};

int64_t callsPerStep(const Module &module, FunctionKind kind) {
  switch (kind) {
  case FunctionKind::prologue:
  case FunctionKind::microStep:
  case FunctionKind::update: return 1;
  default: return 0;
  }
}

} // namespace

llvm::StringRef nameOf(StartReason reason) {
  static constexpr llvm::StringLiteral names[] = {"none", "dependency", "memory", "in-flight bound", "order"};
  return names[static_cast<size_t>(reason)];
}

Timeline simulate(const Module &planned, const CostModel &model) {
  assert(planned.stage >= Stage::async && "only from the async stage on do nodes have streams");
  Timeline timeline;
  for (const std::unique_ptr<Function> &function : planned.functions) {
    timeline.functions.push_back(FunctionSimulation(planned, *function, model).run());
    FunctionTimeline &last = timeline.functions.back();
    last.callsPerStep = callsPerStep(planned, function->kind());
    auto calls = static_cast<double>(last.callsPerStep);
    timeline.stepMicroseconds += calls * last.microseconds;
    timeline.exposedMicroseconds += calls * last.exposedMicroseconds;
    timeline.communicationMicroseconds += calls * last.communicationMicroseconds;
  }
  return timeline;
}

} // namespace fsdpc

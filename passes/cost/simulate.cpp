// The problem: how long a step will take, and how much of its communication is exposed. Communication is hidden while
// the compute stream computes, and exposed while the compute stream stands still in a wait for it. That depends on the
// order of all nodes on all streams: a sum of costs does not tell. plan.json shows it, with the reason why each
// collective does not begin earlier; the search among plans (frontend/search) compares it.
//
// The idea. Program order is the order of issue, and all ranks are alike. So a list simulation of one rank is enough.
// It has one clock for the compute stream and one for each other stream, and goes through the nodes in program order.
//   - A node that computes moves the clock of the compute stream on by what it costs (cost_model.h).
//   - A read, view or pack takes no time. It is ready when what it hands on was made.
//   - A start begins at the latest of these moments: its operand is made, its `after` tokens are there, its stream, a
//     FIFO, is free, and, unless the host runs ahead, the compute stream has come to it. The last of them, or the bound
//     on gathered units, is its StartReason.
//   - A wait moves the clock on to the end of the transfer. By as much as the clock jumps, the transfer is exposed.
//   - With inline streams, transfers run in the wait, on the compute thread, and are exposed as a whole.
//   - The functions of a step follow each other on these clocks, once each; totals multiply them by their calls. If one
//     waits for what the step before has started, two steps are simulated and the second counts.
//
// An example, shortened from Timeline.aGatherIsExposedByWhatTheComputeStreamWaits (tests/unit/timeline_test.cpp),
// without its third unit, reads, views and frees. Products take 100 us, collectives 60 us.
//
//     unit @a forward {
//       %fa = all_gather.start %sa over(@shard) ranks(2) id(0) unit(@a) : future<f32[64]> on(comm)     // 0 to 60
//       %a.full = wait %fa                                              : f32[64]         on(compute)  // 0 to 60
//       %fb = all_gather.start %sb over(@shard) ranks(2) id(1) unit(@b) : future<f32[64]> on(comm)     // 60 to 120
//       %y = matmul %x, %wa                                             : f32[4,4]        on(compute)  // 60 to 160
//     }
//     unit @b forward {
//       %b.full = wait %fb                                              : f32[64]         on(compute)  // at 160
//       %z = matmul %y, %wb                                             : f32[4,4]        on(compute)  // 160 to 260
//     }
//
// %fa is exposed for 60 us. %fb is hidden behind @a. Its reason is "order: all_gather 0 of a": its start stands behind
// the wait for %fa. If collectives took 150 us, %fa would be exposed for 150 us and %fb for 50 us.
//
// What is checked. timeline_test compares times and reasons with figures worked out by hand: of FIFOs, inline streams,
// a host that runs ahead, the bound on gathered units, gathers carried between functions and steps. No test compares a
// prediction with a machine. tests/bench/prediction.py does, run by hand, on 2 ranks: exposed communication may be off
// by 20 % of what is measured, or by 2 % of the step if that is more. Nothing predicts a rank that comes late.
//
// What it costs. For n nodes, operands and tokens, of which c nodes compute or wait, and at most f transfers in flight:
// O(n + c f), since noteHidden and wait go through the transfers in flight. schedule_comm keeps them few: a gather
// starts at most max(max_inflight_all_gathers - 1, 1) gathers ahead, and a reduction is waited for when the next one
// starts. Scalar sums and copies come on top. Outside the bound are three walks: precedingStop (quadratic if many
// starts stand in a row), producerOf, up views and packs, and startOf, over arguments.
#include "passes/cost/timeline.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include <array>
#include <deque>

namespace fsdpc {

namespace {

constexpr size_t streamCount = 6;

/// A node that the compute stream passes without stopping: it neither computes nor waits.
bool isPassedBy(const Node &node) { return node.op() != Op::free && node.op() != Op::wait && !computeClassOf(node); }

/// Functions one after the other on one clock: what is outstanding at the end of one goes on in the next.
class ChainSimulation {
public:
  ChainSimulation(const Module &module, const CostModel &model) : module(module), model(model) {
    bound = std::max<int64_t>(module.decisions.maxInflightAllGathers, 1);
  }

  /// Whether a wait was for something that none of the functions so far started: of the step before.
  bool waitedForUnknown = false;

  /// `timeline` must stay where it is as long as this object lives: later functions complete its collectives.
  void run(FunctionTimeline &timeline) {
    current = &timeline;
    timeline.beginMicroseconds = clock;
    for (Node *node : *timeline.function) {
      if (infoOf(*node).has(startsTransfer))
        issue(*node);
      else if (node->op() == Op::wait)
        wait(*node);
      else if (node->op() == Op::ret)
        carry(*node);
      else
        compute(*node);
    }
    timeline.microseconds = clock - timeline.beginMicroseconds;
  }

private:
  struct Entry {
    FunctionTimeline *timeline = nullptr;
    size_t index = 0;
    TimelineCollective &operator*() const { return timeline->collectives[index]; }
    friend bool operator==(const Entry &, const Entry &) = default;
  };

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
    current->nodes.push_back({&node, clock, clock + cost});
    noteHidden(node, clock, clock + cost);
    clock += cost;
    ready[&node] = clock;
  }

  /// Futures that are results are waited for where a later function has an argument of that name.
  void carry(const Node &ret) {
    const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
    for (unsigned i = 0; i < ret.operandCount(); ++i)
      if (ret.operand(i)->type().isFuture())
        carriedStarts[names[i]] = startOf(ret.operand(i));
  }

  /// The node that started what the future stands for; null if no function so far did.
  const Node *startOf(const Value *future) {
    if (future->definer())
      return future->definer();
    for (const Argument &argument : current->function->arguments())
      if (argument.value.get() == future)
        return carriedStarts.lookup(argument.name);
    return nullptr;
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
    Entry entry{current, current->collectives.size()};
    current->collectives.emplace_back();
    TimelineCollective &collective = *entry;
    collective.start = &start;
    collective.issuedMicroseconds = clock;
    entryOf[&start] = entry;
    if (start.op() == Op::allGatherStart)
      ++gatheredUnits;
    running.push_back(entry);
    if (model.inlineStreams)
      queued[static_cast<size_t>(start.schedule.stream)].push_back(entry);
    else
      begin(collective);
  }

  /// The earliest moment that all constraints allow, and the one that was satisfied last.
  void begin(TimelineCollective &collective) {
    const Node &start = *collective.start;
    auto stream = static_cast<size_t>(start.schedule.stream);
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
    } else if (issued > current->beginMicroseconds) {
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
      collective.blocker = before && before->op() == Op::wait ? startOf(before->operand(0)) : nullptr;
    }
  }

  /// Where the schedule put the start: right after this free of a gathered unit, this wait or this computing node. Null
  /// at the beginning of the function. Frees of other memory are there for everybody and say nothing.
  const Node *precedingStop(const Node &start) {
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
    auto stream = static_cast<size_t>(collective.start->schedule.stream);
    collective.beginMicroseconds = from;
    collective.endMicroseconds = from + model.microseconds(*collective.start);
    freeAt[stream] = collective.endMicroseconds;
    lastOn[stream] = collective.start;
  }

  void wait(const Node &node) {
    const Node *start = startOf(node.operand(0));
    auto found = start ? entryOf.find(start) : entryOf.end();
    waitedForUnknown |= found == entryOf.end();
    // Functions may wait again for what an earlier one has waited for; that takes no time.
    if (found != entryOf.end() && !(*found->second).wait) {
      TimelineCollective &collective = *found->second;
      collective.wait = &node;
      collective.waitMicroseconds = clock;
      if (model.inlineStreams)
        runQueued(queued[static_cast<size_t>(start->schedule.stream)], found->second);
      else
        collective.exposedMicroseconds = std::max(0.0, collective.endMicroseconds - clock);
      clock = std::max(clock, collective.endMicroseconds);
      llvm::erase(running, found->second);
    }
    ready[&node] = clock;
  }

  /// Everything ahead in the queue runs first.
  void runQueued(std::deque<Entry> &queue, const Entry &last) {
    while (llvm::is_contained(queue, last)) {
      TimelineCollective &collective = *queue.front();
      queue.pop_front();
      finish(collective, clock);
      collective.reason = StartReason::order; // on this thread, nothing runs before it is waited for
      collective.blocker = (*last).start;
      collective.runsInline = true;
      collective.exposedMicroseconds = collective.endMicroseconds - collective.beginMicroseconds;
      clock = collective.endMicroseconds;
    }
  }

  void noteHidden(const Node &node, double from, double to) {
    if (node.section.unit < 0)
      return;
    for (const Entry &entry : running) {
      TimelineCollective &collective = *entry;
      bool overlaps = collective.beginMicroseconds < to && from < collective.endMicroseconds;
      if (overlaps && (collective.hiddenBehind.empty() || collective.hiddenBehind.back() != node.section.unit))
        collective.hiddenBehind.push_back(node.section.unit);
    }
  }

  /// Is this the memory of an all_gather's result?
  bool isGathered(const Value *value) {
    const Node *wait = value->definer();
    if (!wait || wait->op() != Op::wait)
      return false;
    const Node *start = startOf(wait->operand(0));
    return start && start->op() == Op::allGatherStart;
  }

  const Module &module;
  const CostModel &model;
  FunctionTimeline *current = nullptr;
  double clock = 0; ///< of the compute stream
  int64_t bound = 1;
  int64_t gatheredUnits = 0; ///< issued and not yet freed at this place of the program
  std::array<double, streamCount> freeAt{};
  std::array<const Node *, streamCount> lastOn{};
  std::array<std::deque<Entry>, streamCount> queued; ///< inline streams
  llvm::SmallVector<Entry, 8> running;               ///< issued and not waited for
  llvm::DenseMap<const Node *, Entry> entryOf;
  llvm::DenseMap<const Node *, double> ready;
  llvm::StringMap<double> writtenAt; ///< states that were written
  llvm::StringMap<const Node *> carriedStarts;
};

/// Copies are none of the network's business.
void separateCopies(FunctionTimeline &timeline) {
  std::vector<TimelineCollective> collectives;
  for (TimelineCollective &entry : timeline.collectives)
    (startsCollective(*entry.start) ? collectives : timeline.copies).push_back(std::move(entry));
  timeline.collectives = std::move(collectives);
}

void shiftBack(std::vector<TimelineCollective> &entries, double by) {
  for (TimelineCollective &entry : entries)
    for (double *time :
         {&entry.issuedMicroseconds, &entry.beginMicroseconds, &entry.endMicroseconds, &entry.waitMicroseconds})
      *time -= by;
}

/// From one clock to each function's own.
void rebase(FunctionTimeline &timeline) {
  for (TimelineNode &node : timeline.nodes)
    for (double *time : {&node.beginMicroseconds, &node.endMicroseconds})
      *time -= timeline.beginMicroseconds;
  shiftBack(timeline.collectives, timeline.beginMicroseconds);
  shiftBack(timeline.copies, timeline.beginMicroseconds);
  for (const TimelineCollective &copy : timeline.copies)
    timeline.copyExposedMicroseconds += copy.exposedMicroseconds;
  for (const TimelineCollective &collective : timeline.collectives) {
    timeline.exposedMicroseconds += collective.exposedMicroseconds;
    timeline.communicationMicroseconds += collective.endMicroseconds - collective.beginMicroseconds;
  }
}

/// What the first of two steps started and the second waited for stands for what the second will leave to a third.
void takeWaits(const FunctionTimeline &first, FunctionTimeline &second, bool isInline) {
  for (size_t i = 0; i < first.collectives.size(); ++i) {
    TimelineCollective &collective = second.collectives[i];
    if (collective.wait)
      continue;
    const TimelineCollective &before = first.collectives[i];
    const double later = second.beginMicroseconds - first.beginMicroseconds;
    collective.wait = before.wait;
    collective.waitMicroseconds = before.waitMicroseconds + later;
    if (isInline) { // it has run in the wait
      collective.beginMicroseconds = before.beginMicroseconds + later;
      collective.endMicroseconds = before.endMicroseconds + later;
      collective.reason = before.reason;
      collective.blocker = before.blocker;
    }
    collective.exposedMicroseconds = before.exposedMicroseconds;
    collective.hiddenBehind = before.hiddenBehind;
  }
}

/// One step, or the second of two.
void simulateStep(const Module &module, const CostModel &model, Timeline &timeline) {
  ChainSimulation simulation(module, model);
  std::vector<FunctionTimeline> before = timeline.functions;
  for (FunctionTimeline &function : before)
    if (function.callsPerStep > 0)
      simulation.run(function);
  if (!simulation.waitedForUnknown) {
    timeline.functions = std::move(before);
    return;
  }
  for (FunctionTimeline &function : timeline.functions)
    if (function.callsPerStep > 0)
      simulation.run(function);
  for (size_t i = 0; i < before.size(); ++i)
    takeWaits(before[i], timeline.functions[i], model.inlineStreams);
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
    FunctionTimeline &entry = timeline.functions.emplace_back();
    entry.function = function.get();
    entry.callsPerStep = planned.callsPerStep(function->kind());
  }
  simulateStep(planned, model, timeline);
  for (FunctionTimeline &function : timeline.functions) {
    if (function.callsPerStep == 0)
      ChainSimulation(planned, model).run(function);
    separateCopies(function);
    rebase(function);
    auto calls = static_cast<double>(function.callsPerStep);
    timeline.stepMicroseconds += calls * function.microseconds;
    timeline.exposedMicroseconds += calls * function.exposedMicroseconds;
    timeline.copyExposedMicroseconds += calls * function.copyExposedMicroseconds;
    timeline.communicationMicroseconds += calls * function.communicationMicroseconds;
  }
  return timeline;
}

} // namespace fsdpc

// The problem: predict the duration of a step, and how much of its communication is exposed. Communication is hidden
// while the compute stream computes, and exposed while the compute stream waits for it. That depends on the order of
// all nodes on all streams, so a sum of costs is not enough. plan.json shows the prediction, with the reason why each
// collective does not begin earlier. The search among plans (frontend/search) compares it.
//
// The idea. Program order is the order of issue, and all ranks are alike. So a list simulation of one rank is enough.
// It has one clock for the compute stream and one for each other stream, and visits the nodes in program order.
//   - A node that computes advances the clock of the compute stream by its cost (cost_model.h).
//   - A read, view or pack takes no time. It is ready when its operands are.
//   - A start begins at the latest of these moments: its operand is computed, its `after` tokens are available, its
//     stream, a FIFO, is free, and, unless the host runs ahead, the compute stream has reached it. The last of them, or
//     the bound on gathered units, is its StartReason.
//   - A wait advances the clock to the end of the transfer. The length of this jump is the exposed time.
//   - With inline streams, transfers run in the wait, on the compute thread, and are fully exposed.
//   - The functions of a step follow each other on these clocks, once each; totals multiply them by their calls. If one
//     waits for a transfer that the previous step has started, two steps are simulated and the second counts.
//
// An example, shortened from Timeline.aGatherIsExposedByWhatTheComputeStreamWaits (tests/unit/timeline_test.cpp),
// without its third unit, reads, views and frees. Matmuls take 100 us, collectives 60 us.
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
// %fa is exposed for 60 us. %fb is hidden by the compute of @a. Its reason is "order: all_gather 0 of a": its start
// comes after the wait for %fa. If collectives took 150 us, %fa would be exposed for 150 us and %fb for 50 us.
//
// What is checked. timeline_test compares times and reasons with values worked out by hand: of FIFOs, inline streams, a
// host that runs ahead, the bound on gathered units, and gathers carried between functions and steps. No test compares
// a prediction with a machine. tests/bench/prediction.py does, run by hand, on 2 ranks: exposed communication may be
// off by 20 % of the measured value, or by 2 % of the step if that is more. Late ranks are not predicted.
//
// Cost. For n nodes, operands and tokens, of which c nodes compute or wait, and at most f transfers in flight: O(n + c
// f), since noteHidden and wait scan the transfers in flight. schedule_comm keeps f small: a gather starts at most
// max(max_inflight_all_gathers - 1, 1) gathers ahead, and a reduction is waited for when the next one starts. Scalar
// sums and copies add to f. Three walks are not covered by the bound: precedingStop (quadratic if many starts follow
// each other), producerOf, up views and packs, and startOf, over arguments.
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

/// Simulates consecutive functions on one clock. Transfers in flight at the end of one continue in the next.
class ChainSimulation {
public:
  ChainSimulation(const Module &module, const CostModel &model) : module(module), model(model) {
    bound = std::max<int64_t>(module.decisions.maxInflightAllGathers, 1);
  }

  /// True if a wait was for a transfer that none of the functions so far has started: one of the previous step.
  bool waitedForUnknown = false;

  /// `timeline` must not move while this object lives: later functions complete its collectives.
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

  /// Returned futures are waited for where a later function has an argument of that name.
  void carry(const Node &ret) {
    const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
    for (unsigned i = 0; i < ret.operandCount(); ++i)
      if (ret.operand(i)->type().isFuture())
        carriedStarts[names[i]] = startOf(ret.operand(i));
  }

  /// The node that started the future's transfer; null if no function so far did.
  const Node *startOf(const Value *future) {
    if (future->definer())
      return future->definer();
    for (const Argument &argument : current->function->arguments())
      if (argument.value.get() == future)
        return carriedStarts.lookup(argument.name);
    return nullptr;
  }

  /// The time when all inputs of a node without cost are ready.
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

  /// Computes the earliest moment that all constraints allow, and the constraint that was satisfied last.
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
      // Limited only by its position in the program: after the collective that arrived there, or at its use.
      collective.reason = StartReason::order;
      collective.blocker = before && before->op() == Op::wait ? startOf(before->operand(0)) : nullptr;
    }
  }

  /// The node that precedes the start in the schedule: a free of a gathered unit, a wait or a computing node. Null at
  /// the beginning of the function. Frees of other memory are ignored: they do not determine the position.
  const Node *precedingStop(const Node &start) {
    const Node *node = start.previous();
    while (node && (isPassedBy(*node) || (node->op() == Op::free && !isGathered(node->operand(0)))))
      node = node->previous();
    return node;
  }

  /// The node that computed a value, through views and packs: the last one in program order.
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
    // A function may wait again for a transfer that an earlier one has waited for. That takes no time.
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

  /// All earlier entries in the queue run first.
  void runQueued(std::deque<Entry> &queue, const Entry &last) {
    while (llvm::is_contained(queue, last)) {
      TimelineCollective &collective = *queue.front();
      queue.pop_front();
      finish(collective, clock);
      collective.reason = StartReason::order; // on this thread, it runs only when it is waited for
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

  /// True for the memory of an all_gather's result.
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
  int64_t gatheredUnits = 0; ///< issued and not yet freed at this point of the program
  std::array<double, streamCount> freeAt{};
  std::array<const Node *, streamCount> lastOn{};
  std::array<std::deque<Entry>, streamCount> queued; ///< inline streams
  llvm::SmallVector<Entry, 8> running;               ///< issued and not waited for
  llvm::DenseMap<const Node *, Entry> entryOf;
  llvm::DenseMap<const Node *, double> ready;
  llvm::StringMap<double> writtenAt; ///< states that were written
  llvm::StringMap<const Node *> carriedStarts;
};

/// Copies do not use the network.
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

/// Converts from the common clock to each function's own.
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

/// Waits of the second step for transfers of the first represent waits of a third step for transfers of the second.
void copyWaits(const FunctionTimeline &first, FunctionTimeline &second, bool isInline) {
  for (size_t i = 0; i < first.collectives.size(); ++i) {
    TimelineCollective &collective = second.collectives[i];
    if (collective.wait)
      continue;
    const TimelineCollective &before = first.collectives[i];
    const double later = second.beginMicroseconds - first.beginMicroseconds;
    collective.wait = before.wait;
    collective.waitMicroseconds = before.waitMicroseconds + later;
    if (isInline) { // it ran in the wait
      collective.beginMicroseconds = before.beginMicroseconds + later;
      collective.endMicroseconds = before.endMicroseconds + later;
      collective.reason = before.reason;
      collective.blocker = before.blocker;
    }
    collective.exposedMicroseconds = before.exposedMicroseconds;
    collective.hiddenBehind = before.hiddenBehind;
  }
}

/// Simulates one step, or the second of two.
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
    copyWaits(before[i], timeline.functions[i], model.inlineStreams);
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

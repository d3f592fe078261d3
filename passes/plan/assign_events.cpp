// assign_events: decides which events order the streams of a device, and which waits the device can skip.
//
// The problem. Transfers (collectives, and copies between the device and its host) run on separate streams,
// concurrently with the compute stream. On a target that orders streams by events, only an awaited event delays a
// start. A start that awaits too little sends bytes that are not written yet, or overwrites bytes that are still read.
// A start that awaits too much loses overlap, and every executed wait may stall the compute stream.
//
// The idea. The pass works on memory locations, not on values: memory is reused across functions and steps, and no
// token expresses that. It walks the nodes in the order of the calls and numbers compute nodes and waits; the number is
// a Moment. For each stream it keeps, per range of bytes, the moment of the last access and of the last write. The
// accesses of a transfer count at the moment at which compute has waited for it. A start needs the latest of these
// moments of other streams: the last write to its source, and the last access to its result and its workspace. Compute
// is a FIFO, so an event recorded there covers everything before it. The latest moment that a stream knows of
// determines whether its start needs an event at all. Transfer streams are FIFOs too, so the wait for one start covers
// the starts before it. A wait is `implied` until a compute node, or a start of another stream, accesses what its
// transfer writes or writes what it reads. Then one wait is executed: of the conflicting ones, the wait for the latest
// start, or another executed wait that covers it. Results that the program reads when a function has ended count as
// accessed by the next compute node.
//
// A step is walked three times. The first walk collects the accesses of the previous step. The second assigns events.
// The third finds the waits that only the next step needs. Functions that do not run in every step, and all functions
// if a step has several micro-steps, are walked once, between joins of all streams.
//
// Example: a part of micro_step, shortened, as tests/passes/assign_events.fsir compiles it for cuda.
//
//   %second.p.full.future = all_gather.start %second.p ... : future<f32[128]> on(comm) at(window+0x300)
//   %0 = matmul %x, %first.weight, %first.bias : f32[6,7] on(compute) ... record(1)
//   %second.p.full = wait %second.p.full.future : f32[128] on(compute) at(window+0x300) implied
//   %second.frozen.full.future = all_gather.start %second.frozen ... on(comm) at(window+0x500) await(1)
//   %second.frozen.full = wait %second.frozen.full.future : f32[64] on(compute) at(window+0x500)
//   %3 = matmul %2, %second.weight, %second.bias : f32[6,7] on(compute) ...
//
// The first gather awaits nothing: comm has awaited event 0 of the prologue, and since then compute has neither written
// %second.p nor accessed the bytes at window+0x300. The second gather overwrites %first.weight at window+0x500, so it
// awaits the matmul that reads it. The last matmul reads views of both gathers; the wait for the later start covers the
// earlier one.
//
// What is checked. passes/check/event_order shares only ir/ with this pass. On every compile of the whole pipeline for
// such a target it proves with vector clocks that any two accesses to one byte are ordered if one of them writes.
// verify() checks that events match (V21). That no event is superfluous is tested, not proved:
// tests/mutation/needed_events.cpp drops each event and each executed wait, one at a time, and event_order must object.
// The faults of tests/mutation/mutate_events.cpp must all be rejected; event_oracle.cpp judges them by comparing all
// pairs.
//
// Cost. With t operands and results, the maps take O(t log t): an access erases the ranges it covers and leaves at most
// three. The search for conflicts is linear in t: a node is compared with at most 64 pending waits (maxUnneeded) of
// each transfer stream; at the 65th, the oldest is executed or covered, needed or not. A start is not bounded: it
// visits every range under its source, result and workspace. The worst case is the product of the number of starts and
// the number of ranges in which other streams accessed that memory.
#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <array>
#include <map>

namespace fsdpc {

namespace {

/// A position on the compute stream; later ones are larger, from one function and one step to the next.
using Moment = int64_t;

/// The last access to every byte, as disjoint ranges. For a transfer: the moment when compute has waited for it.
class LastAccessTimes {
public:
  void set(Place place, int64_t bytes, Moment moment) {
    if (bytes == 0)
      return;
    const int64_t begin = place.offsetBytes, end = begin + bytes;
    for (auto entry = firstAfter(place); entry != ranges.end() && startsBefore(entry, place.space, end);) {
      auto [key, range] = *entry;
      entry = ranges.erase(entry);
      if (key.second < begin)
        ranges[key] = {begin, range.moment};
      if (range.end > end)
        ranges[{place.space, end}] = range;
    }
    ranges[{place.space, begin}] = {end, moment};
  }

  /// The maximum of `effective` over the moments at which a byte of the range was accessed; -1 if there is none.
  Moment latest(Place place, int64_t bytes, llvm::function_ref<Moment(Moment)> effective) {
    Moment latest = -1;
    for (auto entry = firstAfter(place);
         entry != ranges.end() && startsBefore(entry, place.space, place.offsetBytes + bytes); ++entry)
      latest = std::max(latest, effective(entry->second.moment));
    return latest;
  }

private:
  struct Range {
    int64_t end;
    Moment moment;
  };
  using Ranges = std::map<std::pair<Space, int64_t>, Range>;

  /// The first range that ends after `place`.
  Ranges::iterator firstAfter(Place place) {
    auto entry = ranges.lower_bound({place.space, place.offsetBytes});
    if (entry != ranges.begin()) {
      auto previous = std::prev(entry);
      if (previous->first.first == place.space && previous->second.end > place.offsetBytes)
        return previous;
    }
    return entry;
  }
  static bool startsBefore(Ranges::iterator entry, Space space, int64_t end) {
    return entry->first.first == space && entry->first.second < end;
  }

  Ranges ranges;
};

constexpr size_t lanes = std::size(transferStreams);

/// The last accesses of each stream. A later access of one stream does not hide an earlier one of another stream.
class TouchesByStream {
public:
  void set(Place place, int64_t bytes, Stream by, Moment moment) { of(by).set(place, bytes, moment); }

  /// The maximum of `effective` over the moments at which a stream other than `stream` accessed a byte of the range; -1
  /// if there is none.
  Moment latest(Place place, int64_t bytes, Stream stream, llvm::function_ref<Moment(Moment)> effective) {
    Moment latest = -1;
    for (Stream other : {Stream::compute, Stream::comm, Stream::reduce, Stream::copy})
      if (other != stream)
        latest = std::max(latest, of(other).latest(place, bytes, effective));
    return latest;
  }

private:
  LastAccessTimes &of(Stream stream) { return stream == Stream::compute ? compute : transfers[laneOf(stream)]; }

  LastAccessTimes compute;
  std::array<LastAccessTimes, lanes> transfers;
};

/// The position of a collective among those of its stream, counted over all of them. In the first step, transfers that
/// later steps find in flight are started at their wait. A transfer that covers another must be after it in both
/// orders.
struct StartOrder {
  int64_t inFirst = 0, inLater = 0;

  bool isAtOrAfter(StartOrder other) const { return inFirst >= other.inFirst && inLater >= other.inLater; }
};

/// The purpose of a walk. In the third, the executed waits are known from the start.
enum class Walk { learn, decide, needWaits };

/// Walks functions in execution order.
class EventAssigner {
public:
  explicit EventAssigner(const Module &module) {
    for (const CarriedOver &over : carriedOverSteps(module))
      carried[over.argument->value.get()] = over.start;
    for (const auto &function : module.functions)
      for (const Argument &argument : function->arguments())
        if (argument.kind == ArgumentKind::carry)
          taken.insert(argument.name);
  }

  /// Tracks what the streams know. In the deciding walk, nodes get their events, and waits that nothing needs so far
  /// are implied.
  void walk(Function &function, Walk kind) {
    if (std::exchange(walkIs, kind) != kind && kind == Walk::needWaits)
      countEvents();
    if (function.kind() == FunctionKind::prologue) // the program has read the results of the step before
      fetched.clear();
    takeFutures(function);
    for (Node *node : function) {
      if (infoOf(*node).has(startsTransfer))
        start(*node);
      else if (node->op() == Op::wait)
        wait(*node);
      else if (node->op() == Op::ret)
        leave(*node);
      else if (!isSilent(*node))
        compute(*node);
    }
  }

  /// All streams are joined here.
  void join() {
    known.fill(static_cast<Moment>(nodes.size()) - 1);
    for (std::vector<Pending> &waits : unneeded)
      waits.clear();
  }

private:
  struct Pending {
    Node *node;
    const Node *start;
    Moment moment;
    StartOrder order;
    bool wasNeeded; ///< in the previous walk
  };
  // The maximum number of waits that a compute node is compared with.
  static constexpr size_t maxUnneeded = 64;

  /// True if the device has nothing to do: the node defines another name of existing memory, or ends it.
  static bool isSilent(const Node &node) {
    return node.op() == Op::free || node.op() == Op::ret || node.op() == Op::read || node.op() == Op::write ||
           infoOf(node).has(aliasesOperand) || isPackInPlace(node);
  }

  void countEvents() {
    eventsBefore = {0};
    for (const Node *node : nodes)
      eventsBefore.push_back(eventsBefore.back() + (node->schedule.records >= 0));
  }

  Moment advance(Node &node) {
    nodes.push_back(&node);
    eventsBefore.push_back(eventsBefore.back() + (node.schedule.records >= 0));
    effective.push_back(static_cast<Moment>(nodes.size()) - 1);
    return effective.back();
  }

  void touch(const Value *value, Stream by, Moment moment, bool writes) {
    if (value->type().isToken())
      return;
    touched.set(value->place, value->type().bytes(), by, moment);
    if (writes)
      written.set(value->place, value->type().bytes(), by, moment);
  }

  void compute(Node &node) {
    needWaits(node);
    const Moment now = advance(node);
    // The program reads them between the functions, where no node records an event.
    for (const Value *value : fetched)
      touch(value, Stream::compute, now, false);
    fetched.clear();
    for (const Value *operand : node.operands())
      touch(operand, Stream::compute, now, false);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      touch(node.result(i), Stream::compute, now, true);
    if (node.schedule.workspaceBytes > 0) {
      touched.set(node.schedule.workspace, node.schedule.workspaceBytes, Stream::compute, now);
      written.set(node.schedule.workspace, node.schedule.workspaceBytes, Stream::compute, now);
    }
    // The host waits for the tapped value before it enqueues anything else.
    if (node.op() == Op::tap)
      known.fill(now);
  }

  static bool overlap(Place a, int64_t aBytes, Place b, int64_t bBytes) {
    return a.space == b.space && a.offsetBytes < b.offsetBytes + bBytes && b.offsetBytes < a.offsetBytes + aBytes;
  }

  /// True if the compute node accesses memory that the collective writes, or writes memory that it reads.
  static bool conflicts(const Node &node, const Node &wait, const Node &start) {
    const Value *source = start.operand(0), *complete = wait.result();
    auto meets = [&](Place place, int64_t bytes, bool writes) {
      return overlap(place, bytes, complete->place, complete->type().bytes()) ||
             overlap(place, bytes, start.schedule.workspace, start.schedule.workspaceBytes) ||
             (writes && overlap(place, bytes, source->place, source->type().bytes()));
    };
    for (const Value *operand : node.operands())
      if (meets(operand->place, operand->type().bytes(), false))
        return true;
    for (unsigned i = 0; i < node.resultCount(); ++i)
      if (!node.result(i)->type().isToken() && meets(node.result(i)->place, node.result(i)->type().bytes(), true))
        return true;
    return meets(node.schedule.workspace, node.schedule.workspaceBytes, true);
  }

  /// Executes the waits that the node needs. A start is ordered after those of its own stream anyway.
  void needWaits(const Node &node) {
    for (size_t stream = 0; stream < unneeded.size(); ++stream) {
      const std::vector<Pending> &waits = unneeded[stream];
      if (infoOf(node).has(startsTransfer) && laneOf(node.schedule.stream) == stream)
        continue;
      for (size_t last = lastNeeded(stream, node); last < waits.size(); last = lastNeeded(stream, node))
        need(stream, last);
    }
  }

  /// Of the waits that the node needs, the one with the latest start: it covers the others too. Past the end if there
  /// is none.
  size_t lastNeeded(size_t lane, const Node &node) const {
    const std::vector<Pending> &waits = unneeded[lane];
    size_t last = waits.size();
    for (size_t i = 0; i < waits.size(); ++i)
      if (conflicts(node, *waits[i].node, *waits[i].start) &&
          (last == waits.size() || waits[i].order.inLater > waits[last].order.inLater))
        last = i;
    return last;
  }

  /// A wait that is executed anyway and covers this one too; else this one.
  size_t coveringOf(size_t lane, size_t i) const {
    const std::vector<Pending> &waits = unneeded[lane];
    for (size_t other = 0; other < waits.size(); ++other)
      if (waits[other].wasNeeded && waits[other].order.isAtOrAfter(waits[i].order) &&
          mayReplace(waits[other], waits[i]))
        i = other;
    return i;
  }

  /// False if an event is recorded from `wait` on and before `other`: what awaits it may rely on `wait`. While events
  /// are assigned, those of starts before `wait` are known: they are for accesses of the previous step, whose waits
  /// count as executed where the previous walk executed them. Starts after `wait` take the covering wait into account.
  bool mayReplace(const Pending &other, const Pending &wait) const {
    return other.moment <= wait.moment ||
           eventsBefore[static_cast<size_t>(other.moment)] == eventsBefore[static_cast<size_t>(wait.moment)];
  }

  /// Executes the wait. From this wait on, and not before, all earlier starts on its stream have ended.
  void need(size_t lane, size_t i) {
    const Pending wait = unneeded[lane][coveringOf(lane, i)];
    wait.node->schedule.implied = false;
    ended[lane] = {std::max(ended[lane].inFirst, wait.order.inFirst),
                   std::max(ended[lane].inLater, wait.order.inLater)};
    llvm::erase_if(unneeded[lane], [&](const Pending &other) {
      if (!wait.order.isAtOrAfter(other.order))
        return false;
      effective[other.moment] = std::max(other.moment, wait.moment);
      return true;
    });
    dropCovered(lane, wait);
  }

  /// Drops waits that were executed after this one for an older start: this one covers them.
  void dropCovered(size_t lane, const Pending &wait) {
    std::vector<Pending> &others = carriedOut[lane];
    auto recent = others.size() > maxUnneeded ? others.end() - maxUnneeded : others.begin();
    others.erase(std::remove_if(recent, others.end(),
                                [&](const Pending &other) {
                                  const bool isCovered =
                                      other.moment > wait.moment && wait.order.isAtOrAfter(other.order);
                                  other.node->schedule.implied |= isCovered;
                                  return isCovered;
                                }),
                 others.end());
    others.push_back(wait);
  }

  /// The start of a future of this function, of an earlier one of the step, or of the previous step.
  const Node *startOf(const Value *future) const {
    return future->definer() ? future->definer() : carried.lookup(future);
  }

  /// Records returned futures for later functions of the step, and results that only the program reads.
  void leave(const Node &ret) {
    for (unsigned i = 0; i < ret.operandCount(); ++i) {
      const std::string &name = ret.get<ReturnAttributes>().names[i];
      if (ret.operand(i)->type().isFuture())
        returned[name] = startOf(ret.operand(i));
      else if (!taken.contains(name) && ret.operand(i)->place.isPlaced())
        fetched.push_back(ret.operand(i));
    }
  }

  void takeFutures(const Function &function) {
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::carry && argument.value->type().isFuture())
        if (const Node *start = returned.lookup(argument.name); start && !carried.contains(argument.value.get()))
          carried[argument.value.get()] = start;
  }

  /// For other transfer streams, the memory of this transfer counts as accessed by compute, from the wait on.
  void wait(Node &node) {
    const Node *start = startOf(node.operand(0));
    assert(start && "a future comes from a start of this step or of the one before");
    const Moment now = advance(node);
    const bool wasNeeded = walkIs == Walk::decide && !node.schedule.implied;
    node.schedule.implied = node.schedule.implied || walkIs != Walk::needWaits;
    const size_t lane = laneOf(start->schedule.stream);
    if (unneeded[lane].size() == maxUnneeded)
      need(lane, 0);
    StartOrder order = starts.lookup(start);
    if (waitsForStepBefore(node, *start))
      order.inFirst = ++startCount;
    if (!ended[lane].isAtOrAfter(order)) {
      unneeded[lane].push_back({&node, start, now, order, wasNeeded});
      if (walkIs == Walk::needWaits && !node.schedule.implied)
        need(lane, unneeded[lane].size() - 1);
    }
    touch(node.result(), start->schedule.stream, now, true);
    touch(start->operand(0), start->schedule.stream, now, false);
    if (start->schedule.workspaceBytes > 0)
      touched.set(start->schedule.workspace, start->schedule.workspaceBytes, start->schedule.stream, now);
  }

  void start(Node &node) {
    needWaits(node);
    ++startCount;
    starts[&node] = {startCount, startCount};
    const Value *source = node.operand(0), *result = node.result();
    auto inEffect = [&](Moment moment) { return effective[moment]; };
    Moment needed = written.latest(source->place, source->type().bytes(), node.schedule.stream, inEffect);
    needed = std::max(needed, touched.latest(result->place, result->type().bytes(), node.schedule.stream, inEffect));
    needed = std::max(
        needed, touched.latest(node.schedule.workspace, node.schedule.workspaceBytes, node.schedule.stream, inEffect));
    Moment &knows = known[laneOf(node.schedule.stream)];
    if (needed <= knows)
      return;
    knows = needed;
    if (walkIs != Walk::decide)
      return;
    int32_t &event = nodes[static_cast<size_t>(needed)]->schedule.records;
    if (event < 0)
      event = eventCount++;
    node.schedule.awaits = event;
  }

  Walk walkIs = Walk::learn;
  TouchesByStream touched, written;
  std::vector<Node *> nodes; ///< by moment
  /// By moment: the number of events recorded before it. In the second walk, of those known when it was passed.
  std::vector<int32_t> eventsBefore = {0};
  std::vector<Moment> effective; ///< by moment of a wait: when the wait that covers it is executed
  std::array<Moment, lanes> known = {-1, -1, -1};
  std::array<std::vector<Pending>, lanes> unneeded;   ///< per stream: waits that nothing has needed so far
  std::array<std::vector<Pending>, lanes> carriedOut; ///< per stream: waits that some node needs
  std::array<StartOrder, lanes> ended = {};           ///< per stream: the last start that compute has waited for
  llvm::DenseMap<const Node *, StartOrder> starts;
  llvm::DenseMap<const Value *, const Node *> carried; ///< arguments for futures
  llvm::StringMap<const Node *> returned;              ///< futures by name
  llvm::StringSet<> taken;                             ///< names of results that some function uses
  std::vector<const Value *> fetched;                  ///< results of the last function that no function uses
  int64_t startCount = 0;
  int32_t eventCount = 0;
};

llvm::Error run(Module &module, const PassContext &context) {
  if (!context.target.ordersByEvents())
    return llvm::Error::success();
  module.facts.isOrderedByEvents = true;
  EventAssigner assigner(module);
  if (module.microSteps > 1) { // functions that follow themselves begin and end joined, like the others
    for (Function *function : inCallOrder(module)) {
      assigner.join();
      assigner.walk(*function, Walk::decide);
      assigner.join();
    }
    return llvm::Error::success();
  }
  for (Walk kind : {Walk::learn, Walk::decide, Walk::needWaits})
    for (FunctionKind part : {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update})
      if (Function *function = module.function(part))
        assigner.walk(*function, kind);
  for (Function *function : inCallOrder(module)) {
    if (runsInEveryStep(function->kind()))
      continue;
    assigner.join();
    assigner.walk(*function, Walk::decide);
    // Functions end joined, whatever was waited for.
    assigner.join();
  }
  return llvm::Error::success();
}

} // namespace

const Pass assignEvents = {"assign_events", Stage::planned, Stage::planned, false, run};

} // namespace fsdpc

#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseMap.h"
#include <array>
#include <map>

namespace fsdpc {

namespace {

/// A position on the compute stream; later ones are larger, from one function and one step to the next.
using Moment = int64_t;

/// Who touched memory last: compute, or a collective that compute has waited for at that moment.
struct Touch {
  Moment moment = -1;
  Stream by = Stream::compute;
};

/// The last touch of every byte, as disjoint ranges.
class LastTouches {
public:
  void set(Place place, int64_t bytes, Touch touch) {
    if (bytes == 0)
      return;
    const int64_t begin = place.offsetBytes, end = begin + bytes;
    for (auto entry = firstBehind(place); entry != ranges.end() && startsBefore(entry, place.space, end);) {
      auto [key, range] = *entry;
      entry = ranges.erase(entry);
      if (key.second < begin)
        ranges[key] = {begin, range.touch};
      if (range.end > end)
        ranges[{place.space, end}] = range;
    }
    ranges[{place.space, begin}] = {end, touch};
  }

  /// The latest moment at which someone else than `stream` touched a byte of it; -1: nobody has.
  Moment latest(Place place, int64_t bytes, Stream stream) {
    Moment latest = -1;
    for (auto entry = firstBehind(place);
         entry != ranges.end() && startsBefore(entry, place.space, place.offsetBytes + bytes); ++entry)
      if (entry->second.touch.by != stream)
        latest = std::max(latest, entry->second.touch.moment);
    return latest;
  }

private:
  struct Range {
    int64_t end;
    Touch touch;
  };
  using Ranges = std::map<std::pair<Space, int64_t>, Range>;

  /// The first range that ends behind the place.
  Ranges::iterator firstBehind(Place place) {
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

/// Walks functions in the order in which they run.
class EventAssigner {
public:
  /// What the streams know grows as the walk goes; `decides`: and nodes get their events.
  void walk(Function &function, bool decides) {
    for (Node *node : function) {
      if (infoOf(*node).has(startsTransfer))
        start(*node, decides);
      else if (node->op() == Op::wait)
        wait(*node);
      else if (!isSilent(*node))
        compute(*node);
    }
  }

  /// All streams are joined here.
  void join() {
    known.fill(static_cast<Moment>(nodes.size()) - 1);
    for (std::vector<Node *> &waits : unneeded)
      waits.clear();
  }

  /// The host may read whatever the functions so far have computed.
  void showHost() {
    for (size_t lane = 0; lane < unneeded.size(); ++lane)
      while (!unneeded[lane].empty())
        need(lane, latestOf(lane));
  }

private:
  // Every compute node is compared with so many waits at most.
  static constexpr size_t mostUnneeded = 64;

  /// Another name of memory that is there already, or an end of it: the device has nothing to do.
  static bool isSilent(const Node &node) {
    return node.op() == Op::free || node.op() == Op::ret || node.op() == Op::read || node.op() == Op::write ||
           infoOf(node).has(aliasesOperand);
  }

  Moment advance(Node &node) {
    nodes.push_back(&node);
    return static_cast<Moment>(nodes.size()) - 1;
  }

  void touch(const Value *value, Touch touch, bool writes) {
    if (value->type().isToken())
      return;
    touched.set(value->place, value->type().bytes(), touch);
    if (writes)
      written.set(value->place, value->type().bytes(), touch);
  }

  void compute(Node &node) {
    needWaits(node);
    const Touch now{advance(node), Stream::compute};
    for (const Value *operand : node.operands())
      touch(operand, now, false);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      touch(node.result(i), now, true);
    if (node.workspaceBytes > 0) {
      touched.set(node.workspace, node.workspaceBytes, now);
      written.set(node.workspace, node.workspaceBytes, now);
    }
    // The host waits for what it is handed.
    if (node.op() == Op::tap)
      join();
  }

  static bool overlap(Place a, int64_t aBytes, Place b, int64_t bBytes) {
    return a.space == b.space && a.offsetBytes < b.offsetBytes + bBytes && b.offsetBytes < a.offsetBytes + aBytes;
  }

  /// Does the compute node touch what the collective writes, or write what it reads?
  static bool conflicts(const Node &node, const Node &wait) {
    const Node *start = wait.operand(0)->definer();
    auto meets = [&](Place place, int64_t bytes, bool writes) {
      return overlap(place, bytes, wait.result()->place, wait.result()->type().bytes()) ||
             (start && overlap(place, bytes, start->workspace, start->workspaceBytes)) ||
             (start && writes && overlap(place, bytes, start->operand(0)->place, start->operand(0)->type().bytes()));
    };
    for (const Value *operand : node.operands())
      if (meets(operand->place, operand->type().bytes(), false))
        return true;
    for (unsigned i = 0; i < node.resultCount(); ++i)
      if (!node.result(i)->type().isToken() && meets(node.result(i)->place, node.result(i)->type().bytes(), true))
        return true;
    return meets(node.workspace, node.workspaceBytes, true);
  }

  /// Waits that the node cannot do without; a start is behind those of its own stream anyway.
  void needWaits(const Node &node) {
    for (size_t stream = 0; stream < unneeded.size(); ++stream) {
      std::vector<Node *> &waits = unneeded[stream];
      if (infoOf(node).has(startsTransfer) && laneOf(node.stream) == stream)
        continue;
      for (size_t i = waits.size(); i-- > 0;)
        if (conflicts(node, *waits[i])) {
          need(stream, i);
          i = waits.size();
        }
    }
  }

  /// It is carried out, and with it all that were started before on its stream have ended.
  void need(size_t lane, size_t i) {
    Node *wait = unneeded[lane][i];
    wait->implied = false;
    ended[lane] = std::max(ended[lane], startedAt(*wait));
    llvm::erase_if(unneeded[lane], [&](const Node *other) { return startedAt(*other) <= ended[lane]; });
  }

  /// The wait that says most.
  size_t latestOf(size_t lane) const {
    size_t latest = 0;
    for (size_t i = 1; i < unneeded[lane].size(); ++i)
      if (startedAt(*unneeded[lane][i]) > startedAt(*unneeded[lane][latest]))
        latest = i;
    return latest;
  }

  /// When its collective was started, counted over all of them; what the step before left is older than all.
  int64_t startedAt(const Node &wait) const { return starts.lookup(wait.operand(0)->definer()); }

  /// For another stream of collectives, the memory of this one is as compute has seen it: from the wait on.
  void wait(Node &node) {
    const Node *start = node.operand(0)->definer();
    const Touch now{advance(node), start ? start->stream : Stream::comm};
    node.implied = true;
    const size_t lane = laneOf(now.by);
    if (unneeded[lane].size() == mostUnneeded)
      need(lane, 0);
    if (!start || startedAt(node) > ended[lane])
      unneeded[lane].push_back(&node);
    touch(node.result(), now, true);
    if (!start)
      return;
    touch(start->operand(0), now, false);
    if (start->workspaceBytes > 0)
      touched.set(start->workspace, start->workspaceBytes, now);
  }

  void start(Node &node, bool decides) {
    needWaits(node);
    starts[&node] = ++startCount;
    const Value *source = node.operand(0), *result = node.result();
    Moment needed = written.latest(source->place, source->type().bytes(), node.stream);
    needed = std::max(needed, touched.latest(result->place, result->type().bytes(), node.stream));
    needed = std::max(needed, touched.latest(node.workspace, node.workspaceBytes, node.stream));
    Moment &knows = known[laneOf(node.stream)];
    if (needed <= knows)
      return;
    knows = needed;
    if (!decides)
      return;
    int32_t &event = nodes[static_cast<size_t>(needed)]->records;
    if (event < 0)
      event = eventCount++;
    node.awaits = event;
  }

  LastTouches touched, written;
  std::vector<Node *> nodes; ///< by moment
  static constexpr size_t lanes = std::size(transferStreams);
  std::array<Moment, lanes> known = {-1, -1, -1};
  std::array<std::vector<Node *>, lanes> unneeded; ///< per stream: waits so far that nothing has needed
  std::array<int64_t, lanes> ended = {};           ///< per stream: the last start that compute has waited for
  llvm::DenseMap<const Node *, int64_t> starts;
  int64_t startCount = 0;
  int32_t eventCount = 0;
};

llvm::Error run(Module &module, const PassContext &context) {
  if (!context.target.ordersByEvents())
    return llvm::Error::success();
  EventAssigner assigner;
  if (module.microSteps > 1) { // functions that follow themselves begin and end joined, as the others do
    for (Function *function : inCallOrder(module)) {
      assigner.join();
      assigner.walk(*function, true);
      assigner.join();
    }
    return llvm::Error::success();
  }
  // What a step has to wait for of the one before shows in the second.
  for (bool decides : {false, true})
    for (FunctionKind kind : {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update})
      if (Function *function = module.function(kind)) {
        assigner.walk(*function, decides);
        if (kind != FunctionKind::prologue)
          assigner.showHost();
      }
  for (Function *function : inCallOrder(module)) {
    if (runsInEveryStep(function->kind()))
      continue;
    assigner.join();
    assigner.walk(*function, true);
    // They end joined, whatever was waited for.
    assigner.join();
  }
  return llvm::Error::success();
}

} // namespace

const Pass assignEvents = {"assign_events", Stage::planned, Stage::planned, false, run};

} // namespace fsdpc

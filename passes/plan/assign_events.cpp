#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
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
      if (infoOf(*node).has(startsCollective))
        start(*node, decides);
      else if (node->op() == Op::wait)
        wait(*node);
      else if (!isSilent(*node))
        compute(*node);
    }
  }

  /// All streams are joined here.
  void join() { known.fill(static_cast<Moment>(nodes.size()) - 1); }

private:
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
    const Touch now{advance(node), Stream::compute};
    for (const Value *operand : node.operands())
      touch(operand, now, false);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      touch(node.result(i), now, true);
    if (node.workspaceBytes > 0) {
      touched.set(node.workspace, node.workspaceBytes, now);
      written.set(node.workspace, node.workspaceBytes, now);
    }
  }

  /// For another stream of collectives, the memory of this one is as compute has seen it: from the wait on.
  void wait(Node &node) {
    const Node *start = node.operand(0)->definer();
    const Touch now{advance(node), start ? start->stream : Stream::comm};
    touch(node.result(), now, true);
    if (!start)
      return;
    touch(start->operand(0), now, false);
    if (start->workspaceBytes > 0)
      touched.set(start->workspace, start->workspaceBytes, now);
  }

  void start(Node &node, bool decides) {
    const Value *source = node.operand(0), *result = node.result();
    Moment needed = written.latest(source->place, source->type().bytes(), node.stream);
    needed = std::max(needed, touched.latest(result->place, result->type().bytes(), node.stream));
    needed = std::max(needed, touched.latest(node.workspace, node.workspaceBytes, node.stream));
    Moment &knows = known[node.stream == Stream::reduce];
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
  std::array<Moment, 2> known = {-1, -1};
  int32_t eventCount = 0;
};

llvm::Error run(Module &module, const PassContext &context) {
  if (!context.target.ordersByEvents())
    return llvm::Error::success();
  EventAssigner assigner;
  // What a step has to wait for of the one before shows in the second.
  for (bool decides : {false, true})
    for (FunctionKind kind : {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update})
      if (Function *function = module.function(kind))
        assigner.walk(*function, decides);
  for (Function *function : inCallOrder(module)) {
    if (runsInEveryStep(function->kind()))
      continue;
    assigner.join();
    assigner.walk(*function, true);
  }
  return llvm::Error::success();
}

} // namespace

const Pass assignEvents = {"assign_events", Stage::planned, Stage::planned, false, run};

} // namespace fsdpc

#include "tests/mutation/planned_machine.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "tests/mutation/collective_results.h"
#include "tests/mutation/happens_before.h"
#include "tests/mutation/planned_rank.h"
#include <array>
#include <map>

namespace fsdpc::mutation {

namespace {

constexpr size_t laneCount = 4;
/// The lane of a start, which a mutant may have on any stream.
size_t laneOf(const Node &node) {
  if (!infoOf(node).has(startsTransfer))
    return 0;
  return node.schedule.stream == Stream::reduce ? 2 : node.schedule.stream == Stream::copy ? 3 : 1;
}

/// One call of a function by every rank.
struct Call {
  const Function *function;
  int step;
  int batch; ///< index of the inputs, one per micro-step
};

struct Collective {
  const Node *start = nullptr;
  size_t call = 0;
};

/// A node in one call of a run, given by the call's index.
using Event = std::pair<size_t, const Node *>;

/// A lane of one rank.
struct Lane {
  std::deque<Collective> issued; ///< not yet done; empty for compute
  std::vector<int64_t> unread;   ///< members that the collective in progress has not read
  std::map<int64_t, Bytes> read; ///< member -> operand
  bool hasBegun = false;
  size_t call = 0;            ///< compute: the current call
  const Node *next = nullptr; ///< compute: the next node
};

class Machine {
public:
  Machine(const Module &module, uint64_t seed, Results results)
      : module(module), results(results), carriedOver(carriedOverSteps(module)), random(seed),
        order(module.worldSize() * laneCount, module.worldSize() * std::size(allSpaces)) {
    addCalls();
    for (int64_t i = 0; i < module.worldSize(); ++i)
      ranks.emplace_back(module, i, random, results);
    entered.resize(ranks.size());
    lanes.resize(ranks.size());
    priorities.resize(ranks.size() * laneCount);
    done.resize(ranks.size());
    for (const CarriedOver &over : carriedOver)
      initializeCarriedGather(over);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      enter(rank, 0);
  }

  bool hasRace() const { return order.hasRace(); }

  std::optional<Outcome> run() {
    shuffle();
    for (;;) {
      if (random.below(8) == 0)
        shuffle();
      bool moved = false;
      for (size_t actor : turns) {
        moved = advance(actor / laneCount, actor % laneCount);
        if (moved)
          break;
      }
      if (!moved)
        break;
    }
    for (const auto &rankLanes : lanes)
      if (rankLanes[0].next || llvm::any_of(rankLanes, [](const Lane &lane) { return !lane.issued.empty(); }))
        return std::nullopt;
    for (Rank &rank : ranks)
      rank.recordStates(outcome);
    return std::move(outcome);
  }

private:
  using Kind = FunctionKind;
  void addCalls() {
    addCalls(Kind::start, 0);
    for (int step = 0; step < 2; ++step)
      for (Kind kind : {Kind::prologue, Kind::microStep, Kind::tapGradients, Kind::update})
        if (kind != Kind::tapGradients || step == 0)
          addCalls(kind, step);
    addCalls(Kind::evalStep, 2);
    addCalls(Kind::predict, 2);
    addCalls(Kind::exportWeights, 3);
    addCalls(Kind::exportAverages, 3);
  }
  void addCalls(Kind kind, int step) {
    const Function *function = module.function(kind);
    const int microSteps = static_cast<int>(module.microSteps);
    for (int i = 0; function && i < (runsInEveryMicroStep(kind) ? microSteps : 1); ++i)
      calls.push_back({function, step, step * microSteps + i});
  }

  const Node *leftBeforeFirst(llvm::StringRef name) const {
    for (const CarriedOver &over : carriedOver)
      if (over.argument->name == name)
        return over.start;
    return nullptr;
  }

  /// For the first step, computes the carried gather from the states. Later steps get it from the previous step.
  void initializeCarriedGather(const CarriedOver &over) {
    const MeshAxis &axis = axisOf(*over.start);
    for (int64_t rank = 0; rank < module.worldSize(); ++rank) {
      uint8_t *to = ranks[rank].at(over.argument->value->place);
      const State &state = *module.state(over.state());
      for (int64_t member = 0; member < axis.size; ++member)
        to = std::copy_n(ranks[axis.rankOf(rank, member)].at(state.place), state.type.bytes(), to);
      finished[{rank, {beforeFirst, over.start}}] = order.clockOf(actorOf(rank, 0));
    }
  }

  void shuffle() {
    turns.clear();
    for (size_t i = 0; i < priorities.size(); ++i)
      turns.push_back(i);
    for (size_t i = turns.size(); i > 1; --i)
      std::swap(turns[i - 1], turns[random.below(i)]);
  }

  void enter(size_t rank, size_t call) {
    Lane &compute = lanes[rank][0];
    compute.call = call;
    compute.next = call < calls.size() ? calls[call].function->front() : nullptr;
    if (!compute.next)
      return;
    order.begin(actorOf(rank, 0));
    bool isNewStep = call == 0 || calls[call - 1].step != calls[call].step;
    if (isNewStep)
      for (const Call &other : calls)
        if (other.step == calls[call].step)
          fillInputs(rank, *other.function, other.step, calls[call].batch);
    if (module.microSteps > 1)
      fillInputs(rank, *calls[call].function, calls[call].step, calls[call].batch);
    entered[rank].push_back(order.end());
    for (Node *node : *calls[call].function)
      if (infoOf(*node).has(startsTransfer))
        lanes[rank][laneOf(*node)].issued.push_back({node, call});
  }

  void fillInputs(size_t rank, const Function &function, int step, int batch) {
    ranks[rank].fillInputs(function, step, batch);
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::input)
        access(rank, argument.value->place, argument.value->type().bytes(), /*writes=*/true);
  }

  bool advance(size_t rank, size_t lane) { return lane == 0 ? advanceCompute(rank) : advanceComm(rank, lane); }

  bool advanceCompute(size_t rank) {
    Lane &lane = lanes[rank][0];
    if (!lane.next)
      return false;
    const Node &node = *lane.next;
    if (node.op() == Op::wait && !awaitAll(rank, futureOf(lane.call, node.operand(0))))
      return false;
    order.begin(actorOf(rank, 0));
    touch(rank, node);
    if (node.op() == Op::tap)
      outcome[label(rank, lane.call) + " tap " + node.get<TapAttributes>().parameter.name + " from " +
              std::to_string(node.get<TapAttributes>().from)] = ranks[rank].bytesOf(*node.operand(0));
    if (node.op() == Op::ret && !mayLeave(rank, lane.call))
      return false;
    if (node.op() == Op::ret)
      recordResults(rank, lane.call, node);
    if (!infoOf(node).has(startsTransfer))
      ranks[rank].execute(node);
    done[rank][{lane.call, &node}] = order.end();
    lane.next = node.next();
    if (!lane.next)
      enter(rank, lane.call + 1);
    return true;
  }

  /// A function outside of a step begins by waiting for the collectives that the previous step left in flight.
  bool mayLeave(size_t rank, size_t call) {
    bool isLast = call + 1 < calls.size() && calls[call + 1].function->kind() > Kind::update;
    return !isLast || llvm::all_of(carriedOver, [&](const CarriedOver &over) {
      size_t started = call;
      while (started > 0 && calls[started].function != over.start->function())
        --started;
      return calls[started].step != calls[call].step || awaitAll(rank, {started, over.start});
    });
  }

  std::string label(size_t rank, size_t call) const {
    return "step " + std::to_string(calls[call].step) + " rank " + std::to_string(rank) + " " +
           nameOf(calls[call].function->kind()).str();
  }

  void recordResults(size_t rank, size_t call, const Node &ret) {
    for (unsigned i = 0; i < ret.operandCount(); ++i) {
      const std::string &name = ret.get<ReturnAttributes>().names[i];
      bool isTaken = llvm::any_of(calls, [&](const Call &other) { return other.function->argument(name) != nullptr; });
      if (isTaken)
        continue;
      outcome[label(rank, call) + " " + name] = ranks[rank].bytesOf(*ret.operand(i));
      access(rank, ret.operand(i)->place, ret.operand(i)->type().bytes(), /*writes=*/false);
    }
  }

  /// The call and the start of the collective that produces a future, which may be carried.
  Event futureOf(size_t call, const Value *future) const {
    while (!future->definer()) {
      llvm::StringRef name = calls[call].function->arguments()[future->resultIndex()].name;
      for (bool found = false; !found;) {
        if (call == 0)
          return {beforeFirst, leftBeforeFirst(name)};
        const Node *ret = calls[--call].function->returnNode();
        for (unsigned i = 0; i < ret->operandCount() && !found; ++i)
          if (ret->get<ReturnAttributes>().names[i] == name) {
            future = ret->operand(i);
            found = true;
          }
      }
    }
    return {call, future->definer()};
  }

  /// A copy to or from the host has a group of one rank.
  const MeshAxis &axisOf(const Node &start) const {
    static const MeshAxis oneRank;
    return startsCollective(start) ? *module.axis(start.get<CollectiveAttributes>().over.name) : oneRank;
  }

  /// Returns false if some rank of the group is not done.
  bool awaitAll(size_t rank, Event collective) {
    const MeshAxis &axis = axisOf(*collective.second);
    std::vector<const Clock *> ends;
    for (int64_t member = 0; member < axis.size; ++member) {
      auto end = finished.find({axis.rankOf(static_cast<int64_t>(rank), member), collective});
      if (end == finished.end())
        return false;
      ends.push_back(&end->second);
    }
    for (const Clock *end : ends)
      order.await(actorOf(rank, 0), *end);
    return true;
  }

  /// The clock at which the operand was computed, looking through aliases. Null if it has not been.
  const Clock *whenMade(size_t rank, size_t call, const Value *value) const {
    for (;;) {
      const Node *definer = value->definer();
      if (!definer || definer->op() == Op::read)
        return call < entered[rank].size() ? &entered[rank][call] : nullptr;
      if (definer->op() == Op::wait) {
        auto end = finished.find({static_cast<int64_t>(rank), futureOf(call, definer->operand(0))});
        return end == finished.end() ? nullptr : &end->second;
      }
      if (!infoOf(*definer).has(aliasesOperand))
        return whenDone(rank, {call, definer});
      value = definer->operand(0);
    }
  }

  const Clock *whenDone(size_t rank, Event event) const {
    auto end = done[rank].find(event);
    return end == done[rank].end() ? nullptr : &end->second;
  }

  /// Adds the clocks that a collective must follow on one rank. Returns false if one of them is not reached yet.
  bool addPrecedents(size_t rank, const Collective &collective, std::vector<const Clock *> &precedents) const {
    if (lanes[rank][0].call < collective.call)
      return false;
    precedents.push_back(&entered[rank][collective.call]);
    for (const std::unique_ptr<Use> &token : collective.start->afterTokens())
      precedents.push_back(whenDone(rank, {collective.call, token->value()->definer()}));
    precedents.push_back(whenMade(rank, collective.call, collective.start->operand(0)));
    return !llvm::is_contained(precedents, nullptr);
  }

  bool advanceComm(size_t rank, size_t laneIndex) {
    Lane &lane = lanes[rank][laneIndex];
    if (lane.issued.empty())
      return false;
    Collective collective = lane.issued.front();
    const MeshAxis &axis = axisOf(*collective.start);
    if (!lane.hasBegun)
      return begin(rank, laneIndex, collective, axis);
    if (!lane.unread.empty()) {
      size_t which = random.below(lane.unread.size());
      int64_t member = lane.unread[which];
      lane.unread.erase(lane.unread.begin() + static_cast<ptrdiff_t>(which));
      lane.read[member] = ranks[axis.rankOf(static_cast<int64_t>(rank), member)].bytesOf(*collective.start->operand(0));
      return true;
    }
    finish(rank, laneIndex, collective, axis);
    return true;
  }

  /// Begins a collective. All its accesses, from here to its end, belong to one operation.
  bool begin(size_t rank, size_t laneIndex, const Collective &collective, const MeshAxis &axis) {
    std::vector<const Clock *> precedents;
    for (int64_t member = 0; member < axis.size; ++member)
      if (!addPrecedents(axis.rankOf(static_cast<int64_t>(rank), member), collective, precedents))
        return false;
    for (const Clock *precedent : precedents)
      order.await(actorOf(rank, laneIndex), *precedent);
    order.begin(actorOf(rank, laneIndex));
    const Node &start = *collective.start;
    const Value &result = *start.result(), &source = *start.operand(0);
    spoil(rank, result.place, Rank::tensorType(result).bytes());
    spoil(rank, start.schedule.workspace, start.schedule.workspaceBytes);
    Lane &lane = lanes[rank][laneIndex];
    for (int64_t member = 0; member < axis.size; ++member) {
      lane.unread.push_back(member);
      access(axis.rankOf(static_cast<int64_t>(rank), member), source.place, source.type().bytes(), /*writes=*/false);
    }
    lane.read.clear();
    return lane.hasBegun = true;
  }

  void spoil(size_t rank, Place place, int64_t bytes) {
    ranks[rank].spoil(place, bytes);
    access(rank, place, bytes, /*writes=*/true);
  }

  static size_t actorOf(size_t rank, size_t lane) { return rank * laneCount + lane; }

  /// Records an access of the operation that began last. Only runs on hashes track the order of accesses.
  void access(size_t rank, Place place, int64_t bytes, bool writes) {
    if (results == Results::hashes && place.isPlaced() && bytes > 0)
      order.access(rank * std::size(allSpaces) + indexOf(place.space), place.offsetBytes, bytes, writes);
  }

  const State &stateOf(const Node &write) const { return *module.state(write.get<StateAttributes>().state.name); }

  /// True if the state's new version is in its memory already.
  bool writesWhereItLies(const Node &node) const {
    return node.op() == Op::write && node.operand(0)->place == stateOf(node).place;
  }

  void touch(size_t rank, const Node &node) {
    if (node.op() == Op::tap)
      access(rank, node.operand(0)->place, node.operand(0)->type().bytes(), /*writes=*/false);
    if (!Rank::touchesMemory(node) || writesWhereItLies(node))
      return;
    for (const Value *operand : node.operands())
      access(rank, operand->place, operand->type().bytes(), /*writes=*/false);
    access(rank, node.schedule.workspace, node.schedule.workspaceBytes, /*writes=*/true);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      access(rank, node.result(i)->place, node.result(i)->type().bytes(), /*writes=*/true);
    if (node.op() == Op::write)
      access(rank, stateOf(node).place, node.operand(0)->type().bytes(), /*writes=*/true);
  }

  void finish(size_t rank, size_t laneIndex, const Collective &collective, const MeshAxis &axis) {
    Lane &lane = lanes[rank][laneIndex];
    const Node &start = *collective.start;
    const Type type = Rank::tensorType(*start.result());
    const bool gathers = start.op() == Op::allGatherStart || !startsCollective(start);
    const int64_t part = start.op() == Op::reduceScatterStart ? axis.memberOf(static_cast<int64_t>(rank)) : 0;
    Bytes result = gathers                      ? gathered(lane.read, type.bytes() / axis.size)
                   : results == Results::hashes ? hashOfSum(lane.read, start, type.bytes(), part)
                                                : sumOf(lane.read, start, type, part);
    llvm::copy(result, ranks[rank].at(start.result()->place));
    ranks[rank].spoil(start.schedule.workspace, start.schedule.workspaceBytes);
    order.begin(actorOf(rank, laneIndex));
    finished[{static_cast<int64_t>(rank), {collective.call, &start}}] = order.end();
    lane.hasBegun = false;
    lane.issued.pop_front();
  }

  static constexpr size_t beforeFirst = ~size_t{0};
  const Module &module;
  const Results results;
  const std::vector<CarriedOver> carriedOver;
  Random random;
  std::vector<Call> calls;
  std::deque<Rank> ranks;
  std::vector<std::array<Lane, laneCount>> lanes;
  std::vector<size_t> priorities, turns;
  HappensBefore order;
  std::vector<std::vector<Clock>> entered;  ///< per rank and call
  std::vector<std::map<Event, Clock>> done; ///< per rank: executed compute nodes
  std::map<std::pair<int64_t, Event>, Clock> finished;
  Outcome outcome;
};

} // namespace

std::optional<Outcome> runPlanned(const Module &module, uint64_t seed) {
  return Machine(module, seed, Results::values).run();
}

std::optional<Meaning> meaningOf(const Module &module) {
  Machine machine(module, 1, Results::hashes);
  std::optional<Outcome> outcome = machine.run();
  if (!outcome)
    return std::nullopt;
  return Meaning{std::move(*outcome), machine.hasRace()};
}

} // namespace fsdpc::mutation

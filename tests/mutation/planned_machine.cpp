#include "tests/mutation/planned_machine.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "tests/mutation/planned_rank.h"
#include <array>
#include <set>

namespace fsdpc::mutation {

namespace {

constexpr size_t laneCount = 4;
/// A mutant may have a start on any stream.
size_t laneOf(const Node &node) {
  if (!infoOf(node).has(startsTransfer))
    return 0;
  return node.stream == Stream::reduce ? 2 : node.stream == Stream::copy ? 3 : 1;
}

/// One call of a function by every rank.
struct Call {
  const Function *function;
  int step;
  int batch; ///< which inputs: those of a micro-step
};

struct Collective {
  const Node *start = nullptr;
  size_t call = 0;
};

/// The place of a node in a run: nodes of one call by the call's index.
using Event = std::pair<size_t, const Node *>;

/// A lane of one rank.
struct Lane {
  std::deque<Collective> issued;      ///< not yet done; none of compute
  std::vector<int64_t> unread;        ///< of the collective that has begun: members to read
  std::map<int64_t, HostTensor> read; ///< member -> operand
  bool hasBegun = false;
  size_t call = 0;            ///< compute: the call that runs
  const Node *next = nullptr; ///< compute
};

class Machine {
public:
  Machine(const Module &module, uint64_t seed) : module(module), carriedOver(carriedOverSteps(module)), random(seed) {
    addCalls();
    for (int64_t i = 0; i < module.worldSize(); ++i)
      ranks.emplace_back(module, i, random);
    lanes.resize(ranks.size());
    priorities.resize(ranks.size() * laneCount);
    done.resize(ranks.size());
    for (const CarriedOver &over : carriedOver)
      arriveBeforeTheFirstStep(over);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      enter(rank, 0);
  }

  std::optional<Outcome> run() {
    shuffle();
    for (;;) {
      if (random.below(8) == 0)
        shuffle();
      bool moved = false;
      for (size_t actor : order) {
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
    for (int step = 0; step < 2; ++step)
      for (Kind kind : {Kind::prologue, Kind::microStep, Kind::tapGradients, Kind::update})
        if (kind != Kind::tapGradients || step == 0)
          addCalls(kind, step);
    addCalls(Kind::evalStep, 2);
    addCalls(Kind::exportWeights, 3);
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

  /// What a step finds of the step before, the first one finds made from the states.
  void arriveBeforeTheFirstStep(const CarriedOver &over) {
    const MeshAxis &axis = axisOf(*over.start);
    for (int64_t rank = 0; rank < module.worldSize(); ++rank) {
      uint8_t *to = ranks[rank].at(over.argument->value->place);
      const State &state = *module.state(over.state());
      for (int64_t member = 0; member < axis.size; ++member)
        to = std::copy_n(ranks[axis.rankOf(rank, member)].at(state.place), state.type.bytes(), to);
      finished.insert({rank, {beforeFirst, over.start}});
    }
  }

  void shuffle() {
    order.clear();
    for (size_t i = 0; i < priorities.size(); ++i)
      order.push_back(i);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random.below(i)]);
  }

  void enter(size_t rank, size_t call) {
    Lane &compute = lanes[rank][0];
    compute.call = call;
    compute.next = call < calls.size() ? calls[call].function->front() : nullptr;
    if (!compute.next)
      return;
    bool isNewStep = call == 0 || calls[call - 1].step != calls[call].step;
    if (isNewStep)
      for (const Call &other : calls)
        if (other.step == calls[call].step)
          ranks[rank].fillInputs(*other.function, other.step, calls[call].batch);
    if (module.microSteps > 1)
      ranks[rank].fillInputs(*calls[call].function, calls[call].step, calls[call].batch);
    for (Node *node : *calls[call].function)
      if (infoOf(*node).has(startsTransfer))
        lanes[rank][laneOf(*node)].issued.push_back({node, call});
  }

  bool advance(size_t rank, size_t lane) { return lane == 0 ? advanceCompute(rank) : advanceComm(rank, lane); }

  bool advanceCompute(size_t rank) {
    Lane &lane = lanes[rank][0];
    if (!lane.next)
      return false;
    const Node &node = *lane.next;
    if (node.op() == Op::wait && !isDoneByAll(rank, futureOf(lane.call, node.operand(0))))
      return false;
    if (node.op() == Op::tap)
      outcome[label(rank, lane.call) + " tap " + node.get<TapAttributes>().parameter.name] =
          ranks[rank].bytesOf(*node.operand(0));
    if (node.op() == Op::ret && !mayLeave(rank, lane.call))
      return false;
    if (node.op() == Op::ret)
      recordResults(rank, lane.call, node);
    if (!infoOf(node).has(startsTransfer))
      ranks[rank].execute(node);
    done[rank].insert({lane.call, &node});
    lane.next = node.next();
    if (!lane.next)
      enter(rank, lane.call + 1);
    return true;
  }

  /// A function that stands alone begins with the wait for what the step before has left.
  bool mayLeave(size_t rank, size_t call) const {
    bool isLast = call + 1 < calls.size() && calls[call + 1].function->kind() > Kind::update;
    return !isLast || llvm::all_of(carriedOver, [&](const CarriedOver &over) {
      size_t started = call;
      while (started > 0 && calls[started].function != over.start->function())
        --started;
      return calls[started].step != calls[call].step || isDoneByAll(rank, {started, over.start});
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
      if (!isTaken)
        outcome[label(rank, call) + " " + name] = ranks[rank].bytesOf(*ret.operand(i));
    }
  }

  /// The call and the start of the collective that delivers a future, which may be carried.
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

  /// A copy to or from the host is among one rank.
  const MeshAxis &axisOf(const Node &start) const {
    static const MeshAxis oneRank;
    return startsCollective(start) ? *module.axis(start.get<CollectiveAttributes>().over.name) : oneRank;
  }

  bool isDoneByAll(size_t rank, Event collective) const {
    const MeshAxis &axis = axisOf(*collective.second);
    for (int64_t member = 0; member < axis.size; ++member)
      if (!finished.contains({axis.rankOf(static_cast<int64_t>(rank), member), collective}))
        return false;
    return true;
  }

  /// What makes the operand: names of what is there already are not waited for.
  bool isMade(size_t rank, size_t call, const Value *value) const {
    for (;;) {
      const Node *definer = value->definer();
      if (!definer || definer->op() == Op::read)
        return lanes[rank][0].call >= call; // entered
      if (definer->op() == Op::wait)
        return finished.contains({static_cast<int64_t>(rank), futureOf(call, definer->operand(0))});
      if (!infoOf(*definer).has(aliasesOperand))
        return done[rank].contains({call, definer});
      value = definer->operand(0);
    }
  }

  bool isReady(size_t rank, const Collective &collective) const {
    if (lanes[rank][0].call < collective.call)
      return false;
    for (const std::unique_ptr<Use> &token : collective.start->afterTokens())
      if (!done[rank].contains({collective.call, token->value()->definer()}))
        return false;
    return isMade(rank, collective.call, collective.start->operand(0));
  }

  bool advanceComm(size_t rank, size_t laneIndex) {
    Lane &lane = lanes[rank][laneIndex];
    if (lane.issued.empty())
      return false;
    Collective collective = lane.issued.front();
    const MeshAxis &axis = axisOf(*collective.start);
    if (!lane.hasBegun)
      return begin(rank, lane, collective, axis);
    if (!lane.unread.empty()) {
      size_t which = random.below(lane.unread.size());
      int64_t member = lane.unread[which];
      lane.unread.erase(lane.unread.begin() + static_cast<ptrdiff_t>(which));
      lane.read[member] = ranks[axis.rankOf(static_cast<int64_t>(rank), member)].load(*collective.start->operand(0));
      return true;
    }
    finish(rank, lane, collective, axis);
    return true;
  }

  bool begin(size_t rank, Lane &lane, const Collective &collective, const MeshAxis &axis) {
    for (int64_t member = 0; member < axis.size; ++member)
      if (!isReady(axis.rankOf(static_cast<int64_t>(rank), member), collective))
        return false;
    const Value &result = *collective.start->result();
    ranks[rank].spoil(result.place, Rank::tensorType(result).bytes());
    ranks[rank].spoil(collective.start->workspace, collective.start->workspaceBytes);
    for (int64_t member = 0; member < axis.size; ++member)
      lane.unread.push_back(member);
    lane.read.clear();
    return lane.hasBegun = true;
  }

  static double treeSum(llvm::ArrayRef<double> parts, DType dtype) {
    if (parts.size() == 1)
      return parts[0];
    size_t left = 1;
    while (left * 2 < parts.size())
      left *= 2;
    double sum = treeSum(parts.take_front(left), dtype) + treeSum(parts.drop_front(left), dtype);
    return dtype == DType::f32 ? static_cast<float>(sum) : sum;
  }

  void finish(size_t rank, Lane &lane, const Collective &collective, const MeshAxis &axis) {
    const Node &start = *collective.start;
    HostTensor result(Rank::tensorType(*start.result()));
    auto elements = static_cast<int64_t>(result.values.size());
    bool gathers = start.op() == Op::allGatherStart || !startsCollective(start);
    int64_t share = gathers ? elements / axis.size : elements;
    int64_t first = start.op() == Op::reduceScatterStart ? axis.memberOf(static_cast<int64_t>(rank)) * elements : 0;
    for (int64_t i = 0; i < elements; ++i) {
      if (gathers) {
        result.values[i] = lane.read.at(i / share).values[i % share];
        continue;
      }
      llvm::SmallVector<double, 8> parts;
      for (auto &[member, operand] : lane.read)
        parts.push_back(operand.values[first + i]);
      result.values[i] = treeSum(parts, result.type.dtype());
    }
    ranks[rank].store(*start.result(), result);
    ranks[rank].spoil(start.workspace, start.workspaceBytes);
    finished.insert({static_cast<int64_t>(rank), {collective.call, &start}});
    lane.hasBegun = false;
    lane.issued.pop_front();
  }

  static constexpr size_t beforeFirst = ~size_t{0};
  const Module &module;
  const std::vector<CarriedOver> carriedOver;
  Random random;
  std::vector<Call> calls;
  std::deque<Rank> ranks;
  std::vector<std::array<Lane, laneCount>> lanes;
  std::vector<size_t> priorities, order;
  std::vector<std::set<Event>> done; ///< per rank: compute nodes that have run
  std::set<std::pair<int64_t, Event>> finished;
  Outcome outcome;
};

} // namespace

std::optional<Outcome> runPlanned(const Module &module, uint64_t seed) { return Machine(module, seed).run(); }

} // namespace fsdpc::mutation

#include "tests/mutation/planned_machine.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <cstring>
#include <set>

namespace fsdpc::mutation {

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t laneCount = 3;
size_t laneOf(const Node &node) {
  return node.stream == Stream::reduce ? 2 : infoOf(node).has(startsCollective) ? 1 : 0;
}

/// One call of a function by every rank.
struct Call {
  const Function *function;
  int step;
  bool isLastOfStep = false;
};

struct Collective {
  const Node *start = nullptr;
  size_t call = 0;
};

/// The place of a node in a run: nodes of one call by the call's index.
using Event = std::pair<size_t, const Node *>;

/// The element of a parameter, the same in every layout.
double initialElement(llvm::StringRef parameter, int64_t element) {
  uint64_t mixed = (llvm::hash_value(parameter) % 1009 + 1) * 2654435761u + static_cast<uint64_t>(element) * 40503u;
  return static_cast<double>(mixed % 2003) / 2003 - 0.5;
}

class Rank final : public EvaluationEnvironment {
public:
  Rank(const Module &module, int64_t index, Random &random) : module(module), index(index), random(random) {
    for (auto [space, name] : {std::pair(0, "arena_private_bytes"), std::pair(1, "arena_window_bytes")}) {
      auto setting = module.settings.find(name);
      arenas[space].resize(setting == module.settings.end() ? 0 : std::stoll(setting->second) + slack);
      spoil({space == 0 ? Space::privateSpace : Space::window, 0}, static_cast<int64_t>(arenas[space].size()));
    }
    for (const State &state : module.states)
      fillState(state);
  }

  int64_t rank() const override { return index; }
  int64_t worldSize() const override { return module.worldSize(); }
  const HostTensor &readState(llvm::StringRef) override { llvm_unreachable("reads are places"); }
  void writeState(llvm::StringRef, const HostTensor &) override { llvm_unreachable("writes are copies"); }
  void tap(llvm::StringRef, const HostTensor &) override { llvm_unreachable("taps are bytes"); }
  const MeshAxis &axis(llvm::StringRef name) const override { return *module.axis(name); }
  std::vector<HostTensor> exchange(llvm::StringRef, const HostTensor &) override {
    llvm_unreachable("collectives are the machine's");
  }

  uint8_t *at(Place place) { return arenas[place.space == Space::window].data() + place.offsetBytes; }
  Bytes bytesOf(const Value &value) { return {at(value.place), at(value.place) + tensorType(value).bytes()}; }
  HostTensor load(const Value &value) { return decode(tensorType(value), bytesOf(value)); }
  void store(const Value &value, const HostTensor &tensor) {
    Bytes bytes = encode(tensor);
    llvm::copy(bytes, at(value.place));
  }
  void spoil(Place place, int64_t bytes) {
    uint64_t garbage = random.below(~0ull) | 1;
    for (int64_t i = 0; i < bytes; ++i)
      at(place)[i] = static_cast<uint8_t>((garbage *= 6364136223846793005u) >> 56);
  }
  static Type tensorType(const Value &value) {
    return value.type().isFuture() ? value.type().delivered() : value.type();
  }
  static HostTensor decode(const Type &type, const Bytes &bytes) {
    HostTensor tensor(type);
    if (type.dtype() == DType::f32) {
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        float element;
        std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
        tensor.values[i] = element;
      }
      return tensor;
    }
    Dense dense(type.dtype(), bytes);
    for (int64_t i = 0; i < type.elements(); ++i)
      tensor.values[i] = dense.at(i);
    return tensor;
  }
  static Bytes encode(const HostTensor &tensor) {
    if (tensor.type.dtype() == DType::f32) {
      std::vector<float> elements(tensor.values.begin(), tensor.values.end());
      Bytes bytes(elements.size() * sizeof(float));
      std::memcpy(bytes.data(), elements.data(), bytes.size());
      return bytes;
    }
    Dense dense = Dense::fromDoubles(tensor.type.dtype(), tensor.values);
    return {dense.bytes().begin(), dense.bytes().end()};
  }

  void execute(const Node &node);
  void fillState(const State &state);
  void fillInputs(const Function &function, int step);
  /// What of each parameter, or optimizer state, this rank holds.
  void recordStates(Outcome &outcome);

private:
  const State &layoutOf(const State &state) const {
    const State *owner = state.role == StateRole::optimizer ? module.state(state.owner) : nullptr;
    return owner ? *owner : state;
  }
  int64_t firstElementOf(const State &layout) const {
    const MeshAxis *axis = layout.over.empty() ? nullptr : module.axis(layout.over);
    return axis ? axis->memberOf(index) * layout.type.elements() : 0;
  }
  void compute(const Node &node);
  void clearGaps(const Node &pack);

  /// A mutant may write a little behind its arena; more ends the process that judges it.
  static constexpr int64_t slack = 1 << 16;
  const Module &module;
  const int64_t index;
  Random &random;
  Bytes arenas[2];
};

void Rank::fillState(const State &state) {
  HostTensor tensor(state.type, state.initialValue);
  const State &layout = layoutOf(state);
  bool isParameters = state.role == StateRole::segment || state.role == StateRole::replica;
  if (isParameters)
    for (const SegmentSlot &slot : layout.slots)
      for (int64_t i = 0; i < slot.elements; ++i)
        if (int64_t element = slot.offsetElements + i - firstElementOf(layout);
            element >= 0 && element < state.type.elements())
          tensor.values[element] = initialElement(slot.parameter, i);
  Bytes bytes = encode(tensor);
  llvm::copy(bytes, at(state.place));
}

void Rank::recordStates(Outcome &outcome) {
  for (const State &state : module.states) {
    const State &layout = layoutOf(state);
    int64_t width = byteSize(state.type.dtype());
    for (const SegmentSlot &slot : layout.slots) {
      Bytes &held = outcome["rank " + std::to_string(index) + " " + nameOf(state.role).str() + " " + state.field + " " +
                            slot.parameter];
      for (int64_t i = 0; i < slot.elements; ++i)
        if (int64_t element = slot.offsetElements + i - firstElementOf(layout);
            element >= 0 && element < state.type.elements())
          held.insert(held.end(), at(state.place) + element * width, at(state.place) + (element + 1) * width);
    }
  }
}

void Rank::fillInputs(const Function &function, int step) {
  for (const Argument &argument : function.arguments()) {
    if (argument.kind != ArgumentKind::input)
      continue;
    HostTensor tensor(argument.value->type());
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      double element = initialElement(argument.name, static_cast<int64_t>(i) + 31 * (index + 8 * step));
      tensor.values[i] = argument.name == "sample_weight" ? 1
                         : isFloat(tensor.type.dtype())   ? element
                                                          : std::floor((element + 0.5) * 7);
    }
    store(*argument.value, tensor);
  }
  if (const State *state = module.state("step")) {
    Bytes bytes = encode(HostTensor(state->type, step + 1));
    llvm::copy(bytes, at(state->place));
  }
}

void Rank::clearGaps(const Node &pack) {
  Value *whole = pack.result();
  int64_t width = byteSize(whole->type().dtype());
  std::vector<bool> covered(whole->type().elements());
  for (unsigned i = 0; i < pack.operandCount(); ++i)
    for (int64_t k = 0; k < pack.operand(i)->type().elements(); ++k)
      covered[pack.get<PackAttributes>().offsets[i] + k] = true;
  for (size_t i = 0; i < covered.size(); ++i)
    if (!covered[i])
      std::fill_n(at(whole->place) + static_cast<int64_t>(i) * width, width, uint8_t{0});
}

void Rank::compute(const Node &node) {
  bool inPlace =
      isElementwise(node) || node.op() == Op::fused || node.op() == Op::copy || infoOf(node).has(OpTrait::inPlace);
  if (node.workspaceBytes > 0)
    spoil(node.workspace, node.workspaceBytes);
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    bool isOver = inPlace && llvm::any_of(node.operands(),
                                          [&](Value *operand) { return operand->place == node.result(i)->place; });
    if (!isOver)
      spoil(node.result(i)->place, node.result(i)->type().bytes());
  }
  std::vector<HostTensor> operands, results;
  std::vector<const HostTensor *> pointers;
  for (Value *operand : node.operands())
    operands.push_back(load(*operand));
  for (const HostTensor &operand : operands)
    pointers.push_back(&operand);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results.emplace_back(node.result(i)->type());
  EvaluateContext context{node.attributes(), pointers, results, this};
  infoOf(node).evaluate(context);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    store(*node.result(i), results[i]);
  if (node.workspaceBytes > 0)
    spoil(node.workspace, node.workspaceBytes);
}

void Rank::execute(const Node &node) {
  switch (node.op()) {
  case Op::read:
  case Op::free:
  case Op::wait:
  case Op::tap:
  case Op::ret: return;
  case Op::pack: return clearGaps(node);
  case Op::write: {
    Bytes bytes = bytesOf(*node.operand(0));
    llvm::copy(bytes, at(module.state(node.get<StateAttributes>().state.name)->place));
    return;
  }
  default:
    if (!infoOf(node).has(aliasesOperand))
      compute(node);
  }
}

/// A lane of one rank.
struct Lane {
  std::deque<Collective> issued;      ///< comm and reduce: not yet done
  std::vector<int64_t> unread;        ///< of the collective that has begun: members to read
  std::map<int64_t, HostTensor> read; ///< member -> operand
  bool hasBegun = false;
  size_t call = 0;            ///< compute: the call that runs
  const Node *next = nullptr; ///< compute
};

class Machine {
public:
  Machine(const Module &module, uint64_t seed) : module(module), random(seed) {
    addCalls();
    for (int64_t i = 0; i < module.worldSize(); ++i)
      ranks.emplace_back(module, i, random);
    lanes.resize(ranks.size());
    priorities.resize(ranks.size() * laneCount);
    done.resize(ranks.size());
    for (const CarriedOver &over : carriedOverSteps(module))
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
      if (rankLanes[0].next || !rankLanes[1].issued.empty() || !rankLanes[2].issued.empty())
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
          addCall(kind, step);
    addCall(Kind::evalStep, 2);
    addCall(Kind::exportWeights, 3);
  }
  void addCall(Kind kind, int step) {
    if (const Function *function = module.function(kind))
      calls.push_back({function, step});
  }

  /// What a step finds of the step before, the first one finds made from the states.
  void arriveBeforeTheFirstStep(const CarriedOver &over) {
    leftBefore[over.argument->name] = over.start;
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
          ranks[rank].fillInputs(*other.function, other.step);
    for (Node *node : *calls[call].function)
      if (infoOf(*node).has(startsCollective))
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
    if (!infoOf(node).has(startsCollective))
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
    return !isLast || llvm::all_of(carriedOverSteps(module), [&](const CarriedOver &over) {
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
          return {beforeFirst, leftBefore.lookup(name)};
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

  const MeshAxis &axisOf(const Node &start) const { return *module.axis(start.get<CollectiveAttributes>().over.name); }

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
    bool gathers = start.op() == Op::allGatherStart;
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
  Random random;
  llvm::StringMap<const Node *> leftBefore; ///< argument -> start of the step before the first
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

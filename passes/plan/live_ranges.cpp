// live_ranges: which buffers a rank holds, and from which node to which.
//
// The problem. plan_memory assigns every buffer an offset, and buffers may share bytes unless their live ranges
// overlap. A value is not a buffer: views, reshapes and waits are names of one, the parts of a pack are inside the
// pack, an optimizer writes over its state, and a carried argument is a result of an earlier function or of the
// previous step. A range that ends too early corrupts values, and one that ends too late wastes memory.
//
// The idea. The nodes of all functions are numbered in order of issue. One walk begins a buffer at the first node with
// a result in it (as given by BufferAnalysis), which for a pack is the node of its first part, and ends it at its free.
// insert_frees has placed the free after the last reader; a transfer counts as reading until its wait. A buffer without
// a free lives until the end of the step or, in eval_step and export, of the function. States, inputs and constants are
// permanent. A buffer that a step passes to the next lives in two intervals (Buffer::carriedUntil). A workspace has no
// free: it ends at the first free, or at the return, after its node or after the wait of its transfer, because
// plan_memory can make other streams wait for the token of that free. A second walk over each function lets a result
// reuse the buffer of an operand. Requires: the target can write the result there, size, space and class are equal, the
// node reads that buffer once, and only frees are between the node and the free of the buffer. The buffers of states,
// arguments and constants are never reused.
//
// Example: micro_step of tests/passes/plan_memory.fsir before plan_memory, shortened, with positions in front.
//
//   0  %p = read @first.p                                              : f32[64]          on(compute)
//   1  %f = all_gather.start %p over(@shard) ranks(2) id(1)            : future<f32[128]> on(comm)
//   2  %w = wait %f                                                    : f32[128]         on(compute)
//   3  %v = view %w                                                    : f32[5,7]         on(compute)
//   4  %b = view %w offset(64)                                         : f32[7]           on(compute)
//   5  %y = matmul %x, %v                                              : f32[6,7]         on(compute)
//   6  %z = fused %y, %b body(s0 = add a0, a1; s1 = relu s0; yield s1) : f32[6,7]         on(compute)
//   7  free %y                                                                            on(compute)
//   8  free %w                                                                            on(compute)
//
// %f lives in 1..8; %w, %v and %b are names of its buffer. The workspace of the matmul lives in 5..7. %z reuses the
// buffer of %y, which therefore lives from 5 to the free of %z in backward. %p is a name of the permanent buffer of
// @first.p.
//
// What is checked. checkPlanned (passes/check), which every compile to a plan runs, includes no header of a pass. It
// executes the planned functions on an exact map of bytes. If a range ends too early and layOut exploits it, it reports
// an overlap (S6), a missing order (S5), or memory that holds another version (S9). verify() checks that aliases, parts
// of packs and carried arguments are inside their buffers (V20). Neither rejects a range that ends too late.
// plan_memory.fsir expects one offset for %y and %z, and sharding_faults in tests/accept.py limits the gathered bytes
// at the peak of full_shard plans to those of about two units.
//
// Cost: O((n + e) d + t c) for nodes of bounded size, with n nodes, e operands and results, chains of at most d
// aliases, t results that reuse an operand's buffer, and c results of the functions of a step. A free names its buffer,
// so no search for a last use is needed, and no two buffers are compared. The target is queried for each pair of a
// result and an operand, and each yes scans all operands again; a fused loop has at most 48 steps, and a pack is never
// written over an operand. The c is from takeOver, which scans the names of all results; where micro_step returns
// gradients, c grows with the number of segments. liveBytes sums differences at the ends of ranges in O(n + number of
// buffers).
#include "passes/plan/live_ranges.h"

#include "ir/carried.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/analysis/buffers.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

llvm::StringRef nameOf(MemoryClass memoryClass) {
  static constexpr llvm::StringRef names[] = {"parameters", "optimizer",     "gradients", "gathered", "activations",
                                              "workspace",  "communication", "inputs",    "other"};
  static_assert(std::size(names) == memoryClassCount);
  return names[static_cast<size_t>(memoryClass)];
}

namespace {

bool isStepFunction(FunctionKind kind) { return kind <= FunctionKind::update; }

/// True if the operand is a unit's gradients or this rank's shard of them.
bool sumsGradients(const Node &allReduce) {
  const Node *definer = allReduce.operand(0)->definer();
  if (definer && definer->op() == Op::wait)
    definer = definer->operand(0)->definer();
  return definer &&
         (definer->op() == Op::pack || definer->op() == Op::reduceScatterStart || definer->op() == Op::reduceScatter);
}

MemoryClass classOf(const State &state) {
  switch (state.role) {
  case StateRole::parameter:
  case StateRole::segment:
  case StateRole::buffer:
  case StateRole::replica: return MemoryClass::parameters;
  case StateRole::optimizer: return MemoryClass::optimizer;
  case StateRole::accumulator: return MemoryClass::gradients;
  default: return MemoryClass::other;
  }
}

/// Copies of scalars are temporary.
MemoryClass classOfCopy(MemoryClass original) {
  return original == MemoryClass::other ? MemoryClass::activations : original;
}

/// The original of a copy between the device and its host.
const Value &copiedFrom(const Value &root) {
  const Value *value = &root;
  for (const Node *definer = value->definer(); definer; definer = value->definer()) {
    const bool isCopy = definer->op() == Op::offloadStart || definer->op() == Op::reloadStart;
    if (!isCopy && definer->op() != Op::wait)
      break;
    value = definer->operand(0);
  }
  return *value;
}

/// The class of a value's memory, by its defining node.
MemoryClass classOf(const Value &root) {
  const Value &source = copiedFrom(root);
  const Node *definer = source.definer();
  if (!definer)
    return MemoryClass::gradients;
  switch (definer->op()) {
  case Op::allGatherStart:
  case Op::allGather: return MemoryClass::gathered;
  case Op::pack:
  case Op::unstash:
  case Op::reduceScatterStart:
  case Op::reduceScatter: return MemoryClass::gradients;
  case Op::allReduceStart:
  case Op::allReduce: return sumsGradients(*definer) ? MemoryClass::gradients : MemoryClass::communication;
  case Op::read: return classOfCopy(classOf(*stateOf(*definer)));
  case Op::constant: return isPermanentConstant(root) ? MemoryClass::other : MemoryClass::activations;
  default: return MemoryClass::activations;
  }
}

} // namespace

class LiveRanges::Collector {
public:
  Collector(LiveRanges &ranges, const Module &module, const Target &target)
      : ranges(ranges), module(module), target(target) {}

  void run() {
    for (const State &state : module.states)
      addState(state);
    for (const CarriedOver &carried : carriedOverSteps(module))
      fromStepBefore.insert(carried.argument->value.get());
    for (const std::unique_ptr<Function> &function : module.functions)
      addFunction(*function);
    for (const CarriedOver &carried : carriedOverSteps(module))
      joinSteps(carried);
  }

private:
  size_t add(Buffer buffer) {
    ranges.buffers.push_back(std::move(buffer));
    return ranges.buffers.size() - 1;
  }

  void addState(const State &state) {
    Buffer buffer;
    buffer.name = state.name;
    buffer.bytes = state.type.bytes();
    buffer.memoryClass = classOf(state);
    buffer.permanent = true;
    buffer.space = state.onHost ? Space::host : Space::privateSpace;
    buffer.place = state.place;
    ranges.bufferOfState[state.name] = add(std::move(buffer));
  }

  void addFunction(Function &function) {
    BufferAnalysis analysis(function);
    if (!isStepFunction(function.kind()))
      carried.clear();
    for (const Argument &argument : function.arguments())
      addArgument(argument);
    const bool isPredict = function.kind() == FunctionKind::predict;
    if (isPredict)
      ranges.predictBegin = static_cast<int64_t>(ranges.nodeAt.size());
    for (Node *node : function) {
      int64_t position = static_cast<int64_t>(ranges.nodeAt.size());
      ranges.nodeAt.push_back(node);
      positions[node] = position;
      addNode(*node, position, analysis);
    }
    if (isPredict)
      ranges.predictEnd = static_cast<int64_t>(ranges.nodeAt.size());
    finishFunction(function, analysis);
  }

  void addArgument(const Argument &argument) {
    if (fromStepBefore.contains(argument.value.get())) {
      Buffer buffer;
      buffer.bytes = argument.value->type().bytes();
      ranges.bufferOfRoot[argument.value.get()] = add(std::move(buffer));
      return;
    }
    if (argument.kind == ArgumentKind::carry) {
      size_t index = carried.lookup(argument.name);
      ranges.bufferOfRoot[argument.value.get()] = index;
      ranges.buffers[index].roots.push_back(argument.value.get());
      return;
    }
    auto [entry, isNew] = ranges.bufferOfInput.try_emplace(argument.name, ranges.buffers.size());
    if (isNew) {
      Buffer buffer;
      buffer.name = argument.name;
      buffer.memoryClass = MemoryClass::inputs;
      buffer.permanent = true;
      buffer.place = argument.value->place;
      add(std::move(buffer));
    }
    Buffer &buffer = ranges.buffers[entry->second];
    buffer.bytes = std::max(buffer.bytes, argument.value->type().bytes());
    buffer.roots.push_back(argument.value.get());
    ranges.bufferOfRoot[argument.value.get()] = entry->second;
  }

  void addNode(Node &node, int64_t position, const BufferAnalysis &analysis) {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      if (!node.result(i)->type().isToken())
        begin(analysis.bufferOf(node.result(i)).root, node, position, analysis);
    placeOperandsInWindow(node, analysis);
    if (node.op() == Op::wait)
      endCollective(node);
    if (node.op() == Op::free) {
      ranges.buffers[indexOf(analysis.bufferOf(node.operand(0)).root, analysis)].end = position;
      endWorkspaces(position);
    }
    if (node.schedule.workspaceBytes > 0)
      addWorkspace(node, position);
  }

  size_t indexOf(Value *root, const BufferAnalysis &analysis) const {
    llvm::StringRef state = analysis.stateOf(root);
    if (!state.empty())
      return ranges.bufferOfState.lookup(state);
    auto found = ranges.bufferOfRoot.find(root);
    assert(found != ranges.bufferOfRoot.end() && "every root has a buffer");
    return found->second;
  }

  void begin(Value *root, Node &node, int64_t position, const BufferAnalysis &analysis) {
    if (!analysis.stateOf(root).empty() || ranges.bufferOfRoot.contains(root))
      return;
    Buffer buffer;
    buffer.root = root;
    buffer.name = root->name().str();
    buffer.definer = &node;
    buffer.bytes = root->type().bytes();
    buffer.memoryClass = classOf(*root);
    buffer.permanent = buffer.memoryClass == MemoryClass::other;
    buffer.begin = buffer.permanent ? 0 : position;
    buffer.roots = {root};
    buffer.place = root->place;
    if (node.op() == Op::offloadStart || node.schedule.stream == Stream::host)
      buffer.space = Space::host;
    ranges.bufferOfRoot[root] = add(std::move(buffer));
  }

  void placeOperandsInWindow(Node &node, const BufferAnalysis &analysis) {
    if (!infoOf(node).has(startsTransfer))
      return;
    for (unsigned i = 0; i < node.operandCount(); ++i)
      if (target.operandInWindow(node, i))
        ranges.buffers[indexOf(analysis.bufferOf(node.operand(i)).root, analysis)].space = Space::window;
    if (target.resultInWindow(node))
      ranges.buffers[indexOf(node.result(), analysis)].space = Space::window;
  }

  void addWorkspace(Node &node, int64_t position) {
    Buffer buffer;
    buffer.name = "workspace of " + infoOf(node).name.str();
    buffer.definer = &node;
    buffer.bytes = node.schedule.workspaceBytes;
    buffer.memoryClass = infoOf(node).has(startsTransfer) ? MemoryClass::communication : MemoryClass::workspace;
    buffer.begin = position;
    buffer.place = node.schedule.workspace;
    size_t index = add(std::move(buffer));
    ranges.bufferOfWorkspace[&node] = index;
    if (infoOf(node).has(startsTransfer))
      untilWait[node.result()->uses()->user()] = index;
    else
      untilFree.push_back(index);
  }

  /// A collective is active until its wait; the next free orders others after it.
  void endCollective(Node &wait) {
    auto found = untilWait.find(&wait);
    if (found == untilWait.end())
      return;
    untilFree.push_back(found->second);
    untilWait.erase(found);
  }

  /// Ends workspaces at a free or at the end of the function.
  void endWorkspaces(int64_t position) {
    for (size_t index : untilFree)
      ranges.buffers[index].end = position;
    untilFree.clear();
  }

  /// Results of step functions may be carried on. Buffers without a free are read by the runtime at the end of the step
  /// or of the function.
  void finishFunction(Function &function, const BufferAnalysis &analysis) {
    Node *ret = function.returnNode();
    endWorkspaces(positions.lookup(ret));
    const std::vector<std::string> &names = ret->get<ReturnAttributes>().names;
    for (unsigned i = 0; i < ret->operandCount(); ++i) {
      size_t index = indexOf(analysis.bufferOf(ret->operand(i)).root, analysis);
      carried[names[i]] = index;
      if (!isStepFunction(function.kind()) && !ranges.buffers[index].permanent)
        ranges.buffers[index].end = positions.lookup(ret);
    }
    if (function.kind() == FunctionKind::update)
      endStep(positions.lookup(ret));
    reuseInPlace(function, analysis);
  }

  /// The range of the argument becomes the second interval of the buffer.
  void joinSteps(const CarriedOver &carried) {
    Buffer &taken = ranges.buffers[ranges.bufferOfRoot.lookup(carried.argument->value.get())];
    size_t index = ranges.bufferOfRoot.lookup(carried.future);
    Buffer &left = ranges.buffers[index];
    left.carriedUntil = taken.end;
    left.roots.push_back(carried.argument->value.get());
    ranges.bufferOfRoot[carried.argument->value.get()] = index;
    taken.bytes = 0;
  }

  void endStep(int64_t position) {
    for (Buffer &buffer : ranges.buffers)
      if (!buffer.permanent && buffer.end == std::numeric_limits<int64_t>::max())
        buffer.end = position;
  }

  /// A separate walk, because it needs the ends of buffers.
  void reuseInPlace(Function &function, const BufferAnalysis &analysis) {
    for (Node *node : function) {
      llvm::SmallDenseSet<size_t, 4> taken;
      for (unsigned r = 0; r < node->resultCount(); ++r)
        for (unsigned o = 0; o < node->operandCount(); ++o)
          if (target.mayOverwriteOperand(*node, r, o) &&
              takeOver(*node, node->result(r), node->operand(o), analysis, taken))
            break;
    }
  }

  bool takeOver(Node &node, Value *result, Value *operand, const BufferAnalysis &analysis,
                llvm::SmallDenseSet<size_t, 4> &taken) {
    BufferRef from = analysis.bufferOf(operand);
    if (analysis.bufferOf(result).root != result || !analysis.stateOf(from.root).empty() || !from.root->definer())
      return false;
    // The node reads the buffer twice, perhaps in another shape: writing it would corrupt the other read.
    if (llvm::count_if(node.operands(), [&](Value *other) { return analysis.bufferOf(other).root == from.root; }) > 1)
      return false;
    size_t oldIndex = indexOf(from.root, analysis);
    size_t newIndex = indexOf(result, analysis);
    Buffer &before = ranges.buffers[oldIndex];
    Buffer &after = ranges.buffers[newIndex];
    bool fits = !before.permanent && !after.permanent && before.space == after.space && before.bytes == after.bytes &&
                from.offsetBytes == 0 && before.roots.back() == from.root && oldIndex != newIndex &&
                before.memoryClass == after.memoryClass && diesAt(node, before) && taken.insert(oldIndex).second;
    if (!fits)
      return false;
    before.end = after.end;
    before.roots.insert(before.roots.end(), after.roots.begin(), after.roots.end());
    for (Value *root : after.roots)
      ranges.bufferOfRoot[root] = oldIndex;
    for (auto &entry : carried)
      if (entry.second == newIndex)
        entry.second = oldIndex;
    after.roots.clear();
    after.root = nullptr;
    after.bytes = 0;
    after.end = after.begin;
    return true;
  }

  /// True if only frees are between the node and the free of the buffer.
  bool diesAt(const Node &node, const Buffer &buffer) const {
    const Node *next = node.next();
    while (next && next->op() == Op::free && positions.lookup(const_cast<Node *>(next)) != buffer.end)
      next = next->next();
    return next && next->op() == Op::free && positions.lookup(const_cast<Node *>(next)) == buffer.end;
  }

  LiveRanges &ranges;
  const Module &module;
  const Target &target;
  llvm::StringMap<size_t> carried;
  llvm::DenseSet<const Value *> fromStepBefore; ///< arguments
  llvm::DenseMap<Node *, int64_t> positions;
  llvm::DenseMap<Node *, size_t> untilWait;
  std::vector<size_t> untilFree;
};

LiveRanges::LiveRanges(const Module &module, const Target &target) { Collector(*this, module, target).run(); }

std::vector<int64_t> LiveRanges::liveBytes() const {
  std::vector<int64_t> change(nodeAt.size() + 1, 0);
  for (const Buffer &buffer : buffers) {
    if (buffer.permanent || buffer.bytes == 0 || !buffer.isOnDevice() || isOfPredict(buffer))
      continue;
    change[buffer.begin] += buffer.bytes;
    if (buffer.end < static_cast<int64_t>(nodeAt.size()))
      change[buffer.end + 1] -= buffer.bytes;
    change[0] += buffer.carriedUntil < 0 ? 0 : buffer.bytes;
    change[buffer.carriedUntil + 1] -= buffer.carriedUntil < 0 ? 0 : buffer.bytes;
  }
  change.pop_back();
  int64_t live = 0;
  for (int64_t &bytes : change)
    bytes = live += bytes;
  return change;
}

} // namespace fsdpc

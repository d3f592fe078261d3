// From "every rank has every parameter" to shards. Everything is inserted in its obviously right form: a gather where
// the parameter was read, a reduction where the gradient was returned. sinkGathers and hoistReduceScatters move them to
// where they cost least.
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/optimizer_layout.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral gradientPrefix = "grad.";
constexpr llvm::StringLiteral shardAxis = "shard";
constexpr int64_t slotAlignmentBytes = 128;

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct SlotOf {
  const State *segment;
  const SegmentSlot *slot;
};

class StateSharder {
public:
  StateSharder(Module &module, const PassContext &context)
      : module(module), ranks(context.options.worldSize), layout(optimizerLayout(module)) {}

  void run() {
    collectTrained();
    makeSegments();
    for (FunctionKind kind : {FunctionKind::microStep, FunctionKind::evalStep, FunctionKind::exportWeights})
      gatherReads(*module.function(kind));
    returnShards(*module.function(FunctionKind::microStep));
    for (const std::unique_ptr<Function> &function : module.functions)
      reduceScalars(*function);
    rebuildTapGradients(*module.function(FunctionKind::tapGradients));
    rebuildUpdate(*module.function(FunctionKind::update));
    dropParameterStates();
    dropSources();
    module.stage = Stage::sharded;
  }

private:
  CollectiveAttributes overShards() const { return {{shardAxis.str()}, ranks, -1}; }

  void collectTrained() {
    for (const std::string &name :
         module.function(FunctionKind::microStep)->returnNode()->get<ReturnAttributes>().names)
      if (llvm::StringRef(name).starts_with(gradientPrefix))
        trained.insert(llvm::StringRef(name).drop_front(gradientPrefix.size()));
  }

  /// One segment per unit, dtype and "has a gradient": what is gathered, reduced and updated together.
  void makeSegments() {
    llvm::MapVector<std::pair<int64_t, int64_t>, std::vector<const Parameter *>> groups;
    for (const Parameter &parameter : module.parameters)
      if (module.state(parameter.name)) {
        bool isTrained = trained.contains(parameter.name);
        groups[{module.unitIndex(parameter.unit), int64_t(isTrained) * 16 + int64_t(parameter.type.dtype())}].push_back(
            &parameter);
      }
    std::vector<State> segments;
    for (auto &[key, members] : groups)
      segments.push_back(makeSegment(members));
    for (State &segment : segments) {
      const State &added = module.addState(std::move(segment));
      for (const SegmentSlot &slot : added.slots)
        slots[slot.parameter] = {&added, &slot};
      if (added.trainable)
        addOptimizerStates(added);
    }
  }

  State makeSegment(llvm::ArrayRef<const Parameter *> members) {
    State segment;
    segment.role = StateRole::segment;
    segment.unit = members[0]->unit;
    segment.trainable = trained.contains(members[0]->name);
    DType dtype = members[0]->type.dtype();
    int64_t atom = slotAlignmentBytes / byteSize(dtype);
    int64_t end = 0;
    for (const Parameter *parameter : members) {
      int64_t start = roundUp(end, atom);
      segment.slots.push_back({parameter->name, start, parameter->type.elements()});
      end = start + parameter->type.elements();
    }
    // Whole atoms per rank keep every shard's start aligned.
    segment.paddedElements = roundUp(std::max<int64_t>(end, 1), ranks * atom);
    segment.type = Type(dtype, {segment.paddedElements / ranks});
    if (ranks > 1)
      segment.over = shardAxis.str();
    segment.name = freshName(segment.unit + (segment.trainable ? ".p" : ".frozen"), dtype);
    return segment;
  }

  std::string freshName(std::string name, DType dtype) {
    if (dtype != DType::f32)
      name += "." + nameOf(dtype).str();
    while (module.state(name) || !segmentNames.insert(name).second)
      name += "_";
    return name;
  }

  void addOptimizerStates(const State &segment) {
    for (const std::string &field : layout.fields) {
      State state;
      state.name = segment.name + "." + field;
      state.role = StateRole::optimizer;
      state.type = segment.type;
      state.owner = segment.name;
      state.field = field;
      state.initialValue = layout.initialState;
      module.addState(std::move(state));
    }
  }

  /// The whole flat segment: gathered, or the shard itself when one rank holds everything.
  Value *fullSegment(Builder &builder, Value *shard, llvm::StringRef name) {
    if (ranks == 1)
      return shard;
    Value *full = builder.create(Op::allGather, {shard}, overShards())->result();
    full->setName(name);
    return full;
  }

  void gatherReads(Function &function) {
    for (Node *node : function) {
      if (node->op() != Op::read)
        continue;
      auto found = slots.find(node->get<StateAttributes>().state.name);
      if (found == slots.end())
        continue;
      const auto &[segment, slot] = found->second;
      Builder builder(function, node);
      builder.inherit(*node);
      builder.setSource("");
      builder.setUnit(module.unitIndex(segment->unit));
      Value *full = fullSegment(builder, builder.readState(*segment), segment->name + ".full");
      ViewAttributes attributes{slot->offsetElements, Shape(node->result()->type().shape())};
      Value *view = builder.create(Op::view, {full}, attributes)->result();
      view->setName(slot->parameter);
      node->result()->replaceAllUsesWith(view);
      node->erase();
    }
  }

  /// grad.<parameter> = batch_sum(local) becomes grad.<segment> = reduce_scatter(pack(locals)).
  void returnShards(Function &step) {
    Node *ret = step.returnNode();
    llvm::SmallVector<Value *, 8> values;
    std::vector<std::string> names;
    std::vector<Node *> sums;
    llvm::StringMap<Value *> local;
    const std::vector<std::string> oldNames = ret->get<ReturnAttributes>().names;
    for (size_t i = 0; i < oldNames.size(); ++i) {
      Value *value = ret->operand(static_cast<unsigned>(i));
      llvm::StringRef parameter = oldNames[i];
      if (!parameter.consume_front(gradientPrefix)) {
        values.push_back(value);
        names.push_back(oldNames[i]);
        continue;
      }
      sums.push_back(value->definer());
      local[parameter] = value->definer()->operand(0);
    }
    Builder builder(step, ret);
    for (const State &segment : module.states)
      if (segment.role == StateRole::segment && segment.trainable) {
        values.push_back(reduceSegment(builder, segment, local));
        names.push_back(gradientPrefix.str() + segment.name);
      }
    ret->erase();
    for (Node *sum : sums)
      sum->erase();
    builder.setInsertionPoint(nullptr);
    builder.setSection({});
    builder.ret(values, names);
  }

  Value *reduceSegment(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local) {
    builder.setSection({module.unitIndex(segment.unit), Phase::backward});
    PackAttributes attributes{{}, segment.paddedElements};
    llvm::SmallVector<Value *, 8> parts;
    for (const SegmentSlot &slot : segment.slots) {
      parts.push_back(local.lookup(slot.parameter));
      attributes.offsets.push_back(slot.offsetElements);
    }
    Value *packed = builder.create(Op::pack, parts, attributes)->result();
    packed->setName(gradientPrefix.str() + segment.name + ".full");
    if (ranks == 1)
      return packed;
    Value *shard = builder.create(Op::reduceScatter, {packed}, overShards())->result();
    shard->setName(gradientPrefix.str() + segment.name);
    return shard;
  }

  /// What is left of batch_sum are scalars and other values every rank needs whole.
  void reduceScalars(Function &function) {
    for (Node *node : function) {
      if (node->op() != Op::batchSum)
        continue;
      Value *result = node->operand(0);
      if (ranks > 1) {
        Builder builder(function, node);
        builder.inherit(*node);
        result = builder.create(Op::allReduce, {node->operand(0)}, overShards())->result();
        result->setName(node->result()->name());
      }
      node->result()->replaceAllUsesWith(result);
      node->erase();
    }
  }

  void clearFunction(Function &function) {
    for (Node *node : function)
      node->dropOperands();
    for (Node *node : function)
      node->erase();
    eraseUnusedArguments(function);
  }

  Value *gradientArgument(Function &function, const State &segment) {
    return function.addArgument(ArgumentKind::carry, gradientPrefix.str() + segment.name, segment.type);
  }

  void rebuildTapGradients(Function &tap) {
    clearFunction(tap);
    Builder builder(tap);
    for (const State &segment : module.states) {
      if (segment.role != StateRole::segment || !segment.trainable)
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      Value *shard = gradientArgument(tap, segment);
      Value *full = fullSegment(builder, shard, gradientPrefix.str() + segment.name + ".full");
      for (const SegmentSlot &slot : segment.slots) {
        ViewAttributes attributes{slot.offsetElements, Shape(module.parameter(slot.parameter)->type.shape())};
        Value *view = builder.create(Op::view, {full}, attributes)->result();
        view->setName(gradientPrefix.str() + slot.parameter);
        builder.create(Op::tap, {view}, TapAttributes{{slot.parameter}});
      }
    }
    builder.setSection({});
    builder.ret({}, {});
  }

  void rebuildUpdate(Function &update) {
    clearFunction(update);
    Builder builder(update);
    llvm::SmallVector<Value *, 8> scalars;
    for (const std::string &name : layout.scalars)
      scalars.push_back(builder.readState(*module.state(name)));
    for (const State &segment : module.states) {
      if (segment.role != StateRole::segment || !segment.trainable)
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      llvm::SmallVector<Value *, 12> operands = {builder.readState(segment), gradientArgument(update, segment)};
      for (const std::string &field : layout.fields)
        operands.push_back(builder.readState(*module.state(segment.name + "." + field)));
      operands.append(scalars.begin(), scalars.end());
      Node *node = builder.create(layout.op, operands, layout.attributes);
      builder.writeState(segment, node->result(0));
      for (size_t i = 0; i < layout.fields.size(); ++i)
        builder.writeState(*module.state(segment.name + "." + layout.fields[i]),
                           node->result(static_cast<unsigned>(i + 1)));
    }
    builder.setSection({});
    builder.ret({}, {});
  }

  /// From here on a broken rule is our fault, and the dump is for reading: where a node came from is in the train
  /// stage.
  void dropSources() {
    for (const std::unique_ptr<Function> &function : module.functions)
      for (Node *node : *function)
        node->source.clear();
  }

  void dropParameterStates() {
    std::deque<State> kept;
    for (State &state : module.states) {
      bool perParameter =
          state.role == StateRole::parameter || (state.role == StateRole::optimizer && module.parameter(state.owner));
      if (!perParameter)
        kept.push_back(std::move(state));
    }
    module.replaceStates(std::move(kept));
  }

  Module &module;
  int64_t ranks;
  OptimizerLayout layout;
  llvm::StringSet<> trained;
  llvm::StringSet<> segmentNames;
  llvm::StringMap<SlotOf> slots;
};

llvm::Error run(Module &module, const PassContext &context) {
  module.decisions = {context.options.maxInflightAllGathers, context.options.forwardPrefetch,
                      context.options.backwardPrefetch};
  StateSharder(module, context).run();
  return llvm::Error::success();
}

} // namespace

const Pass shardState = {"shard_state", Stage::train, Stage::sharded, false, run};

} // namespace fsdpc

// From "every rank has every parameter" to shards. Everything is inserted in its obviously right form: a gather where
// the parameter was read, a reduction where the gradient was returned. sinkGathers and hoistReduceScatters move them to
// where they cost least.
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/shard/accumulators.h"
#include "passes/shard/placement.h"
#include "passes/shard/segments.h"
#include "passes/support/clone.h"
#include "passes/support/optimizer_layout.h"
#include "passes/support/precision.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral gradientPrefix = "grad.";

struct SlotOf {
  const State *segment;
  const SegmentSlot *slot;
};

class StateSharder {
public:
  StateSharder(Module &module, const PassContext &context)
      : module(module), options(context.options), layout(optimizerLayout(module)), accumulators(module) {}

  llvm::Error run() {
    makeSegments();
    for (FunctionKind kind : {FunctionKind::microStep, FunctionKind::evalStep, FunctionKind::exportWeights})
      replaceReads(*module.function(kind));
    returnShards(*module.function(FunctionKind::microStep));
    for (const std::unique_ptr<Function> &function : module.functions)
      reduceScalars(*function);
    rebuildTapGradients(*module.function(FunctionKind::tapGradients));
    rebuildUpdate(*module.function(FunctionKind::update));
    if (accumulators.areNeeded())
      if (llvm::Error error = accumulators.replaceCarried())
        return error;
    dropParameterStates();
    dropSources();
    module.stage = Stage::sharded;
    return llvm::Error::success();
  }

private:
  CollectiveAttributes over(llvm::StringRef axis) const { return {{axis.str()}, module.axis(axis)->size, -1}; }

  const Unit &unitOf(const State &segment) const { return module.units[module.unitIndex(segment.unit)]; }

  /// The whole of a segment; where it is split, `name` is what arrives.
  Value *gather(Builder &builder, Value *shard, const State &segment, llvm::StringRef name) {
    if (segment.over.empty())
      return shard;
    Value *full = builder.create(Op::allGather, {shard}, over(segment.over))->result();
    full->setName(name);
    return full;
  }

  static Value *named(Value *value, llvm::StringRef name) {
    value->setName(name);
    return value;
  }

  void makeSegments() {
    llvm::StringSet<> inBackward;
    collectRounded();
    collectReduced();
    const Function &step = *module.function(FunctionKind::microStep);
    for (const Node *node : step)
      if (node->op() == Op::read && isReadInBackward(*node))
        inBackward.insert(node->get<StateAttributes>().state.name);
    SegmentRequest request{reducedIn, inBackward, rounded, options.allGatherBucketBytes, options.reduceBucketBytes};
    for (State &segment : planSegments(module, request)) {
      segment.onHost = unitOf(segment).offload == "params";
      const State &added = module.addState(std::move(segment));
      for (const SegmentSlot &slot : added.slots)
        slots[slot.parameter] = {&added, &slot};
      if (added.trainable)
        addOptimizerStates(added);
      if (added.trainable && accumulators.areNeeded())
        accumulators.addFor(added, unitOf(added));
      addReplica(added);
    }
  }

  static bool isReadInBackward(const Node &read) {
    for (const Use *use = read.result()->uses(); use; use = use->next()) {
      const Node &user = *use->user();
      bool isRead = user.op() == Op::cast ? isReadInBackward(user) : user.saving == Saving::recompute;
      if (isRead || user.section.phase == Phase::backward)
        return true;
    }
    return false;
  }

  /// The 16-bit type that every use of the parameter rounds it to; nullopt if one does not.
  static std::optional<DType> roundedType(const Node &read) {
    std::optional<DType> type;
    for (const Use *use = read.result()->uses(); use; use = use->next()) {
      if (use->user()->op() != Op::cast)
        return std::nullopt;
      DType used = use->user()->result()->type().dtype();
      if (!isFloat(used) || byteSize(used) != 2 || (type && *type != used))
        return std::nullopt;
      type = used;
    }
    return type;
  }

  /// What steps and evaluation use of a parameter, if all of it is rounded.
  void collectRounded() {
    llvm::StringSet<> otherwise;
    for (FunctionKind kind : {FunctionKind::microStep, FunctionKind::evalStep})
      for (const Node *node : *module.function(kind)) {
        if (node->op() != Op::read)
          continue;
        llvm::StringRef name = node->get<StateAttributes>().state.name;
        std::optional<DType> type = roundedType(*node);
        if (type && rounded.try_emplace(name, *type).first->second == *type)
          continue;
        otherwise.insert(name);
      }
    for (const auto &entry : otherwise)
      rounded.erase(entry.getKey());
  }

  /// What gradients are sent in, and whether optimizers take them as they come.
  void collectReduced() {
    const Node &ret = *module.function(FunctionKind::microStep)->returnNode();
    const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
    for (size_t i = 0; i < names.size(); ++i)
      if (llvm::StringRef parameter = names[i]; parameter.consume_front(gradientPrefix))
        reducedIn[parameter] = ret.operand(static_cast<unsigned>(i))->type().dtype();
    for (const Node *node : *module.function(FunctionKind::update))
      readsLowPrecision |= infoOf(*node).has(inPlace) && hasSixteenBits(node->operand(1)->type().dtype());
  }

  DType reducedType(const State &segment) const { return reducedIn.lookup(segment.slots.front().parameter); }

  void addOptimizerStates(const State &segment) {
    for (const std::string &field : layout.fields) {
      State state;
      state.name = segment.name + "." + field;
      state.role = StateRole::optimizer;
      state.type = segment.type;
      state.owner = segment.name;
      state.field = field;
      state.initialValue = layout.initialState;
      state.onHost = unitOf(segment).offload != "none";
      module.addState(std::move(state));
    }
  }

  /// What is gathered if it is not the segment: its whole that stays, or what is used rounded.
  void addReplica(const State &segment) {
    auto found = rounded.find(segment.slots.front().parameter);
    DType usedIn = found == rounded.end() ? segment.type.dtype() : found->second;
    bool isWhole = !segment.over.empty() && placementOf(unitOf(segment)).copy == WholeCopy::always;
    if (!isWhole && usedIn == segment.type.dtype())
      return;
    State state;
    state.name =
        segment.name + (usedIn == segment.type.dtype() ? "" : "." + nameOf(usedIn).str()) + (isWhole ? ".full" : "");
    state.role = StateRole::replica;
    state.type = Type(usedIn, {isWhole ? segment.paddedElements : segment.type.elements()});
    state.over = isWhole ? "" : segment.over;
    state.owner = segment.name;
    state.unit = segment.unit;
    state.paddedElements = segment.paddedElements;
    state.trainable = segment.trainable;
    state.slots = segment.slots;
    state.onHost = segment.onHost && !isWhole;
    replicas[segment.name] = &module.addState(std::move(state));
  }

  /// A parameter becomes a view of its segment's whole: gathered right here, or where a copy of it lives.
  void replaceReads(Function &function) {
    std::map<std::pair<const State *, Section>, Value *> wholes; ///< what is whole is read once per section
    std::vector<Node *> replaced;
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
      const State &source = sourceOf(*node, *segment);
      Value *full;
      if (source.over.empty()) {
        Value *&whole = wholes[{&source, node->section}];
        full = whole ? whole : whole = builder.readState(source);
      } else {
        full = gather(builder, builder.readState(source), source, source.name + ".full");
      }
      ViewAttributes attributes{slot->offsetElements, Shape(node->result()->type().shape())};
      Value *view = builder.create(Op::view, {full}, attributes)->result();
      view->setName(slot->parameter);
      bool isRounded = view->type().dtype() != node->result()->type().dtype();
      for (Use *use = node->result()->uses(); isRounded && use; use = use->next())
        use->user()->result()->replaceAllUsesWith(view);
      if (!isRounded)
        node->result()->replaceAllUsesWith(view);
      replaced.push_back(node);
    }
    for (Node *read : replaced)
      eraseWithCasts(*read);
  }

  static void eraseWithCasts(Node &read) {
    while (Use *cast = read.result()->uses())
      cast->user()->erase();
    read.erase();
  }

  /// What a read of one of the segment's parameters reads: the replica, unless it is rounded and this use is not.
  const State &sourceOf(const Node &read, const State &segment) const {
    const State *replica = replicas.lookup(segment.name);
    bool fits =
        replica && (replica->type.dtype() == segment.type.dtype() || roundedType(read) == replica->type.dtype());
    return fits ? *replica : segment;
  }

  /// grad.<parameter> = batch_sum(local) becomes grad.<segment> = reduce_scatter(pack(locals)), or is added to what the
  /// micro-steps before have summed.
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
        if (accumulators.areNeeded()) {
          accumulateSegment(builder, segment, local);
          continue;
        }
        values.push_back(reduceSegment(builder, segment, local));
        names.push_back(gradientPrefix.str() + segment.name);
      }
    ret->erase();
    for (Node *sum : sums)
      sum->erase();
    builder.setInsertionPoint(nullptr);
    builder.setSection({});
    builder.ret(values, names);
    eraseDeadNodes(step); // roundings for a sum that is now in update
  }

  Value *packed(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local, bool isRounded = true) {
    PackAttributes attributes{{}, segment.paddedElements};
    llvm::SmallVector<Value *, 8> parts;
    for (const SegmentSlot &slot : segment.slots) {
      Value *part = local.lookup(slot.parameter);
      parts.push_back(isRounded ? part : beforeRounding(builder, part, segment.type.dtype()));
      attributes.offsets.push_back(slot.offsetElements);
    }
    return named(builder.create(Op::pack, parts, attributes)->result(), gradientPrefix.str() + segment.name + ".full");
  }

  /// A summand as it was added up, before it is rounded to what is sent.
  static Value *beforeRounding(Builder &builder, Value *summand, DType dtype) {
    const Node *cast = summand->definer();
    bool isCast = cast && cast->op() == Op::cast && cast->operand(0)->type().dtype() == dtype;
    return isCast ? cast->operand(0) : builder.cast(summand, dtype);
  }

  /// The axis of the ranks that hold the same share of a segment's gradients; empty: nobody else does.
  std::string replicasOf(const State &segment) const {
    return axisOfReplicas(module, segment.over.empty() ? Split::none : placementOf(unitOf(segment)).split);
  }

  /// Over the ranks that split the segment each keeps its share.
  Value *scattered(Builder &builder, const State &segment, Value *sum) {
    if (segment.over.empty())
      return sum;
    return named(builder.create(Op::reduceScatter, {sum}, over(segment.over))->result(),
                 gradientPrefix.str() + segment.name + (replicasOf(segment).empty() ? "" : ".replica"));
  }

  /// The others hold the same share and sum it.
  Value *summedOverReplicas(Builder &builder, const State &segment, Value *share) {
    std::string replicas = replicasOf(segment);
    if (replicas.empty())
      return share;
    return named(builder.create(Op::allReduce, {share}, over(replicas))->result(), gradientPrefix.str() + segment.name);
  }

  Value *reduceSegment(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local) {
    builder.setSection({module.unitIndex(segment.unit), Phase::backward});
    return summedOverReplicas(builder, segment, scattered(builder, segment, packed(builder, segment, local)));
  }

  /// What makes the sum smaller happens in every micro-step, what does not once, in update.
  void accumulateSegment(Builder &builder, const State &segment, const llvm::StringMap<Value *> &local) {
    builder.setSection({module.unitIndex(segment.unit), Phase::backward});
    bool isSentLater = segment.over.empty() || keepsGradients(unitOf(segment));
    Value *sum = packed(builder, segment, local, !isSentLater);
    accumulators.add(builder, accumulators.of(segment), isSentLater ? sum : scattered(builder, segment, sum));
  }

  /// grad.<segment> where all micro-steps have run.
  Value *accumulated(Builder &builder, const State &segment) {
    Value *sum = named(builder.readState(accumulators.of(segment)), accumulators.of(segment).name);
    bool isScattered = !segment.over.empty() && !keepsGradients(unitOf(segment));
    if (isScattered && replicasOf(segment).empty())
      return sum;
    sum = builder.cast(sum, reducedType(segment));
    return summedOverReplicas(builder, segment, isScattered ? sum : scattered(builder, segment, sum));
  }

  /// What is left of batch_sum are scalars and other values every rank needs whole.
  void reduceScalars(Function &function) {
    std::string everybody = axisOfAll(module);
    for (Node *node : function) {
      if (node->op() != Op::batchSum)
        continue;
      Value *result = node->operand(0);
      if (!everybody.empty()) {
        Builder builder(function, node);
        builder.inherit(*node);
        result = builder.create(Op::allReduce, {node->operand(0)}, over(everybody))->result();
        result->setName(node->result()->name());
      }
      node->result()->replaceAllUsesWith(accumulators.sumScalar(*node, result));
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

  Value *gradientOf(Builder &builder, const State &segment) {
    if (accumulators.areNeeded())
      return accumulated(builder, segment);
    return builder.function().addArgument(ArgumentKind::carry, gradientPrefix.str() + segment.name,
                                          segment.type.withDType(reducedType(segment)));
  }

  /// As the optimizer and the norm take it.
  Value *readGradientOf(Builder &builder, const State &segment) {
    Value *gradient = gradientOf(builder, segment);
    return readsLowPrecision ? gradient : builder.cast(gradient, segment.type.dtype());
  }

  void rebuildTapGradients(Function &tap) {
    clearFunction(tap);
    Builder builder(tap);
    Value *unscale = readUnscale(builder);
    for (const State &segment : module.states) {
      if (segment.role != StateRole::segment || !segment.trainable)
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      Value *shard = gradientOf(builder, segment);
      Value *full = gather(builder, shard, segment, gradientPrefix.str() + segment.name + ".full");
      for (const SegmentSlot &slot : segment.slots) {
        ViewAttributes attributes{slot.offsetElements, Shape(module.parameter(slot.parameter)->type.shape())};
        Value *view = builder.create(Op::view, {full}, attributes)->result();
        view->setName(gradientPrefix.str() + slot.parameter);
        Value *wide = builder.cast(view, segment.type.dtype());
        builder.create(Op::tap, {unscaled(builder, wide, unscale)}, TapAttributes{{slot.parameter}});
      }
    }
    builder.setSection({});
    builder.ret({}, {});
  }

  /// Of all segments, for what needs them before the first optimizer.
  llvm::StringMap<Value *> allGradients(Builder &builder) {
    llvm::StringMap<Value *> gradients;
    for (const State &segment : module.states)
      if (segment.role == StateRole::segment && segment.trainable) {
        builder.setSection({module.unitIndex(segment.unit), Phase::update});
        gradients[segment.name] = readGradientOf(builder, segment);
      }
    builder.setSection({});
    return gradients;
  }

  /// One accumulator for the gradients that are split over the same ranks, on each of which its sum over them arrives.
  /// Ranks that hold the same gradients, or all of them, have nothing to add.
  std::vector<Value *> sumSquares(Builder &builder, const llvm::StringMap<Value *> &gradients) {
    std::map<std::string, std::vector<Value *>> byAxis;
    for (const State &segment : module.states)
      if (Value *gradient = gradients.lookup(segment.name))
        byAxis[segment.over].push_back(gradient);
    std::vector<Value *> accumulators;
    for (const auto &[axis, shards] : byAxis) {
      Value *sum = named(builder.create(Op::squareSum, shards)->result(), "square_sum");
      accumulators.push_back(
          axis.empty() ? sum : named(builder.create(Op::allReduce, {sum}, over(axis))->result(), "square_sum.all"));
    }
    return accumulators;
  }

  void rebuildUpdate(Function &update) {
    clearFunction(update);
    Builder builder(update);
    llvm::SmallVector<Value *, 8> scalars;
    for (const std::string &name : layout.scalars)
      scalars.push_back(builder.readState(*module.state(name)));
    llvm::StringMap<Value *> gradients;
    std::optional<GuardBuilder> guard;
    if (layout.guard) {
      gradients = allGradients(builder);
      guard.emplace(builder, *layout.guard, sumSquares(builder, gradients));
      scalars.append({guard->scale(), guard->applies()});
    }
    for (const State &segment : module.states) {
      if (segment.role != StateRole::segment || !segment.trainable)
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      Value *gradient = guard ? gradients.lookup(segment.name) : readGradientOf(builder, segment);
      llvm::SmallVector<Value *, 12> operands = {builder.readState(segment), gradient};
      for (const std::string &field : layout.fields)
        operands.push_back(builder.readState(*module.state(segment.name + "." + field)));
      const State *replica = replicas.lookup(segment.name);
      OptimizerAttributes attributes = layout.attributes;
      attributes.copies = replica && replica->over == segment.over;
      if (attributes.copies)
        operands.push_back(builder.readState(*replica));
      operands.append(scalars.begin(), scalars.end());
      Node *node = builder.create(layout.op, operands, attributes);
      builder.writeState(segment, node->result(0));
      for (size_t i = 0; i < layout.fields.size(); ++i)
        builder.writeState(*module.state(segment.name + "." + layout.fields[i]),
                           node->result(static_cast<unsigned>(i + 1)));
      if (replica)
        refresh(builder, segment, *replica, *node);
      if (accumulators.areNeeded())
        accumulators.clear(builder, accumulators.of(segment));
    }
    builder.setSection({});
    accumulators.clearScalars(builder);
    if (guard)
      guard->finish();
    else
      builder.ret({}, {});
  }

  void refresh(Builder &builder, const State &segment, const State &replica, const Node &optimizer) {
    if (replica.over == segment.over) {
      builder.writeState(replica, optimizer.result(optimizer.resultCount() - 1));
      return;
    }
    Value *shard = builder.cast(optimizer.result(0), replica.type.dtype());
    builder.writeState(replica, gather(builder, shard, segment, replica.name));
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
  const PipelineOptions &options;
  OptimizerLayout layout;
  llvm::StringMap<DType> rounded;          ///< parameters that steps use in this 16-bit type only
  llvm::StringMap<DType> reducedIn;        ///< what the gradients of trained parameters are sent in
  bool readsLowPrecision = false;          ///< optimizers take gradients of 16 bits as they are
  llvm::StringMap<const State *> replicas; ///< by the segment that they repeat
  llvm::StringMap<SlotOf> slots;
  Accumulators accumulators;
};

llvm::Error run(Module &module, const PassContext &context) {
  const PipelineOptions &options = context.options;
  module.decisions = {options.maxInflightAllGathers, options.forwardPrefetch,
                      options.backwardPrefetch,      options.overlapComm,
                      options.ownReduceCommunicator, options.offloadsActivations ? options.offloadShare : 0};
  if (llvm::Error error = meshFor(module, options).moveInto(module.mesh))
    return error;
  return StateSharder(module, context).run();
}

} // namespace

const Pass shardState = {"shard_state", Stage::train, Stage::sharded, false, run};

} // namespace fsdpc

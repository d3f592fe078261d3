// From "every rank has every parameter" to shards. Collectives are inserted in their most direct form: a gather where
// the parameter was read, a reduction where the gradient was returned. sinkGathers and hoistReduceScatters move them to
// where they cost least.
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/shard/gradient_sums.h"
#include "passes/shard/placement.h"
#include "passes/support/clone.h"

namespace fsdpc {

namespace {

class StateSharder {
public:
  StateSharder(Module &module, const RowTables &tables, const PassContext &context)
      : module(module), layout(optimizerLayout(module)), accumulators(module), states(module, tables, context.options),
        gradientSums(module, states, accumulators, context.options), statistics(module) {}

  llvm::Error run() {
    states.add(layout, accumulators, statistics);
    statistics.updateRuns(*module.function(FunctionKind::microStep));
    for (FunctionKind kind : {FunctionKind::microStep, FunctionKind::evalStep, FunctionKind::predict,
                              FunctionKind::exportWeights, FunctionKind::exportAverages})
      if (Function *function = module.function(kind))
        replaceReads(*function);
    returnShards(*module.function(FunctionKind::microStep));
    for (const std::unique_ptr<Function> &function : module.functions)
      reduceScalars(*function);
    rebuildTapGradients(*module.function(FunctionKind::tapGradients));
    rebuildUpdate(*module.function(FunctionKind::update));
    if (accumulators.areNeeded())
      if (llvm::Error error = accumulators.replaceCarried())
        return error;
    states.dropParameterStates();
    dropSources();
    module.stage = Stage::sharded;
    return llvm::Error::success();
  }

private:
  /// The unsharded segment. Where it is split, the gathered value is called `name`.
  Value *gather(Builder &builder, Value *shard, const State &segment, llvm::StringRef name) {
    if (segment.over.empty())
      return shard;
    Value *full = builder.create(Op::allGather, {shard}, overAxis(module, segment.over))->result();
    full->setName(name);
    return full;
  }

  static Value *named(Value *value, llvm::StringRef name) {
    value->setName(name);
    return value;
  }

  /// Replaces a parameter by a view of its unsharded segment: gathered here, or read from its replica.
  void replaceReads(Function &function) {
    std::map<std::pair<const State *, Section>, Value *> wholes; ///< unsharded values, read once per section
    std::vector<Node *> replaced;
    for (Node *node : function) {
      if (node->op() != Op::read)
        continue;
      const State *read = stateOf(*node);
      const bool isAverage = read && read->role == StateRole::optimizer && read->field == names::averageField;
      const auto [segment, slot] = states.find(isAverage ? read->owner : node->get<StateAttributes>().state.name);
      if (!segment)
        continue;
      Builder builder(function, node);
      builder.inherit(*node);
      builder.setSource("");
      builder.setUnit(module.unitIndex(segment->unit));
      const State &source = isAverage ? *averageOf(module, segment->name) : states.sourceOf(*node, *segment);
      if (states.isRowTable(*segment)) {
        if (exportsWeights(function.kind()))
          exportTable(builder, *node, *segment, isAverage ? source : *segment);
        else
          lookUpRows(*node, *segment, source);
        if (!hasUses(*node)) {
          replaced.push_back(node);
          continue;
        }
      }
      Value *full;
      const State &split = isAverage ? *segment : source; // an average is split as its segment
      if (split.over.empty()) {
        Value *&whole = wholes[{&source, node->section}];
        full = whole ? whole : whole = builder.readState(source);
      } else {
        full = gather(builder, builder.readState(source), split, source.name + ".full");
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
    for (Node *node : retired)
      node->erase();
    retired.clear();
    for (Node *read : replaced)
      eraseWithCasts(*read);
  }

  /// True if the read has uses, perhaps through casts.
  static bool hasUses(const Node &read) {
    for (const Use *use = read.result()->uses(); use; use = use->next())
      if (use->user()->op() != Op::cast || use->user()->result()->hasUses())
        return true;
    return false;
  }

  static void eraseWithCasts(Node &read) {
    while (Use *cast = read.result()->uses())
      cast->user()->erase();
    read.erase();
  }

  /// Replaces the tap of a row table by taps of its parts.
  void exportTable(Builder &builder, Node &read, const State &segment, const State &source) {
    RowTables::tapParts(builder, *builder.readState(source), segment, "");
    while (Use *tap = read.result()->uses())
      retire(*tap->user());
  }

  /// For nodes that the walk over a function may visit next.
  void retire(Node &node) {
    node.dropOperands();
    retired.push_back(&node);
  }

  /// Replaces the lookups of a row table by exchanges of rows.
  void lookUpRows(Node &read, const State &segment, const State &source) {
    std::vector<Node *> lookups;
    for (Use *use = read.result()->uses(); use; use = use->next()) {
      if (isRowLookup(*use))
        lookups.push_back(use->user());
      for (Use *next = use->user()->op() == Op::cast ? use->user()->result()->uses() : nullptr; next;
           next = next->next())
        if (isRowLookup(*next))
          lookups.push_back(next->user());
    }
    for (Node *lookup : lookups) {
      Builder builder(*lookup->function(), lookup);
      builder.inherit(*lookup);
      Value *rows = RowTables::lookUp(builder, *lookup->operand(1), segment, source);
      Value *typed = builder.cast(rows, lookup->result()->type().dtype());
      Value *result = builder.reshape(typed, lookup->result()->type().shape());
      result->setName(lookup->result()->name());
      lookup->result()->replaceAllUsesWith(result);
      retire(*lookup);
    }
  }

  /// Replaces grad.<parameter> = batch_sum(local) by grad.<segment> = reduce_scatter(pack(locals)), or adds it to the
  /// sum of the previous micro-steps.
  void returnShards(Function &step) {
    Node *ret = step.returnNode();
    llvm::SmallVector<Value *, 8> values;
    std::vector<std::string> names;
    std::vector<Node *> sums;
    GradientSums::Local local;
    const std::vector<std::string> oldNames = ret->get<ReturnAttributes>().names;
    for (size_t i = 0; i < oldNames.size(); ++i) {
      Value *value = ret->operand(static_cast<unsigned>(i));
      llvm::StringRef parameter = oldNames[i];
      if (!parameter.consume_front(names::gradientPrefix)) {
        values.push_back(value);
        names.push_back(oldNames[i]);
        continue;
      }
      takeSums(*value, parameter, local, sums);
    }
    Builder builder(step, ret);
    for (const State &segment : module.states)
      if (isTrainedSegment(segment)) {
        if (accumulators.areNeeded()) {
          gradientSums.accumulate(builder, segment, local);
          continue;
        }
        values.push_back(gradientSums.reduced(builder, segment, local));
        names.push_back(names::gradientPrefix.str() + segment.name);
      }
    ret->erase();
    for (Node *sum : sums)
      sum->erase();
    builder.setInsertionPoint(nullptr);
    builder.setSection({});
    builder.ret(values, names);
    eraseDeadNodes(step); // casts for a sum that is now in update
  }

  /// Adds the gradient's sums to `local`, and the nodes that returnShards replaces to `sums`, users first.
  void takeSums(const Value &gradient, llvm::StringRef parameter, GradientSums::Local &local,
                std::vector<Node *> &sums) {
    Node *definer = gradient.definer();
    const State *segment = states.find(parameter).segment;
    if (SplitGradient split = splitGradientOf(gradient); split.add) {
      assert(states.exchangesGradient(*segment) && "only gradients that are exchanged are split");
      local.others[parameter] = split.others->operand(0);
      local.lookups[parameter] = split.lookup->operand(0);
      sums.insert(sums.end(), {split.add, split.others, split.lookup});
      return;
    }
    assert(definer && definer->op() == Op::batchSum && "a gradient is a sum over the ranks");
    (states.exchangesGradient(*segment) ? local.lookups : local.others)[parameter] = definer->operand(0);
    sums.push_back(definer);
  }

  /// The remaining batch_sums are scalars and other values that every rank needs in full.
  void reduceScalars(Function &function) {
    std::string everybody = axisOfAll(module);
    for (Node *node : function) {
      if (node->op() != Op::batchSum)
        continue;
      Value *result = node->operand(0);
      if (!everybody.empty()) {
        Builder builder(function, node);
        builder.inherit(*node);
        result = builder.create(Op::allReduce, {node->operand(0)}, overAxis(module, everybody))->result();
        result->setName(node->result()->name());
      }
      bool isOfMicroStep = node->get<BatchSumAttributes>().ranks > 0;
      node->result()->replaceAllUsesWith(isOfMicroStep ? result : accumulators.sumScalar(*node, result));
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

  void rebuildTapGradients(Function &tap) {
    clearFunction(tap);
    Builder builder(tap);
    Value *unscale = readUnscale(builder);
    for (const State &segment : module.states) {
      if (!isTrainedSegment(segment))
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      Value *shard = gradientSums.gradient(builder, segment);
      if (states.isRowTable(segment) && !unscale && shard->type().dtype() == segment.type.dtype()) {
        RowTables::tapParts(builder, *shard, segment, names::gradientPrefix);
        continue;
      }
      Value *full = gather(builder, shard, segment, names::gradientPrefix.str() + segment.name + ".full");
      for (const SegmentSlot &slot : segment.slots) {
        ViewAttributes attributes{slot.offsetElements, Shape(module.parameter(slot.parameter)->type.shape())};
        Value *view = builder.create(Op::view, {full}, attributes)->result();
        view->setName(names::gradientPrefix.str() + slot.parameter);
        Value *wide = builder.cast(view, segment.type.dtype());
        builder.create(Op::tap, {unscaled(builder, wide, unscale)}, TapAttributes{{slot.parameter}});
      }
    }
    builder.setSection({});
    builder.ret({}, {});
  }

  /// The gradients of all segments, for nodes that need them before the first optimizer.
  llvm::StringMap<Value *> allGradients(Builder &builder) {
    llvm::StringMap<Value *> gradients;
    for (const State &segment : module.states)
      if (isTrainedSegment(segment)) {
        builder.setSection({module.unitIndex(segment.unit), Phase::update});
        gradients[segment.name] = gradientSums.operand(builder, segment);
      }
    builder.setSection({});
    return gradients;
  }

  /// One accumulator for the gradients that are split over the same ranks. Their sum over these ranks is available on
  /// each of them. Ranks that hold the same gradients are not summed over.
  std::vector<Value *> sumSquares(Builder &builder, const llvm::StringMap<Value *> &gradients) {
    std::map<std::string, std::vector<Value *>> byAxis;
    for (const State &segment : module.states)
      if (Value *gradient = gradients.lookup(segment.name))
        byAxis[segment.over].push_back(gradient);
    std::vector<Value *> accumulators;
    for (const auto &[axis, shards] : byAxis) {
      Value *sum = named(builder.create(Op::squareSum, shards)->result(), "square_sum");
      accumulators.push_back(
          axis.empty()
              ? sum
              : named(builder.create(Op::allReduce, {sum}, overAxis(module, axis))->result(), "square_sum.all"));
    }
    return accumulators;
  }

  void rebuildUpdate(Function &update) {
    clearFunction(update);
    Builder builder(update);
    ScalarReads scalars(builder);
    for (const State &segment : module.states)
      if (isTrainedSegment(segment))
        for (const std::string &name : states.scalarsOf(segment))
          scalars.read(name);
    llvm::SmallVector<Value *, 2> guardOperands;
    llvm::StringMap<Value *> gradients;
    std::optional<GuardBuilder> guard;
    if (layout.guard) {
      gradients = allGradients(builder);
      guard.emplace(builder, *layout.guard, sumSquares(builder, gradients));
      guardOperands = {guard->scale(), guard->applies()};
    }
    for (const State &segment : module.states) {
      if (!isTrainedSegment(segment))
        continue;
      builder.setSection({module.unitIndex(segment.unit), Phase::update});
      Value *gradient = guard ? gradients.lookup(segment.name) : gradientSums.operand(builder, segment);
      llvm::SmallVector<Value *, 12> operands = {builder.readState(segment), gradient};
      for (const std::string &field : layout.fields)
        operands.push_back(builder.readState(*module.state(segment.name + "." + field)));
      const State *replica = states.replicaOf(segment);
      OptimizerAttributes attributes = layout.attributes;
      attributes.copies = replica && replica->over == segment.over;
      if (attributes.copies)
        operands.push_back(builder.readState(*replica));
      for (const std::string &name : states.scalarsOf(segment))
        operands.push_back(scalars.read(name));
      operands.append(guardOperands);
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

  /// From here on a broken rule is an internal error, and dumps should be readable: the train stage shows where a node
  /// is from. Nodes whose indices the program checks keep their source.
  void dropSources() {
    for (const std::unique_ptr<Function> &function : module.functions)
      for (Node *node : *function)
        if (!hasIndices(node->op()))
          node->source.clear();
  }
  static bool hasIndices(Op op) {
    return op == Op::gather || op == Op::gatherNd || op == Op::scatterNd || op == Op::scatterAdd ||
           op == Op::gatherRows || op == Op::scatterRows;
  }

  Module &module;
  OptimizerLayout layout;
  Accumulators accumulators;
  ShardedStates states;
  GradientSums gradientSums;
  RunningStatistics statistics;
  std::vector<Node *> retired; ///< replaced, without operands, still in the function
};

llvm::Error run(Module &module, const PassContext &context) {
  const PipelineOptions &options = context.options;
  module.decisions = options.decisions;
  module.decisions.offloadActivations = options.offloadsActivations ? options.offloadShare : 0;
  if (llvm::Error error = meshFor(module, options).moveInto(module.mesh))
    return error;
  const RowTables tables = RowTables::decide(module);
  llvm::append_range(context.remarks, tables.remarks());
  return StateSharder(module, tables, context).run();
}

} // namespace

const Pass shardState = {"shard_state",
                         Stage::train,
                         Stage::sharded,
                         false,
                         run,
                         {FunctionKind::microStep, FunctionKind::evalStep, FunctionKind::exportWeights,
                          FunctionKind::tapGradients, FunctionKind::update}};

} // namespace fsdpc

#include "passes/shard/running_statistics.h"

#include "ir/ops/attributes.h"
#include "passes/shard/placement.h"
#include <map>
#include <tuple>

namespace fsdpc {

namespace {

constexpr int64_t slotAlignmentBytes = 128;

/// The write of each buffer that a step updates.
llvm::StringMap<Node *> writesOf(const Function &step) {
  llvm::StringMap<Node *> writes;
  for (Node *node : step)
    if (node->op() == Op::write && node->operand(0)->definer() &&
        node->operand(0)->definer()->op() == Op::updateStatistics)
      writes[node->get<StateAttributes>().state.name] = node;
  return writes;
}

bool isSummedOverRanks(const Value &statistic) {
  return statistic.definer() && statistic.definer()->op() == Op::batchSum;
}

void eraseUnused(Node *node) {
  if (node && !node->result()->hasUses())
    node->erase();
}

} // namespace

void RunningStatistics::add(llvm::function_ref<void(const State &, const SegmentSlot &)> placed) {
  llvm::StringMap<Node *> writes = writesOf(*module.function(FunctionKind::microStep));
  std::map<std::tuple<bool, double, bool, DType>, std::vector<const Parameter *>> groups;
  for (const Parameter &parameter : module.parameters) {
    if (!parameter.isBuffer || !module.state(parameter.name))
      continue;
    const Node *write = writes.lookup(parameter.name);
    const Node *update = write ? write->operand(0)->definer() : nullptr;
    const double momentum = update ? update->get<UpdateStatisticsAttributes>().momentum : 0;
    const bool isSummed = update && isSummedOverRanks(*update->operand(1));
    groups[{update != nullptr, momentum, isSummed, parameter.type.dtype()}].push_back(&parameter);
  }
  for (const auto &[kind, buffers] : groups) {
    Run run{nullptr, std::get<double>(kind), std::get<2>(kind), {}};
    for (const Parameter *buffer : buffers)
      if (Node *write = writes.lookup(buffer->name))
        run.writes.push_back(write);
    addState(run, buffers, std::get<DType>(kind));
    for (const SegmentSlot &slot : run.state->slots)
      placed(*run.state, slot);
    runs.push_back(std::move(run));
  }
}

void RunningStatistics::addState(Run &run, llvm::ArrayRef<const Parameter *> buffers, DType dtype) {
  State state;
  const std::string stem = run.writes.empty() ? "buffers" : "running_statistics";
  state.name = stem;
  for (int i = 1; module.state(state.name); ++i)
    state.name = stem + "." + std::to_string(i);
  state.role = StateRole::buffer;
  state.trainable = false;
  const int64_t atom = slotAlignmentBytes / byteSize(dtype);
  int64_t end = 0;
  for (const Parameter *buffer : buffers) {
    state.slots.push_back({buffer->name, roundUp(end, atom), buffer->type.elements()});
    end = state.slots.back().offsetElements + buffer->type.elements();
  }
  state.paddedElements = roundUp(std::max<int64_t>(end, 1), atom);
  state.type = Type(dtype, {state.paddedElements});
  run.state = &module.addState(std::move(state));
}

/// Packs this rank's updates of the region, in the region's layout. Values that other nodes read too are copied.
Value *RunningStatistics::packed(Builder &builder, const Run &run) {
  PackAttributes attributes{{}, run.state->paddedElements};
  llvm::SmallVector<Value *, 8> parts;
  for (size_t i = 0; i < run.writes.size(); ++i) {
    Value *statistic = run.writes[i]->operand(0)->definer()->operand(1);
    if (run.isSummed)
      statistic = statistic->definer()->operand(0);
    parts.push_back(statistic->hasOneUse() ? statistic : builder.create(Op::copy, {statistic})->result());
    attributes.offsets.push_back(run.state->slots[i].offsetElements);
  }
  Value *pack = builder.create(Op::pack, parts, attributes)->result();
  pack->setName(run.state->name + ".new");
  return pack;
}

void RunningStatistics::updateRuns(Function &step) {
  for (const Run &run : runs) {
    if (run.writes.empty())
      continue;
    Builder builder(step, step.returnNode());
    Value *statistic = packed(builder, run);
    std::string everybody = axisOfAll(module);
    if (run.isSummed && !everybody.empty()) {
      statistic = builder.create(Op::allReduce, {statistic}, overAxis(module, everybody))->result();
      statistic->setName(run.state->name + ".average");
    }
    Value *old = builder.readState(*run.state);
    Value *kept = builder.mul(old, builder.constantLike(old, 1 - run.momentum));
    Value *added = builder.mul(statistic, builder.constantLike(old, run.momentum));
    builder.writeState(*run.state, builder.add(kept, added));
    for (Node *write : run.writes) {
      Node *update = write->operand(0)->definer();
      Node *read = update->operand(0)->definer(), *sum = run.isSummed ? update->operand(1)->definer() : nullptr;
      write->erase();
      update->erase();
      eraseUnused(read);
      eraseUnused(sum);
    }
  }
}

} // namespace fsdpc

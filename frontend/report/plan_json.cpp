#include "frontend/report/plan_json.h"

#include "frontend/report/checkpoint_bytes.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fsdpc {

namespace {

/// "all_gather.start" -> "all_gather"
llvm::StringRef collectiveName(const Node &start) { return infoOf(start).name.split('.').first; }

llvm::json::Array unitsJson(const Module &module) {
  llvm::json::Array units;
  for (const Unit &unit : module.units) {
    int64_t elements = 0, padded = 0, shardBytes = 0;
    llvm::json::Array parameters;
    for (const State &state : module.states) {
      if (state.role != StateRole::segment || state.unit != unit.name)
        continue;
      padded += state.paddedElements;
      shardBytes += state.type.bytes();
      for (const SegmentSlot &slot : state.slots) {
        elements += slot.elements;
        parameters.push_back(slot.parameter);
      }
    }
    if (padded == 0)
      continue;
    units.push_back(llvm::json::Object{{"name", unit.name},
                                       {"source", unit.source},
                                       {"parameters", std::move(parameters)},
                                       {"elements", elements},
                                       {"padded_elements", padded},
                                       {"shard_bytes", shardBytes},
                                       {"strategy", spelled(unit.choices.strategy)}});
  }
  return units;
}

llvm::json::Object memoryJson(const Module &module, const MemoryReport &memory) {
  llvm::json::Object byClass;
  for (size_t i = 0; i < memoryClassCount; ++i)
    byClass[nameOf(static_cast<MemoryClass>(i))] = memory.byClass[i];
  llvm::json::Object spaces;
  for (Space space : allSpaces)
    spaces[nameOf(space)] = module.facts.arenaBytes(space);
  llvm::json::Array live;
  for (const LiveValue &value : memory.peakLive)
    live.push_back(llvm::json::Object{{"value", value.value}, {"bytes", value.bytes}});
  return llvm::json::Object{{"total_bytes", memory.totalBytes},
                            {"by_class", std::move(byClass)},
                            {"live_at_peak_bytes", memory.liveAtPeakBytes},
                            {"live_max_bytes", memory.liveAtPeakBytes},
                            {"spaces", std::move(spaces)},
                            {"peak", llvm::json::Object{{"function", memory.peakFunction},
                                                        {"node", memory.peakNode},
                                                        {"unit", memory.peakUnit},
                                                        {"live", std::move(live)}}},
                            {"theoretical_min_bytes", memory.theoreticalMinBytes},
                            {"host_link_bytes", memory.hostLinkBytes},
                            {"predict_bytes", memory.predictBytes},
                            {"checkpoint_staging_bytes", checkpointStagingBytes(module)}};
}

llvm::json::Object collectiveJson(const Module &module, const TimelineCollective &collective,
                                  const llvm::DenseMap<const Node *, int64_t> &positions) {
  const Node &start = *collective.start;
  const auto &attributes = start.get<CollectiveAttributes>();
  int64_t fullBytes = std::max(start.operand(0)->type().bytes(), start.result()->type().bytes());
  return llvm::json::Object{{"id", attributes.id},
                            {"op", collectiveName(start)},
                            {"unit", start.unit < 0 ? "" : module.units[start.unit].name},
                            {"function", nameOf(start.function()->kind())},
                            {"calls_per_step", module.callsPerStep(start.function()->kind())},
                            {"dtype", nameOf(start.result()->type().dtype())},
                            {"bytes", fullBytes},
                            {"group", attributes.over.name},
                            {"start", positions.lookup(collective.start)},
                            {"wait", collective.wait ? positions.lookup(collective.wait) : -1},
                            {"hidden_behind", hiddenBehindText(collective)},
                            {"predicted_us", collective.endMicroseconds - collective.beginMicroseconds},
                            {"predicted_exposed_us", collective.exposedMicroseconds},
                            {"why_not_earlier", whyNotEarlier(collective)}};
}

llvm::json::Array copiesJson(const Module &module, const Timeline &timeline) {
  llvm::json::Array copies;
  for (const FunctionTimeline &function : timeline.functions)
    for (const TimelineCollective &copy : function.copies)
      copies.push_back(llvm::json::Object{{"op", copy.start->op() == Op::offloadStart ? "offload" : "reload"},
                                          {"value", copy.start->operand(0)->name()},
                                          {"unit", copy.start->unit < 0 ? "" : module.units[copy.start->unit].name},
                                          {"function", nameOf(function.function->kind())},
                                          {"calls_per_step", function.callsPerStep},
                                          {"bytes", copy.start->operand(0)->type().bytes()},
                                          {"hidden_behind", hiddenBehindText(copy)},
                                          {"predicted_us", copy.endMicroseconds - copy.beginMicroseconds},
                                          {"predicted_exposed_us", copy.exposedMicroseconds}});
  return copies;
}

llvm::json::Array collectivesJson(const Module &module, const Timeline &timeline) {
  llvm::DenseMap<const Node *, int64_t> positions;
  for (const std::unique_ptr<Function> &function : module.functions) {
    int64_t position = 0;
    for (Node *node : *function)
      positions[node] = position++;
  }
  llvm::json::Array collectives;
  for (const FunctionTimeline &function : timeline.functions)
    for (const TimelineCollective &collective : function.collectives)
      collectives.push_back(collectiveJson(module, collective, positions));
  return collectives;
}

llvm::json::Object initialJson(const Parameter &parameter) {
  if (parameter.hasValue)
    return llvm::json::Object{{"kind", "file"}};
  const InitialValues initial = parameter.initial.value_or(InitialValues());
  llvm::json::Object object{{"kind", nameOf(initial.kind)}, {"by", initial.origin}};
  switch (initial.kind) {
  case InitialKind::constant: object["value"] = initial.first; break;
  case InitialKind::uniform:
    object["low"] = initial.first;
    object["high"] = initial.second;
    break;
  case InitialKind::normal:
    object["mean"] = initial.first;
    object["std"] = initial.second;
    break;
  }
  return object;
}

llvm::json::Array parametersJson(const Module &module) {
  llvm::StringMap<int64_t> offsets;
  for (const State &state : module.states)
    for (const SegmentSlot &slot : state.slots)
      offsets[slot.parameter] = slot.offsetElements;
  llvm::json::Array parameters;
  for (const Parameter &parameter : module.parameters) {
    llvm::json::Array uses;
    for (const ParameterUse &use : parameter.uses)
      uses.push_back(llvm::json::Object{{"node", use.node}, {"input", use.input}});
    parameters.push_back(llvm::json::Object{{"name", parameter.name},
                                            {"onnx_initializer", parameter.initializer},
                                            {"shape", llvm::json::Array(parameter.type.shape())},
                                            {"dtype", nameOf(parameter.type.dtype())},
                                            {"trainable", parameter.trainable},
                                            {"unit", parameter.unit},
                                            {"offset", offsets.lookup(parameter.name)},
                                            {"uses", std::move(uses)},
                                            {"recovered", parameter.recovered},
                                            {"other_names", llvm::json::Array(parameter.otherNames)},
                                            {"initial", initialJson(parameter)}});
  }
  return parameters;
}

} // namespace

std::string planJson(const Module &planned, const MemoryReport &memory, const Timeline &timeline) {
  llvm::json::Object mesh;
  for (const MeshAxis &axis : planned.mesh)
    mesh[axis.name] = axis.size;
  llvm::json::Object plan{{"schema", "fsdpc.plan/1"},
                          {"world_size", planned.worldSize()},
                          {"mesh", std::move(mesh)},
                          {"units", unitsJson(planned)},
                          {"memory", memoryJson(planned, memory)},
                          {"collectives", collectivesJson(planned, timeline)},
                          {"copies", copiesJson(planned, timeline)},
                          {"predicted_step_us", timeline.stepMicroseconds},
                          {"parameters", parametersJson(planned)}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(plan))).str();
}

} // namespace fsdpc

#include "frontend/driver/plan_json.h"

#include "ir/ops/attributes.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fsdpc {

namespace {

/// A step of the two-stream simulation over one function.
class FunctionTimeline {
public:
  FunctionTimeline(const Module &module, const Target &target, bool inlineStreams)
      : module(module), target(target), inlineStreams(inlineStreams) {}

  std::vector<CollectiveTime> collectives;
  double computeMicroseconds = 0; ///< when the compute stream is done
  double exposedMicroseconds = 0;

  void run(const Function &function) {
    for (Node *node : function) {
      if (infoOf(*node).has(startsCollective))
        start(*node);
      else if (node->op() == Op::wait)
        wait(*node);
      else
        compute(*node);
    }
  }

private:
  struct Pending {
    size_t index;
    double end;
    llvm::StringSet<> units;
  };

  void start(Node &node) {
    double cost = target.costMicroseconds(node);
    collectives.push_back({&node, nullptr, cost, 0, ""});
    double begin = std::max(commMicroseconds, computeMicroseconds);
    commMicroseconds = inlineStreams ? commMicroseconds : begin + cost;
    pending[&node] = {collectives.size() - 1, begin + cost, {}};
  }

  void wait(Node &node) {
    auto entry = pending.find(node.operand(0)->definer());
    Pending &started = entry->second;
    CollectiveTime &time = collectives[started.index];
    time.wait = &node;
    time.exposedMicroseconds =
        inlineStreams ? time.predictedMicroseconds : std::max(0.0, started.end - computeMicroseconds);
    computeMicroseconds += time.exposedMicroseconds;
    exposedMicroseconds += time.exposedMicroseconds;
    for (const auto &unit : started.units)
      time.hiddenBehind += (time.hiddenBehind.empty() ? "" : ",") + unit.getKey().str();
    pending.erase(entry);
  }

  void compute(Node &node) {
    computeMicroseconds += target.costMicroseconds(node);
    if (inlineStreams || node.section.unit < 0)
      return;
    for (auto &[start, started] : pending)
      if (started.end > computeMicroseconds)
        started.units.insert(module.units[node.section.unit].name);
  }

  const Module &module;
  const Target &target;
  bool inlineStreams;
  double commMicroseconds = 0;
  std::map<const Node *, Pending> pending;
};

int64_t positionOf(const llvm::DenseMap<const Node *, int64_t> &positions, const Node *node) {
  return positions.lookup(node);
}

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
                                       {"strategy", unit.strategy}});
  }
  return units;
}

llvm::json::Object memoryJson(const Module &module, const MemoryReport &memory) {
  llvm::json::Object byClass;
  for (size_t i = 0; i < memoryClassCount; ++i)
    byClass[nameOf(static_cast<MemoryClass>(i))] = memory.byClass[i];
  llvm::json::Object spaces;
  for (llvm::StringRef space : {"private", "window"}) {
    int64_t bytes = 0;
    auto found = module.settings.find(("arena_" + space + "_bytes").str());
    if (found != module.settings.end())
      (void)llvm::StringRef(found->second).getAsInteger(10, bytes);
    spaces[space] = bytes;
  }
  llvm::json::Array live;
  for (const LiveValue &value : memory.peakLive)
    live.push_back(llvm::json::Object{{"value", value.value}, {"bytes", value.bytes}});
  return llvm::json::Object{{"total_bytes", memory.totalBytes},
                            {"by_class", std::move(byClass)},
                            {"live_at_peak_bytes", memory.liveAtPeakBytes},
                            {"live_max_bytes", memory.liveAtPeakBytes},
                            {"spaces", std::move(spaces)},
                            {"outside_plan_bytes", 0},
                            {"peak", llvm::json::Object{{"function", memory.peakFunction},
                                                        {"node", memory.peakNode},
                                                        {"unit", memory.peakUnit},
                                                        {"live", std::move(live)}}},
                            {"theoretical_min_bytes", memory.theoreticalMinBytes}};
}

llvm::json::Array collectivesJson(const Module &module, const StepPrediction &prediction) {
  llvm::DenseMap<const Node *, int64_t> positions;
  for (const std::unique_ptr<Function> &function : module.functions) {
    int64_t position = 0;
    for (Node *node : *function)
      positions[node] = position++;
  }
  llvm::json::Array collectives;
  for (const CollectiveTime &time : prediction.collectives) {
    const Node &start = *time.start;
    const auto &attributes = start.get<CollectiveAttributes>();
    int64_t fullBytes = std::max(start.operand(0)->type().bytes(), start.result()->type().bytes());
    collectives.push_back(llvm::json::Object{{"id", attributes.id},
                                             {"op", collectiveName(start)},
                                             {"unit", start.unit < 0 ? "" : module.units[start.unit].name},
                                             {"function", nameOf(start.function()->kind())},
                                             {"dtype", nameOf(start.result()->type().dtype())},
                                             {"bytes", fullBytes},
                                             {"group", attributes.over.name},
                                             {"start", positionOf(positions, time.start)},
                                             {"wait", positionOf(positions, time.wait)},
                                             {"hidden_behind", time.hiddenBehind},
                                             {"predicted_us", time.predictedMicroseconds},
                                             {"predicted_exposed_us", time.exposedMicroseconds}});
  }
  return collectives;
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
                                            {"recovered", parameter.recovered}});
  }
  return parameters;
}

} // namespace

StepPrediction predictStep(const Module &planned, const Target &target, bool inlineStreams) {
  StepPrediction prediction;
  for (const std::unique_ptr<Function> &function : planned.functions) {
    FunctionTimeline timeline(planned, target, inlineStreams);
    timeline.run(*function);
    llvm::append_range(prediction.collectives, timeline.collectives);
    FunctionKind kind = function->kind();
    if (kind == FunctionKind::prologue || kind == FunctionKind::microStep || kind == FunctionKind::update) {
      prediction.stepMicroseconds += timeline.computeMicroseconds;
      prediction.exposedMicroseconds += timeline.exposedMicroseconds;
    }
  }
  return prediction;
}

std::string planJson(const Module &planned, const MemoryReport &memory, const StepPrediction &prediction) {
  llvm::json::Object mesh;
  for (const MeshAxis &axis : planned.mesh)
    mesh[axis.name] = axis.size;
  llvm::json::Object plan{{"schema", "fsdpc.plan/1"},
                          {"world_size", planned.worldSize()},
                          {"mesh", std::move(mesh)},
                          {"units", unitsJson(planned)},
                          {"memory", memoryJson(planned, memory)},
                          {"collectives", collectivesJson(planned, prediction)},
                          {"predicted_step_us", prediction.stepMicroseconds},
                          {"parameters", parametersJson(planned)}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(plan))).str();
}

} // namespace fsdpc

// Conversion between full parameters, with the names of the model, and the states of one stage.
#include "ir/eval/evaluate.h"
#include "ir/reserved_names.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

const HostTensor *find(const std::map<std::string, HostTensor> &tensors, const std::string &name) {
  auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

/// The shards of all ranks of a segment, concatenated: each parameter at its slot, zeros between.
std::vector<double> paddedSegment(const State &segment, const std::map<std::string, HostTensor> &parameters) {
  std::vector<double> padded(segment.paddedElements, 0);
  for (const SegmentSlot &slot : segment.slots)
    if (const HostTensor *parameter = find(parameters, slot.parameter)) {
      assert(static_cast<int64_t>(parameter->values.size()) == slot.elements && "a slot holds the full parameter");
      std::copy(parameter->values.begin(), parameter->values.end(), padded.begin() + slot.offsetElements);
    }
  return padded;
}

HostTensor unshardedState(const State &state, const std::map<std::string, HostTensor> &parameters,
                          const std::map<std::string, double> &scalars) {
  HostTensor tensor(state.type, state.initialValue);
  if (state.role == StateRole::scalar) {
    if (auto found = scalars.find(state.name); found != scalars.end())
      tensor.values.assign(tensor.values.size(), found->second);
  } else if (state.role != StateRole::optimizer) {
    if (const HostTensor *given = find(parameters, state.name)) {
      assert(given->values.size() == tensor.values.size() && "a parameter has its state's shape");
      tensor.values = given->values;
    }
  }
  return tensor;
}

/// Moving averages start as what they average, as the runtime starts them.
void startAverages(const Module &module, EvaluationState &all) {
  for (const State &state : module.states)
    if (state.role == StateRole::optimizer && state.field == names::averageField)
      for (auto &rank : all.states)
        rank[state.name] = rank.at(state.owner);
}

/// The index of the shard that a rank has.
int64_t memberOf(const Module &module, const State &segment, int64_t rank) {
  return segment.over.empty() ? 0 : module.axis(segment.over)->memberOf(rank);
}

} // namespace

EvaluationState makeEvaluationState(const Module &module, const std::map<std::string, HostTensor> &parameters,
                                    const std::map<std::string, double> &scalars) {
  EvaluationState all;
  all.states.resize(module.worldSize() * (module.stage == Stage::train ? module.microSteps : 1));
  for (const State &state : module.states) {
    if (!state.isFlat()) {
      HostTensor whole = unshardedState(state, parameters, scalars);
      for (auto &rank : all.states)
        rank[state.name] = whole;
      continue;
    }
    std::vector<double> padded = paddedSegment(state, parameters);
    int64_t shard = state.type.elements();
    for (size_t rank = 0; rank < all.states.size(); ++rank) {
      HostTensor tensor(state.type);
      std::copy_n(padded.begin() + memberOf(module, state, rank) * shard, shard, tensor.values.begin());
      roundToDType(tensor);
      all.states[rank][state.name] = std::move(tensor);
    }
  }
  startAverages(module, all);
  return all;
}

std::map<std::string, HostTensor> fullParameters(const Module &module, const EvaluationState &state) {
  std::map<std::string, HostTensor> parameters;
  for (const State &own : module.states) {
    if (own.role == StateRole::parameter || (own.role == StateRole::buffer && !own.isFlat()))
      parameters[own.name] = state.states[0].at(own.name);
    if (!own.isFlat() || own.role == StateRole::replica)
      continue;
    std::vector<double> padded(own.paddedElements);
    for (size_t rank = 0; rank < state.states.size(); ++rank) {
      const std::vector<double> &shard = state.states[rank].at(own.name).values;
      llvm::copy(shard, padded.begin() + memberOf(module, own, rank) * own.type.elements());
    }
    for (const SegmentSlot &slot : own.slots) {
      const Parameter *parameter = module.parameter(slot.parameter);
      HostTensor tensor(parameter ? parameter->type : Type(own.type.dtype(), {slot.elements}));
      std::copy_n(padded.begin() + slot.offsetElements, slot.elements, tensor.values.begin());
      parameters[slot.parameter] = std::move(tensor);
    }
  }
  return parameters;
}

} // namespace fsdpc

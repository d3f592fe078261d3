#include "ir/eval/evaluate.h"

#include "ir/eval/rank_run.h"
#include "ir/ops/attributes.h"
#include <cstring>
#include <thread>

namespace fsdpc {

std::vector<HostTensor> evaluatePure(Op op, const AttributesBase *attributes,
                                     llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<Type> resultTypes) {
  assert(infoOf(op).has(pure) && !infoOf(op).has(usesEnvironment) && "only a function of its operands can be folded");
  std::vector<HostTensor> results;
  results.reserve(resultTypes.size());
  for (const Type &type : resultTypes)
    results.emplace_back(type);
  EvaluateContext context{attributes, operands, results, nullptr};
  infoOf(op).evaluate(context);
  llvm::for_each(results, roundToDType);
  return results;
}

void roundToDType(HostTensor &tensor) {
  if (byteSize(tensor.type.dtype()) == 2)
    for (double &value : tensor.values)
      value = roundedTo(tensor.type.dtype(), value);
}

HostTensor hostTensorOf(const Dense &dense, const Type &type) {
  HostTensor tensor(type);
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = dense.at(static_cast<int64_t>(i));
  return tensor;
}

Dense denseOf(const HostTensor &tensor) {
  const std::vector<double> &values = tensor.values;
  auto sameBits = [&](const double &value) { return std::memcmp(&value, values.data(), sizeof value) == 0; };
  if (!values.empty() && llvm::all_of(values, sameBits))
    return Dense::splat(tensor.type.dtype(), values[0]);
  return Dense::fromDoubles(tensor.type.dtype(), values);
}

namespace {

/// Checks that need no run.
llvm::Error checkPlan(const FunctionPlan &plan, int64_t ranks) {
  for (const NodePlan &nodePlan : plan.nodes) {
    const AttributesBase *attributes = nodePlan.node->attributes();
    if (!attributes || attributes->typeId() != Attributes<CollectiveAttributes>::id())
      continue;
    const auto &collective = nodePlan.node->get<CollectiveAttributes>();
    const MeshAxis *axis = plan.function.module()->axis(collective.over.name);
    std::string what = (nameOf(plan.function.kind()) + ": " + infoOf(*nodePlan.node).name).str();
    if (!axis || axis->size != collective.ranks)
      return llvm::createStringError(what + " is over " + llvm::Twine(collective.ranks) + " ranks of axis " +
                                     symbolText('@', collective.over.name) + ", which the mesh does not have");
    if (ranks % (axis->size * axis->stride) != 0)
      return llvm::createStringError(what + " is over " + llvm::Twine(axis->size) + " ranks, but " +
                                     llvm::Twine(ranks) + " run");
  }
  return llvm::Error::success();
}

/// One call of a function with the inputs of one micro-step.
struct Call {
  FunctionKind kind;
  int64_t microStep = 0;
};

using Plans = std::map<FunctionKind, std::unique_ptr<FunctionPlan>>;

llvm::Expected<Plans> planFunctions(const Module &module, llvm::ArrayRef<Call> calls, int64_t ranks) {
  Plans plans;
  for (const Call &call : calls) {
    if (plans.count(call.kind))
      continue;
    const Function *function = module.function(call.kind);
    if (!function)
      return llvm::createStringError("the module has no function " + nameOf(call.kind));
    if (!function->returnNode())
      return llvm::createStringError(llvm::Twine(nameOf(call.kind)) + " does not end in return");
    const FunctionPlan &plan = *(plans[call.kind] = std::make_unique<FunctionPlan>(*function));
    if (llvm::Error error = checkPlan(plan, ranks))
      return error;
  }
  return plans;
}

/// `inputs` is indexed by microStep * ranks + rank.
llvm::Expected<RankResults> evaluateCalls(const Module &module, llvm::ArrayRef<Call> calls,
                                          const std::vector<std::map<std::string, HostTensor>> &inputs,
                                          EvaluationState &state, std::map<std::string, HostTensor> *taps) {
  auto ranks = static_cast<int64_t>(state.states.size());
  std::vector<Call> all;
  if (module.function(FunctionKind::start))
    all.push_back({FunctionKind::start});
  all.insert(all.end(), calls.begin(), calls.end());
  llvm::Expected<Plans> plans = planFunctions(module, all, ranks);
  if (!plans)
    return plans.takeError();
  const std::vector<CarriedOver> carriedOver = carriedOverSteps(module);
  Rendezvous rendezvous(ranks);
  RankResults results(ranks);
  auto runRank = [&](int64_t rank) {
    RankRun run(rank, rendezvous, carriedOver, state.states[rank], rank == 0 ? taps : nullptr);
    for (const Call &call : all)
      if (!rendezvous.failed())
        run.run(*plans->at(call.kind), call.microStep, inputs[call.microStep * ranks + rank]);
    results[rank] = std::move(run).takeResults();
    rendezvous.leave(rank);
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 1; rank < ranks; ++rank)
    threads.emplace_back(runRank, rank);
  if (ranks > 0)
    runRank(0);
  for (std::thread &thread : threads)
    thread.join();
  if (llvm::Error error = rendezvous.takeError())
    return error;
  return results;
}

} // namespace

llvm::Expected<RankResults> evaluate(const Module &module, llvm::ArrayRef<FunctionKind> kinds,
                                     const std::vector<std::map<std::string, HostTensor>> &inputs,
                                     EvaluationState &state, std::map<std::string, HostTensor> *taps) {
  if (state.states.size() != inputs.size())
    return llvm::createStringError("inputs for " + llvm::Twine(inputs.size()) + " ranks, states for " +
                                   llvm::Twine(state.states.size()));
  std::vector<Call> calls;
  for (FunctionKind kind : kinds)
    calls.push_back({kind});
  return evaluateCalls(module, calls, inputs, state, taps);
}

llvm::Expected<RankResults> evaluateStep(const Module &module,
                                         const std::vector<std::map<std::string, HostTensor>> &inputs,
                                         EvaluationState &state, std::map<std::string, HostTensor> *taps) {
  if (state.states.size() * static_cast<size_t>(module.microSteps) != inputs.size())
    return llvm::createStringError("inputs for " + llvm::Twine(inputs.size()) +
                                   " micro-steps of all ranks, states for " + llvm::Twine(state.states.size()) +
                                   " ranks that run " + llvm::Twine(module.microSteps));
  std::vector<Call> calls;
  for (FunctionKind kind : {FunctionKind::prologue, FunctionKind::microStep})
    for (int64_t microStep = 0; microStep < module.microSteps; ++microStep)
      calls.push_back({kind, microStep});
  if (taps)
    calls.push_back({FunctionKind::tapGradients});
  calls.push_back({FunctionKind::update});
  return evaluateCalls(module, calls, inputs, state, taps);
}

} // namespace fsdpc

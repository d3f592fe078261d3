#include "frontend/search/estimate.h"

#include "frontend/compilation/compilation.h"
#include "frontend/search/share_search.h"
#include "ir/clone.h"
#include "ir/ops/attributes.h"
#include "passes/cost/timeline.h"
#include "passes/pipeline.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

/// (n-1)/n of the bytes, without overflow.
int64_t shareOfOthers(int64_t bytes, int64_t ranks) {
  return bytes / ranks * (ranks - 1) + bytes % ranks * (ranks - 1) / ranks;
}

void count(const Node &node, int64_t calls, SentBytes &sent) {
  if (!startsCollective(node))
    return;
  int64_t ranks = node.get<CollectiveAttributes>().ranks;
  int64_t whole = calls * std::max(node.operand(0)->type().bytes(), node.result()->type().bytes());
  if (node.op() == Op::allGatherStart)
    sent.allGather += shareOfOthers(whole, ranks);
  else if (node.op() == Op::reduceScatterStart)
    sent.reduceScatter += shareOfOthers(whole, ranks);
  else
    sent.allReduce += 2 * shareOfOthers(whole, ranks);
}

std::vector<std::string> gatheringUnits(const Module &planned) {
  std::vector<std::string> names;
  for (const Unit &unit : planned.units)
    if (llvm::any_of(planned.states, [&](const State &state) {
          return state.role == StateRole::segment && state.unit == unit.name && !state.over.empty();
        }))
      names.push_back(unit.name);
  return names;
}

} // namespace

SentBytes sentPerStep(const Module &planned) {
  SentBytes sent;
  for (FunctionKind kind : {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update})
    if (const Function *function = planned.function(kind))
      for (const Node *node : *function)
        count(*node, planned.callsPerStep(kind), sent);
  return sent;
}

llvm::Expected<Estimator> Estimator::read(llvm::StringRef input, const OptionValues &values) {
  Compilation compilation;
  if (llvm::Error error = readInput(input, values, /*weightsMayBeAbsent=*/true, compilation))
    return error;
  const Module &module = *compilation.module;
  if (module.stage != Stage::graph || !module.units.empty())
    return usage(input + ": its units are decided already; estimates begin with a model");
  return of(module);
}

Estimator Estimator::of(const Module &graph) {
  Estimator estimator;
  estimator.graph = clone(graph);
  return estimator;
}

llvm::Expected<Estimate> Estimator::plan(Candidate candidate) const {
  if (searchesShares(candidate))
    if (llvm::Error error = settleShares(*this, candidate))
      return error;
  OptionValues values = candidate.values();
  Compilation compilation;
  compilation.module = clone(*(prepared ? prepared : graph));
  if (llvm::Error error = resolveOptions(values, compilation))
    return error;
  PassContext context{compilation.options, *compilation.target, compilation.remarks};
  if (!prepared) {
    RunnerOptions common;
    common.stopBefore = &firstPassOfAPlan();
    if (llvm::Error error = runPasses(*compilation.module, context, common, compilation.times))
      return error;
    prepared = clone(*compilation.module);
  }
  if (llvm::Error error = runPasses(*compilation.module, context, {}, compilation.times))
    return error;
  Estimate estimate;
  estimate.strategy = candidate.strategy;
  estimate.worldSize = compilation.options.worldSize;
  estimate.microBatchSize = compilation.options.microBatchSize;
  if (const MeshAxis *axis = compilation.module->axis("shard"); axis && isHybrid(candidate.strategy))
    estimate.shardDegree = axis->size;
  estimate.memory = reportMemory(*compilation.module, *compilation.target);
  estimate.sent = sentPerStep(*compilation.module);
  const Timeline timeline = simulate(*compilation.module, compilation.machine.predicting);
  estimate.stepMicroseconds = timeline.stepMicroseconds;
  estimate.exposedMicroseconds = timeline.exposedMicroseconds;
  estimate.units = gatheringUnits(*compilation.module);
  return estimate;
}

std::vector<Strategy> knownStrategies() {
  std::vector<Strategy> strategies;
  for (const Placement &row : placements())
    strategies.push_back(row.strategy);
  return strategies;
}

} // namespace fsdpc

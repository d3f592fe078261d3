// Costs of plans without emitting any: memory of one rank and bytes sent, for several strategies and world sizes.
#pragma once

#include "frontend/search/candidate.h"
#include "ir/module.h"
#include "passes/plan/memory_report.h"

namespace fsdpc {

/// Bytes that one rank sends in a training step (prologue, micro_step, update).
///
/// Counted for ring algorithms, which send the minimum of any algorithm for reductions. For a buffer of S bytes over n
/// ranks that is (n-1)/n S for all_gather and reduce_scatter, 2 (n-1)/n S for all_reduce (Patarasuk and Yuan, Bandwidth
/// optimal all-reduce algorithms for clusters of workstations, 2009).
struct SentBytes {
  int64_t allGather = 0, reduceScatter = 0, allReduce = 0;
  int64_t total() const { return allGather + reduceScatter + allReduce; }
};
/// Requires stage planned.
SentBytes sentPerStep(const Module &planned);

struct Estimate {
  Strategy strategy = Strategy::fullShard;
  int64_t worldSize = 1;
  int64_t microBatchSize = 1;
  int64_t shardDegree = 0; ///< ranks of one replica; 0: the strategy has no such choice
  MemoryReport memory;
  SentBytes sent;
  double stepMicroseconds = 0, exposedMicroseconds = 0; ///< predicted
  std::vector<std::string> units;                       ///< that gather parameters, in the order of forward
};

/// A model that is read once and planned many times. Weights may be absent, since they are not used.
class Estimator {
public:
  /// Requires a module of the graph stage whose units are not decided.
  static Estimator of(const Module &graph);
  /// Errors as in compileModule. A stage that has its units already is refused, since strategies were decided with
  /// them.
  static llvm::Expected<Estimator> read(llvm::StringRef input, const OptionValues &values);

  /// The plan of a candidate, which must import the model as the options of `read` do (same micro-batch, dims, ...).
  /// Shares that it leaves open are found first (share_search.h).
  llvm::Expected<Estimate> plan(Candidate candidate) const;

private:
  std::unique_ptr<Module> graph; ///< as imported
  /// The module after the passes that all plans have in common. The first plan sets it, and each plan starts with a
  /// copy.
  mutable std::unique_ptr<Module> prepared;
};

/// Every strategy that can be planned for, from the most memory to the least.
std::vector<Strategy> knownStrategies();

/// `fsdpc estimate MODEL`: a table, or JSON with -o FILE.
llvm::Error runEstimate(const OptionValues &values);

} // namespace fsdpc

// One plan that a search may try: what it can change, in the types of the passes. Searches read and write these fields;
// only candidate.cpp knows which options stand for them.
#pragma once

#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Does the strategy split within replicas, so that there are degrees to choose?
bool isHybrid(Strategy strategy);

class Candidate {
public:
  /// What is asked for. Errors are UsageErrors: a size that is none.
  static llvm::Expected<Candidate> of(const OptionValues &asked);

  /// The same with another strategy and number of ranks: for a hybrid strategy without degrees groups of 8 ranks, else
  /// 4, else 2; choices that the strategy has no use for get their defaults. Nothing if the ranks cannot be cut into
  /// such groups.
  std::optional<Candidate> with(Strategy strategy, int64_t worldSize) const;

  Strategy strategy = Strategy::fullShard;
  int64_t worldSize = 1, microBatchSize = 1;
  int64_t shardDegree = -1, replicateDegree = 1; ///< hybrid strategies
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  std::optional<double> keptShare; ///< of checkpointing budget; nothing: as much as fits
  bool offloadsActivations = false, offloadsOptimizer = false, offloadsParams = false;
  std::optional<double> offloadShare; ///< of these; nothing: as little as needed
  int64_t maxInflightAllGathers = 2;
  bool ownReduceCommunicator = false;
  int64_t allGatherBucketBytes = 0, reduceBucketBytes = 0;
  Accumulation accumulation = Accumulation::reduce;
  std::vector<std::string> keptUnits; ///< units that stay gathered from forward to backward, whatever else is said

  std::optional<int64_t> budgetBytes; ///< --memory_budget
  int64_t microSteps = 1;             ///< of a step

  /// Is it said, so that no search may change it?
  template <auto field>
  bool isGiven() const;

  /// What differs from `asked`, as options; with the strategy in any case.
  std::string describe(const Candidate &asked) const;

  /// All of it as options: what a compile of this plan is asked for.
  OptionValues values() const;

private:
  explicit Candidate(OptionValues base) : base(std::move(base)) {}
  llvm::Error read();

  OptionValues base; ///< with everything that no search changes
};

} // namespace fsdpc

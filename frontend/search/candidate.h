// One plan that a search may try: the choices that it can change, in the types of the passes. Searches read and write
// these fields. Only candidate.cpp knows the options that correspond to them.
#pragma once

#include "frontend/options/option_schema.h"

namespace fsdpc {

/// Returns whether the strategy shards within replicas, so that there are degrees to choose.
bool isHybrid(Strategy strategy);

class Candidate {
public:
  /// The requested plan. Errors are UsageErrors: an invalid size.
  static llvm::Expected<Candidate> of(const OptionValues &asked);

  /// The same plan with another strategy and number of ranks. A hybrid strategy without degrees gets groups of 8 ranks,
  /// else 4, else 2. Choices without effect on the strategy get their defaults. Returns nothing if the ranks cannot be
  /// split into such groups.
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
  std::optional<int64_t> lossChunk;   ///< positions whose logits exist at once; 0: all; nothing: the usual number
  std::vector<std::string> keptUnits; ///< units that stay gathered from forward to backward, whatever other options say

  std::optional<int64_t> budgetBytes; ///< --memory_budget
  int64_t microSteps = 1;             ///< of a step

  /// Returns whether the user gave the option, so that no search may change it.
  template <auto field>
  bool isGiven() const;

  /// The options that differ from `asked`, and always the strategy.
  std::string describe(const Candidate &asked) const;

  /// The complete plan as the options of a compile.
  OptionValues values() const;

private:
  explicit Candidate(OptionValues base) : base(std::move(base)) {}
  llvm::Error read();

  OptionValues base; ///< with everything that no search changes
};

} // namespace fsdpc

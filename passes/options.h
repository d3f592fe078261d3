// What the pipeline is asked for: the resolved options that passes need. Filled by the driver from the one options
// schema.
#pragma once

#include "ir/choices.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {

struct LossOptions {
  LossKind kind = LossKind::model;
  std::string output; ///< graph output the loss reads; empty: the first float output
  LossReduction reduction = LossReduction::mean;
  std::optional<int64_t> classAxis; ///< default: -1 up to rank 3, else 1
  int64_t ignoreIndex = -100;
  double labelSmoothing = 0;
  std::string labels = "labels"; ///< name of the label input that the loss adds
};

/// What the loss is multiplied by, and gradients divided by again, so that 16 bits can hold them.
struct LossScaleOptions {
  double initial = 65536;
  bool isDynamic = true;
  int64_t window = 1000, hysteresis = 2; ///< as LossScaleAttributes
  double minimum = 1;
};

struct OptimizerOptions {
  std::string kind = "adamw"; ///< adamw, adam, sgd, adadelta, adagrad, rmsprop, lion
  std::map<std::string, double>
      scalars; ///< resolved: lr, weight_decay, beta1, beta2, eps, momentum, dampening, rho, alpha, lr_decay
  bool nesterov = false;
  bool centered = false;
  double initialAccumulatorValue = 0; ///< adagrad
  std::optional<double> maxNorm;      ///< of all gradients together
  bool skipsNonFinite = false;        ///< a step with a loss or norm that is not finite changes nothing
  std::optional<LossScaleOptions> lossScale;
  /// Does every update know the global norm, and depend on it?
  bool isGuarded() const { return maxNorm || skipsNonFinite || lossScale; }
};

/// What is said about the units whose whole names match.
struct UnitOverride {
  std::string pattern; ///< regular expression
  UnitChoices choices;
  std::vector<const UnitChoice *> made; ///< the fields of `choices` that are said
};

struct PipelineOptions {
  int64_t worldSize = 1;
  int64_t microBatchSize = 1;
  int64_t microSteps = 1; ///< of a step: gradients are summed over them
  uint64_t seed = 0;
  DType paramDType = DType::f32;  ///< what the forward and backward passes compute in; masters stay f32
  DType reduceDType = DType::f32; ///< what gradients of f32 parameters are sent and summed over ranks in
  DType outputDType = DType::f32; ///< of the model's float outputs, which losses read too
  std::optional<DType>
      bufferDType; ///< what floating buffers are rounded to; none: what the nodes that read them compute in
  bool castForwardInputs = true;      ///< float inputs are rounded to paramDType, once
  bool keepLowPrecisionGrads = false; ///< norm and optimizer read gradients in reduceDType, without a copy in f32
  LossOptions loss;
  OptimizerOptions optimizer;

  UnitChoices choices;      ///< of every unit, as far as unitOverrides say nothing else
  Decisions decisions;      ///< offloadActivations follows from offloadsActivations and offloadShare
  int64_t shardDegree = -1; ///< ranks of one replica; -1: what replicateDegree leaves
  int64_t replicateDegree = 1;
  int64_t allGatherBucketBytes = 0; ///< what is gathered at once, at most; 0: a unit
  int64_t reduceBucketBytes = 0;    ///< what whole units reduce at once, at most; 0: a unit
  bool attentionByLibrary = false;  ///< attention by the target's library where it can
  bool splitSamples = false; ///< --deterministic world: the graph is for one sample, split_samples makes the others
  /// --deterministic: the sums of a micro-step are over all ranks before micro-steps are added up, in every strategy.
  bool sumsRanksFirst = false;
  /// Samples that the graph stage is for: those of a rank, or the one that split_samples copies.
  int64_t graphSamples() const { return splitSamples ? 1 : microBatchSize; }
  WrapPolicy autoWrapPolicy = WrapPolicy::automatic;
  std::vector<std::string> transformerClsToWrap; ///< transformer_based_wrap: class names, in full or their ends
  std::string wrapPattern;                       ///< manual: regular expression of whole module paths
  std::string ignoredParams;                     ///< regular expression of parameters that stay whole everywhere
  std::vector<UnitOverride> unitOverrides;       ///< in order: of equal keys the last counts
  int64_t minNumParams = 100000000;              ///< size_based_wrap
  double activationMemoryBudget = 1;             ///< of units with budget: what passes/train/saved_budget.h says
  bool offloadsActivations = false;              ///< what forward leaves to backward waits on the host
  double offloadShare = 1;                       ///< of either: the first units, what is made first
};

} // namespace fsdpc

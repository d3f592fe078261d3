// The resolved options that passes need. Filled by the driver from the options schema.
#pragma once

#include "ir/choices.h"

#include <cmath>
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
  int64_t topK = 1;              ///< an evaluation also counts labels among that many highest scores; 1: it does not
  std::string labels = "labels"; ///< name of the label input that the loss adds
  std::optional<int64_t> chunk;  ///< positions whose logits exist at once; 0: all; none: chunk_loss chooses
};

/// Factor on the loss, divided out of gradients again, so that they are representable in 16 bits.
struct LossScaleOptions {
  double initial = 65536;
  bool isDynamic = true;
  int64_t window = 1000, hysteresis = 2; ///< see LossScaleAttributes
  double minimum = 1;
};

/// Other optimizer values for the parameters whose full names match.
struct ParameterGroup {
  std::string name;                        ///< a word; part of the names of its scalars
  std::string pattern;                     ///< regular expression
  std::map<std::string, double> scalars;   ///< as in OptimizerOptions
  std::optional<double> learningRateScale; ///< lr is this multiple of the lr of all
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  std::map<std::string, double>
      scalars; ///< resolved: lr, weight_decay, beta1, beta2, eps, momentum, dampening, rho, alpha, lr_decay
  bool nesterov = false;
  bool centered = false;
  double initialAccumulatorValue = 0; ///< adagrad
  std::optional<double> maxNorm;      ///< of all gradients together
  bool skipsNonFinite = false;        ///< a step with a loss or norm that is not finite changes nothing
  std::optional<LossScaleOptions> lossScale;
  std::vector<ParameterGroup> groups;
  std::string noDecay;              ///< regular expression of parameters without weight decay, or norms_biases
  bool averagesWeights = false;     ///< keeps moving averages, with the scalar ema_decay
  bool evaluatesAverages = false;   ///< evaluation and predictions read them instead of the weights
  std::optional<double> layerDecay; ///< the lr of a unit is this multiple of the next unit's
  /// True if every update computes the global norm and depends on it.
  bool isGuarded() const { return maxNorm || skipsNonFinite || lossScale; }
};

/// Adapters beside frozen weights, as the peft package defines them.
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;    ///< of an adapter's input
  bool isStable = false; ///< rsLoRA: the scale is alpha / sqrt(rank)
  std::string targets;   ///< regular expression of modules, or all_linear
  double scale() const { return alpha / (isStable ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank)); }
};

/// Choices for the units whose full names match.
struct UnitOverride {
  std::string pattern; ///< regular expression
  UnitChoices choices;
  std::vector<const UnitChoice *> made; ///< the fields of `choices` that are specified
};

struct PipelineOptions {
  int64_t worldSize = 1;
  int64_t microBatchSize = 1;
  int64_t microSteps = 1; ///< per step: gradients are summed over them
  uint64_t seed = 0;
  DType paramDType = DType::f32;  ///< type of forward and backward compute; master weights stay f32
  DType reduceDType = DType::f32; ///< type in which gradients of f32 parameters are sent and summed over ranks
  DType frozenDType = DType::f32; ///< type in which f32 parameters that do not train are stored
  DType outputDType = DType::f32; ///< of the model's float outputs, which losses read too
  std::optional<DType>
      bufferDType; ///< type that floating buffers are rounded to; none: the compute type of the nodes that read them
  bool castForwardInputs = true;      ///< float inputs are rounded to paramDType, once
  bool keepLowPrecisionGrads = false; ///< norm and optimizer read gradients in reduceDType, without a copy in f32
  LossOptions loss;
  OptimizerOptions optimizer;
  std::optional<LoraOptions> lora;
  bool separateDocuments = false; ///< documents that are packed in one sample do not see each other

  UnitChoices choices;      ///< of every unit, unless unitOverrides specify another
  Decisions decisions;      ///< offloadActivations follows from offloadsActivations and offloadShare
  int64_t shardDegree = -1; ///< ranks of one replica; -1: derived from replicateDegree
  int64_t replicateDegree = 1;
  int64_t allGatherBucketBytes = 0; ///< maximum size of one all_gather; 0: one per unit
  int64_t reduceBucketBytes = 0;    ///< maximum size of one all_reduce of unsharded units; 0: one per unit
  bool attentionByLibrary = false;  ///< use the target's library for attention where possible
  bool splitSamples = false; ///< --deterministic world: the graph is for one sample, split_samples adds the others
  /// --deterministic: the sums of a micro-step are over all ranks before micro-steps are summed, in every strategy.
  bool sumsRanksFirst = false;
  /// The number of samples in the graph stage: those of a rank, or the one that split_samples copies.
  int64_t graphSamples() const { return splitSamples ? 1 : microBatchSize; }
  WrapPolicy autoWrapPolicy = WrapPolicy::automatic;
  std::vector<std::string> transformerClsToWrap; ///< transformer_based_wrap: class names, in full or their ends
  std::string wrapPattern;                       ///< manual: regular expression of full module paths
  std::string ignoredParams;                     ///< regular expression of parameters that are never sharded
  std::vector<UnitOverride> unitOverrides;       ///< in order: for equal keys the last one applies
  int64_t minNumParams = 100000000;              ///< size_based_wrap
  double activationMemoryBudget = 1;             ///< for units with budget: see passes/train/saved_budget.h
  bool offloadsActivations = false;              ///< values that forward leaves for backward are kept on the host
  /// Smaller values are computed where they are used, not at start (make_tables).
  int64_t minTableBytes = 4096;
  double offloadShare = 1; ///< share of either: the first units, or the values computed first
};

} // namespace fsdpc

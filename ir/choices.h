// Decisions about a plan, made by the command line, a config or a search: typed values, and one list of their fields.
// The text form, --unit and messages derive from that list. Passes read the fields and do not depend on spellings.
#pragma once

#include "ir/type.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace fsdpc {

/// Which rank stores what: a row of passes/shard/placement.h. Ordered from the most memory to the least.
enum class Strategy : uint8_t { noShard, shardOptimizer, hybridShardZero2, shardGradOp, hybridShard, fullShard };

/// When forward frees the gathered parameters of a unit.
struct ReshardAfterForward {
  enum class Kind : uint8_t {
    byPosition, ///< after each unit except the last, which backward needs immediately
    always,
    never,
    toGroups, ///< the part kept until backward is split over `groupSize` ranks
  };
  Kind kind = Kind::byPosition;
  int64_t groupSize = 0; ///< for toGroups, at least 1

  /// True if the entire unit is kept until backward.
  bool keepsAll() const { return kind == Kind::never || (kind == Kind::toGroups && groupSize == 1); }
  friend bool operator==(const ReshardAfterForward &, const ReshardAfterForward &) = default;
};

/// When backward gathers the next unit: before its computation of the current unit, after it, or on demand.
enum class BackwardPrefetch : uint8_t { pre, post, none };

/// What backward recomputes (passes/train/select_saved.cpp).
enum class ActivationCheckpointing : uint8_t { none, full, selective, budget };

/// What stays unsharded between the micro-steps of a step: nothing, gradients, parameters, or both.
enum class Accumulation : uint8_t { reduce, keepGradients, keepParameters, keepBoth };

/// Which state of a unit is stored in host memory.
enum class Offload : uint8_t {
  none,
  optimizer, ///< its optimizer state, copied to the device and back around each optimizer step
  params,    ///< also its parameter shards: gradients are copied to the host, where the optimizer runs
};

/// Whether split parameters that are only looked up by rows are exchanged by rows instead of being gathered.
enum class RowLookup : uint8_t { automatic, on, off };

/// How units are formed: the blocks that the model repeats, modules of given classes or paths, modules with at least a
/// given parameter count, or everything as one unit.
enum class WrapPolicy : uint8_t { automatic, transformerBased, sizeBased, manual, none };

/// The loss that a step trains on. `model`: the graph computes it.
enum class LossKind : uint8_t { crossEntropy, nll, mse, l1, bceWithLogits, model };

/// How a loss reduces its terms. `mean` is over all counted terms of the global batch.
enum class LossReduction : uint8_t { mean, sum };

enum class OptimizerKind : uint8_t { adamw, adam, sgd, adadelta, adagrad, rmsprop, lion };

/// The reaction of a program to a loss or gradient norm that is not finite. `skip` and `warn` leave the step out.
enum class NonFinite : uint8_t { error, skip, warn };

/// cpu: where collectives run; `automatic`: inline if the machine has no core for the thread.
enum class Streams : uint8_t { automatic, inlined, threads };

/// cuda: replay the step as one CUDA graph; `automatic`: if the step can be captured.
enum class CudaGraph : uint8_t { automatic, on, off };

/// Choices of one unit. For an empty optional, Decisions or the options of the compile apply.
struct UnitChoices {
  Strategy strategy = Strategy::fullShard;
  ReshardAfterForward reshardAfterForward = {};
  std::optional<bool> forwardPrefetch = {};
  std::optional<BackwardPrefetch> backwardPrefetch = {};
  ActivationCheckpointing activationCheckpointing = ActivationCheckpointing::none;
  Accumulation accumulation = Accumulation::reduce;
  Offload offload = Offload::none;
  RowLookup rows = RowLookup::automatic;
  std::optional<bool> offloadActivations = {}; ///< saved activations wait for backward in host memory
  std::optional<DType> paramDType = {};        ///< compute type of its nodes: fp32, bf16, fp16
  std::optional<DType> reduceDType = {};       ///< type in which its gradients are summed over ranks
  friend bool operator==(const UnitChoices &, const UnitChoices &) = default;
};

/// Choices for the entire module.
struct Decisions {
  int64_t maxInflightAllGathers = 2;
  bool forwardPrefetch = true;
  BackwardPrefetch backwardPrefetch = BackwardPrefetch::pre;
  bool overlapComm = true;            ///< off: each collective is awaited where it starts
  bool ownReduceCommunicator = false; ///< reductions use a separate communicator and stream
  /// The fraction, in bytes, of the activations saved for backward that waits in host memory. Activations that are
  /// produced first are chosen first, because they wait longest.
  double offloadActivations = 0;
};

/// The units that a choice can affect, by their placement (passes/shard/placement.h).
enum class Matters : uint8_t {
  always,
  gatheredPerUse, ///< parameters are gathered for each use
  gatheredInStep, ///< no unsharded copy outlives the step
  split,          ///< parameters are split over ranks
  unsharded,      ///< parameters are not split
  splitInReplica, ///< parameters are split within replicas
};

/// One field of UnitChoices with its complete description. The text form, options, --unit, configs, help and errors
/// derive from these rows. A new choice needs a field, a row, and a pass that reads it.
struct UnitChoice {
  llvm::StringRef name;   ///< in the text form
  llvm::StringRef option; ///< on the command line, in --unit and in configs
  llvm::StringRef help;
  llvm::StringRef before;   ///< the option that follows it in --help and in command lines
  llvm::StringRef synonyms; ///< also accepted by the option: "zero3=full_shard|..."
  /// The option's default, for a field that is empty unless it is set for a unit. Decisions or PipelineOptions then
  /// have the value for all other units. Empty if every unit has a value.
  llvm::StringRef optionDefault;
  Matters matters;
  /// The spelling of the value in the text form. Empty for an empty optional.
  std::string (*print)(const UnitChoices &);
  /// Returns false if the value does not exist, and then changes nothing.
  bool (*read)(llvm::StringRef text, UnitChoices &);
  void (*copy)(const UnitChoices &from, UnitChoices &to);
  std::string (*values)(); ///< for people: "reduce, keep_gradients, ..."
  llvm::SmallVector<llvm::StringRef, 6> (*spellings)();
  bool isFlag;      ///< the option is a boolean
  bool takesNumber; ///< in addition to its spellings

  bool isDefault(const UnitChoices &choices) const { return print(choices) == print(UnitChoices()); }
};

/// All fields, in the order of the text form.
llvm::ArrayRef<UnitChoice> unitChoices();
const UnitChoice *unitChoice(llvm::StringRef name); ///< null if there is none

/// The spelling, in options and in the text form, of a value of one of the types above, a DType (fp32, bf16, fp16) or a
/// bool (on, off).
template <class T>
std::string spelled(const T &value);

/// The value with this spelling, or nullopt.
template <class T>
std::optional<T> choiceFrom(llvm::StringRef text);

/// All spellings, except the numbers of ReshardAfterForward.
template <class T>
llvm::SmallVector<llvm::StringRef, 6> choiceSpellings();

/// The spellings as text for people: "reduce, keep_gradients, ...".
template <class T>
std::string choiceValues();

} // namespace fsdpc

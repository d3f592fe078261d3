// What is decided about a plan, by the command line, a config or a search: typed values, and one list of them from
// which the text form, --unit and messages derive. Passes read the fields; nobody else knows how a value is spelled.
#pragma once

#include "ir/type.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace fsdpc {

/// Who holds what: a row of passes/shard/placement.h. From the most memory to the least.
enum class Strategy : uint8_t { noShard, shardOptimizer, hybridShardZero2, shardGradOp, hybridShard, fullShard };

/// When forward frees what a unit has gathered.
struct ReshardAfterForward {
  enum class Kind : uint8_t {
    byPosition, ///< behind each unit but the last, which backward needs at once
    always,
    never,
    toGroups, ///< what is kept until backward is split over `groupSize` ranks
  };
  Kind kind = Kind::byPosition;
  int64_t groupSize = 0; ///< of toGroups, at least 1

  /// Is all of the unit kept until backward?
  bool keepsAll() const { return kind == Kind::never || (kind == Kind::toGroups && groupSize == 1); }
  friend bool operator==(const ReshardAfterForward &, const ReshardAfterForward &) = default;
};

/// When backward gathers the next unit: before or after its own computation of this one, or when it needs it.
enum class BackwardPrefetch : uint8_t { pre, post, none };

/// What of forward backward computes again (passes/train/select_saved.cpp).
enum class ActivationCheckpointing : uint8_t { none, full, selective, budget };

/// What stays whole between the micro-steps of a step: nothing, gradients, parameters, or both.
enum class Accumulation : uint8_t { reduce, keepGradients, keepParameters, keepBoth };

/// What of a unit's state lies in the host's memory.
enum class Offload : uint8_t {
  none,
  optimizer, ///< its optimizer state, copied to the device and back around each step of the optimizer
  params,    ///< the shards of its parameters too: the optimizer steps on the host, to which gradients are copied
};

/// What a unit is: what the model repeats; modules of the classes or with the paths that are given; modules of at least
/// so many parameters; or everything.
enum class WrapPolicy : uint8_t { automatic, transformerBased, sizeBased, manual, none };

/// What a step trains on; `model`: the graph computes it.
enum class LossKind : uint8_t { crossEntropy, nll, mse, l1, bceWithLogits, model };

/// What a loss makes of its terms: `mean` is over what counts in the whole global batch.
enum class LossReduction : uint8_t { mean, sum };

/// Choices that each unit has. An optional that is empty: as Decisions, or the options of the compile, say.
struct UnitChoices {
  Strategy strategy = Strategy::fullShard;
  ReshardAfterForward reshardAfterForward = {};
  std::optional<bool> forwardPrefetch = {};
  std::optional<BackwardPrefetch> backwardPrefetch = {};
  ActivationCheckpointing activationCheckpointing = ActivationCheckpointing::none;
  Accumulation accumulation = Accumulation::reduce;
  Offload offload = Offload::none;
  std::optional<bool> offloadActivations = {}; ///< what it leaves to backward waits in the host's memory
  std::optional<DType> paramDType = {};        ///< what its nodes compute in: fp32, bf16, fp16
  std::optional<DType> reduceDType = {};       ///< what its gradients are summed over ranks in
  friend bool operator==(const UnitChoices &, const UnitChoices &) = default;
};

/// Choices for the whole module.
struct Decisions {
  int64_t maxInflightAllGathers = 2;
  bool forwardPrefetch = true;
  BackwardPrefetch backwardPrefetch = BackwardPrefetch::pre;
  bool overlapComm = true;            ///< off: every collective is waited for where it starts
  bool ownReduceCommunicator = false; ///< reductions on a communicator and a stream of their own
  /// The share, in bytes, of what forward leaves to backward that waits for it in the host's memory: what is made first
  /// comes first, since it waits longest.
  double offloadActivations = 0;
};

/// For which units a choice can change anything: what their placement (passes/shard/placement.h) has.
enum class Matters : uint8_t {
  always,
  gatheredPerUse, ///< parameters are gathered for each use
  gatheredInStep, ///< no whole copy outlives the step
  split,          ///< parameters are split over ranks
  whole,          ///< they are not
  splitInReplica, ///< they are split within replicas
};

/// One field of UnitChoices, with all that is said of it: the text form, options, --unit, configs, help and errors
/// derive from these rows. A new choice is a field, a row, and the pass that reads it.
struct UnitChoice {
  llvm::StringRef name;   ///< in the text form
  llvm::StringRef option; ///< on the command line, in --unit and in configs
  llvm::StringRef help;
  llvm::StringRef before;   ///< the option that follows it in --help and in command lines
  llvm::StringRef synonyms; ///< that the option takes too: "zero3=full_shard|..."
  /// Of the option, where the field is empty unless a unit says something: Decisions or PipelineOptions have what holds
  /// for the others. Empty where every unit has a value.
  llvm::StringRef optionDefault;
  Matters matters;
  /// As the text form spells the value; empty where an optional is.
  std::string (*print)(const UnitChoices &);
  /// False if there is no such value; then nothing has changed.
  bool (*read)(llvm::StringRef text, UnitChoices &);
  void (*copy)(const UnitChoices &from, UnitChoices &to);
  std::string (*values)(); ///< for people: "reduce, keep_gradients, ..."
  llvm::SmallVector<llvm::StringRef, 6> (*spellings)();
  bool isFlag;      ///< the option is a boolean
  bool takesNumber; ///< beside its spellings

  bool isDefault(const UnitChoices &choices) const { return print(choices) == print(UnitChoices()); }
};

/// All fields, in the order in which the text form has them.
llvm::ArrayRef<UnitChoice> unitChoices();
const UnitChoice *unitChoice(llvm::StringRef name); ///< null if there is none

/// As options and the text form spell a value of one of the types above, a DType (fp32, bf16, fp16) or a bool (on,
/// off).
template <class T>
std::string spelled(const T &value);

/// The value with this spelling; nothing if there is none.
template <class T>
std::optional<T> choiceFrom(llvm::StringRef text);

/// All spellings; of ReshardAfterForward those that are no number.
template <class T>
llvm::SmallVector<llvm::StringRef, 6> choiceSpellings();

/// The same for people: "reduce, keep_gradients, ...".
template <class T>
std::string choiceValues();

} // namespace fsdpc

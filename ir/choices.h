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

/// One field of UnitChoices.
struct UnitChoice {
  llvm::StringRef name; ///< as in the text form and in --unit
  /// As the text form spells the value; empty where an optional is.
  std::string (*print)(const UnitChoices &);
  /// False if there is no such value; then nothing has changed.
  bool (*read)(llvm::StringRef text, UnitChoices &);
  void (*copy)(const UnitChoices &from, UnitChoices &to);
  std::string (*values)(); ///< choiceValues of its type

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

/// All spellings, for people: "reduce, keep_gradients, ...".
template <class T>
std::string choiceValues();

} // namespace fsdpc

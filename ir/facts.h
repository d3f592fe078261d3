// Properties of a module in addition to its graph: what it is trained on, how large its memory is. Typed values, and
// one list of them, from which the `setting` lines of the text form derive.
#pragma once

#include "ir/choices.h"
#include "ir/node.h"
#include "llvm/ADT/ArrayRef.h"
#include <array>
#include <optional>
#include <string>

namespace fsdpc {

/// Size of one arena of a rank.
struct ArenaSize {
  std::optional<int64_t> usedBytes; ///< end of the last value
  std::optional<int64_t> bytes;     ///< usedBytes rounded up to the target's granule
  /// The size for a run that also calls predict, where that needs more. All other functions end within `bytes`.
  std::optional<int64_t> predictBytes;
};

/// Unknown facts are empty.
struct Facts {
  // Set by the import. For a graph output that is a loss: its reduction and name. For one that looks like a loss but
  // ends in another op: an error message that names the node.
  std::optional<LossReduction> modelLoss;
  std::string modelLossOutput;
  std::string modelLossError;

  // Set by appendLoss.
  std::optional<LossKind> loss;
  std::optional<LossReduction> lossReduction;
  std::string labels;                 ///< name of the input that has the labels
  std::string shiftedLabels;          ///< name of the input whose labels the graph itself shifts by one
  std::optional<int64_t> ignoreIndex; ///< class losses

  std::optional<OptimizerKind> optimizer; ///< set by appendOptimizer

  // Planned stage.
  std::array<ArenaSize, std::size(allSpaces)> arenas;
  /// Events order the device: only `records`, `awaits` and waits that are not implied order the streams.
  bool isOrderedByEvents = false;

  std::string lastPass; ///< number and name of the last pipeline pass that ran on this module

  const ArenaSize &arena(Space space) const { return arenas[indexOf(space)]; }
  ArenaSize &arena(Space space) { return arenas[indexOf(space)]; }
  /// 0 before the module is planned.
  int64_t arenaBytes(Space space) const { return arena(space).bytes.value_or(0); }
  int64_t predictBytes(Space space) const { return arena(space).predictBytes.value_or(arenaBytes(space)); }
};

/// One line of the text form.
struct Fact {
  std::string name;
  std::optional<std::string> (*print)(const Facts &, size_t argument); ///< nullopt: unknown
  bool (*read)(llvm::StringRef text, Facts &, size_t argument);        ///< false: invalid value
  llvm::SmallVector<llvm::StringRef, 6> spellings = {};                ///< of all values, for choices
  size_t argument = 0;                                                 ///< arenas: the index of the space
};

/// All facts, sorted by name.
llvm::ArrayRef<Fact> factList();

} // namespace fsdpc

// What a module knows of itself besides its graph: what it is trained on, how large its memory is. Typed values, and
// one list of them, from which the text form has its `setting` lines.
#pragma once

#include "ir/choices.h"
#include "ir/node.h"
#include "llvm/ADT/ArrayRef.h"
#include <array>
#include <optional>
#include <string>

namespace fsdpc {

/// How long one arena of a rank is.
struct ArenaSize {
  std::optional<int64_t> usedBytes; ///< up to the end of the last value
  std::optional<int64_t> bytes;     ///< that, rounded up to what the target maps
};

/// What is not known yet is empty.
struct Facts {
  // From the import on. A graph output that is a loss has a reduction and a name; one that looks like a loss and ends
  // in something else, a sentence that names the node.
  std::optional<LossReduction> modelLoss;
  std::string modelLossOutput;
  std::string modelLossError;

  // From appendLoss on.
  std::optional<LossKind> loss;
  std::optional<LossReduction> lossReduction;
  std::string labels;                 ///< name of the input that has them
  std::string shiftedLabels;          ///< of the input whose labels the graph itself moves by one
  std::optional<int64_t> ignoreIndex; ///< class losses

  std::string optimizer; ///< from appendOptimizer on

  // Planned.
  std::array<ArenaSize, std::size(allSpaces)> arenas;
  /// The order on the device is that of events: `records`, `awaits` and waits that are not implied are all that orders
  /// the streams.
  bool isOrderedByEvents = false;

  std::string lastPass; ///< number and name of the pass of the pipeline that this module has seen last

  const ArenaSize &arena(Space space) const { return arenas[indexOf(space)]; }
  ArenaSize &arena(Space space) { return arenas[indexOf(space)]; }
  /// 0 before there is a plan.
  int64_t arenaBytes(Space space) const { return arena(space).bytes.value_or(0); }
};

/// One line of the text form.
struct Fact {
  std::string name;
  std::optional<std::string> (*print)(const Facts &, size_t argument); ///< nothing: not known
  bool (*read)(llvm::StringRef text, Facts &, size_t argument);        ///< false: no such value
  size_t argument = 0;                                                 ///< arenas: the index of the space
};

/// All of them, sorted by name.
llvm::ArrayRef<Fact> factList();

} // namespace fsdpc

// Row tables: split parameters that are looked up by rows, so that ranks exchange the rows instead of gathering the
// table for its lookups.
#pragma once

#include "ir/builder.h"
#include "ir/module.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

class RowTables {
public:
  /// Decides for every parameter of a train-stage module whose mesh is decided. A parameter can be a row table if it is
  /// f32, some of its uses are gathers along axis 0, perhaps of the parameter rounded to 16 bits, and its unit is split
  /// and gathered in the step (UnshardedCopy is not `always`), in memory of the device. Other uses gather it.
  ///
  /// The unit's choice `rows` decides among these. `automatic` takes tables of minTableBytes or more of which the ranks
  /// together look up at most every second row: both forms use the same collectives, so their time is proportional to
  /// the rows that they move, and the lookup adds two small kernels and the gather of the indices.
  static RowTables decide(const Module &module);

  bool contains(llvm::StringRef parameter) const { return tables.contains(parameter); }
  /// True if the gradient of the table's lookups is exchanged by rows: it is the f32 sum of one scatter_add over the
  /// ranks, alone or added to the sum of other gradients (splitTableGradients), and the unit does not keep gradients
  /// unsharded over micro-steps. If not, it is a part of the unsharded gradient.
  bool exchangesGradient(llvm::StringRef parameter) const { return tables.lookup(parameter); }
  /// What is exchanged instead of each table, for people.
  const std::vector<std::string> &remarks() const { return texts; }

  /// The attributes of gather_rows and scatter_rows for the segment of a row table.
  static RowsAttributes attributesOf(const Module &module, const State &segment, bool accumulateF32 = false);

  /// The rows of a table's segment that these indices name, one after the other, of the state `source`: the segment or
  /// its rounded replica.
  static Value *lookUp(Builder &builder, Value &indices, const State &segment, const State &source);
  /// Taps the table that a shard belongs to, a part of each rank's shard at a time, so that no rank ever holds all of
  /// it. `prefix` is that of the gathered values' names.
  static void tapParts(Builder &builder, Value &shard, const State &segment, llvm::StringRef prefix);

  static constexpr int64_t minTableBytes = int64_t{1} << 20;

private:
  llvm::StringMap<bool> tables; ///< by parameter: exchangesGradient
  std::vector<std::string> texts;
};

/// True for the operand of a gather along axis 0.
bool isRowLookup(const Use &use);

/// The scatter_add of one lookup, in f32, whose only use is as a gradient or a summand of one; null if it is none.
Node *lookupAddedBy(const Value &local);

/// The scatter_add of one lookup whose sum over the ranks `sum` (a batch_sum) is; null if it is none.
Node *lookupOf(const Node &sum);

/// A gradient as the sum over ranks of a lookup's and that of all others'.
struct SplitGradient {
  Node *add = nullptr;                       ///< null: the gradient is none
  Node *others = nullptr, *lookup = nullptr; ///< the batch_sums
};
SplitGradient splitGradientOf(const Value &gradient);

} // namespace fsdpc

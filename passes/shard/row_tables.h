// Row tables: split parameters that are only looked up by rows, so that ranks exchange the rows instead of gathering
// the table.
#pragma once

#include "ir/module.h"
#include "ir/ops/attributes.h"
#include "passes/options.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

class RowTables {
public:
  /// Decides for every parameter of a train-stage module whose mesh is decided. A parameter can be a row table if
  ///
  /// - its unit is split and gathered in the step (UnshardedCopy is not `always`), in memory of the device, and the
  ///   unit's gradients are not kept unsharded over micro-steps;
  /// - every use in steps and evaluations is a gather along axis 0, perhaps of the parameter rounded to 16 bits;
  /// - its gradient, if it is trained, is the scatter_add of one lookup, summed over ranks in f32.
  ///
  /// The unit's choice `rows` decides among these. `automatic` takes tables of minTableBytes or more of which the ranks
  /// together look up at most every second row: both forms use the same collectives, so their time is proportional to
  /// the rows that they move, and the lookup adds two small kernels and the gather of the indices.
  static RowTables decide(const Module &module);

  bool contains(llvm::StringRef parameter) const { return names.contains(parameter); }
  /// What is exchanged instead of each table, for people.
  const std::vector<std::string> &remarks() const { return texts; }

  /// The attributes of gather_rows and scatter_rows for the segment of a row table.
  static RowsAttributes attributesOf(const Module &module, const State &segment, bool accumulateF32 = false);

  static constexpr int64_t minTableBytes = int64_t{1} << 20;

private:
  llvm::StringMap<int64_t> names;
  std::vector<std::string> texts;
};

} // namespace fsdpc

// Which parameters form a unit. Choosing is here; assign_units.cpp places nodes by it.
#pragma once

#include "ir/module.h"
#include "passes/options.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// A parameter that the graph reads, in the order of first uses.
struct UsedParameter {
  std::string name;
  int64_t elements = 0;
  std::string userScope; ///< module of the node that uses it first; empty if unknown
  std::string module;    ///< that owns it: from its name, else the user's; its own name if there is neither
  bool isNamed = false;  ///< the module comes from its name
};

struct UnitPlan {
  std::vector<Unit> units;              ///< in order of first use
  llvm::StringMap<int32_t> ofParameter; ///< every used parameter
  llvm::StringMap<int32_t> ofBlock;     ///< module path: everything inside belongs to the unit
  llvm::StringMap<int32_t> ofModule;    ///< module path: what this module does itself belongs to the unit

  /// The unit of the block that `path` lies in; -1 if it lies in none.
  int32_t blockAround(llvm::StringRef path) const;
};

/// auto: blocks that repeat, one unit each, and one for what is used before the first block, after the last and between
/// two; without such blocks up to about eight units by size. size_based_wrap: modules in a row until they have
/// minNumParams. no_wrap: one unit.
UnitPlan planUnits(llvm::ArrayRef<UsedParameter> parameters, const PipelineOptions &options);

/// The paths of repeated blocks ("transformer.h.0") by parameter; empty string: in none.
///
/// A list of blocks is a path with a number behind it, alone (h.0) or at the end of a name (encoder_layer_0), that
/// occurs with two or more numbers, where at least two of the blocks hold modules of their own and share half of their
/// parameters' names. The outermost list counts, plain numbers before numbered names.
std::vector<std::string> findRepeatedBlocks(llvm::ArrayRef<UsedParameter> parameters);

} // namespace fsdpc

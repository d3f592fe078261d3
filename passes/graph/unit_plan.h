// Which parameters form a unit. Choosing is here; assign_units.cpp places nodes by it.
#pragma once

#include "ir/module.h"
#include "passes/options.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// A parameter that the graph reads, in the order of first uses.
struct UsedParameter {
  std::string name;
  int64_t elements = 0;
  std::string userScope; ///< module of the node that uses it first; empty if unknown
  std::string module;    ///< that owns it: from its name, else the user's; its own name if there is neither
  bool isNamed = false;  ///< the module comes from its name
  int64_t uses = 1;      ///< nodes that compute with it, whatever moves it before
};

struct UnitPlan {
  std::vector<Unit> units;              ///< in order of first use
  llvm::StringMap<int32_t> ofParameter; ///< every used parameter
  llvm::StringMap<int32_t> ofBlock;     ///< module path: everything inside belongs to the unit
  llvm::StringMap<int32_t> ofModule;    ///< module path: what this module does itself belongs to the unit

  /// A module around other units owns what is left of it. What of that is used behind the inner units stands behind
  /// them, under a name of its own without parameters: unit -> the units that continue it, ascending.
  std::map<int32_t, std::vector<int32_t>> continuations;
  llvm::StringMap<int32_t> sectionOf; ///< parameters first used in a continuation

  /// The unit of the innermost block that `path` lies in; -1 if it lies in none.
  int32_t blockAround(llvm::StringRef path) const;
};

/// auto: blocks that repeat, one unit each, and one for what is used before the first block, after the last and between
/// two; without such blocks the same with modules that are applied several times; else up to about eight units by size.
/// transformer_based_wrap, manual: the same with the modules of the asked classes, or whose whole paths match, as
/// blocks, which may stand in one another. size_based_wrap: modules in a row until they have minNumParams. no_wrap: one
/// unit. `classes` is Module::classes. Errors: a class or pattern that matches nothing, with what there is.
llvm::Expected<UnitPlan> planUnits(llvm::ArrayRef<UsedParameter> parameters,
                                   const std::map<std::string, std::string> &classes, const PipelineOptions &options);

/// The paths of repeated blocks ("transformer.h.0") by parameter; empty string: in none.
///
/// A list of blocks is a path with a number behind it, alone (h.0) or at the end of a name (encoder_layer_0), that
/// occurs with two or more numbers, where at least two of the blocks hold modules of their own and share half of their
/// parameters' names. The outermost list counts, plain numbers before numbered names.
std::vector<std::string> findRepeatedBlocks(llvm::ArrayRef<UsedParameter> parameters);

/// The paths of modules that are applied several times in a row, as ALBERT's layer is, by parameter; empty string: in
/// none. All parameters in such a module, of at least two modules inside it, are used twice or more. The outermost
/// counts, by the longest path that all its parameters share. Cut into units by size, all but the last of them would
/// stay gathered through every later use.
std::vector<std::string> findReusedModules(llvm::ArrayRef<UsedParameter> parameters);

/// The path of the innermost module of one of the classes by parameter; empty string: in none. A class is named in full
/// or by its end ("GPT2Block"). Error: one that no module around a parameter has, with those that are there and counts.
llvm::Expected<std::vector<std::string>> findModulesOfClasses(llvm::ArrayRef<UsedParameter> parameters,
                                                              const std::map<std::string, std::string> &classes,
                                                              llvm::ArrayRef<std::string> wanted);

/// The path of the innermost module whose whole path matches. Error: none does, with the paths that are there.
llvm::Expected<std::vector<std::string>> findModulesByPattern(llvm::ArrayRef<UsedParameter> parameters,
                                                              llvm::StringRef pattern);

/// Writes --unit into Module::units and --ignored_params into Module::parameters, which have their units. Errors: an
/// expression that matches no unit or parameter.
llvm::Error applyUnitOverrides(Module &module, const UnitPlan &plan, const PipelineOptions &options);

// ---- Module paths

/// The longest path that the modules of all parameters lie in; empty if there is none.
std::string commonPath(llvm::ArrayRef<const UsedParameter *> parameters);
/// "a.b" of "a.b.c"; empty for "a".
llvm::StringRef parentOf(llvm::StringRef path);
/// Is `path` the module or inside it?
bool liesIn(llvm::StringRef path, llvm::StringRef module);
/// "a, b, c", cut off where more names help nobody.
std::string listed(llvm::ArrayRef<std::string> names);

} // namespace fsdpc

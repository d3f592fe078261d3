// Decides which parameters form a unit. assign_units.cpp places nodes accordingly.
#pragma once

#include "ir/module.h"
#include "passes/options.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// A parameter that the graph reads, in the order of first use.
struct UsedParameter {
  std::string name;
  int64_t elements = 0;
  std::string userScope; ///< module of the node that uses it first; empty if unknown
  std::string module;    ///< that owns it: from its name, else the user's; its own name if neither exists
  bool isNamed = false;  ///< the module comes from its name
  int64_t uses = 1;      ///< nodes that compute with it, through nodes that only move it
};

struct UnitPlan {
  std::vector<Unit> units;              ///< in order of first use
  llvm::StringMap<int32_t> ofParameter; ///< every used parameter
  llvm::StringMap<int32_t> ofBlock;     ///< module path: everything in it belongs to the unit
  llvm::StringMap<int32_t> ofModule;    ///< module path: the module's own nodes belong to the unit

  /// A module around other units owns the rest of its nodes. Those after the inner units form a separate unit without
  /// parameters: unit -> the units that continue it, ascending.
  std::map<int32_t, std::vector<int32_t>> continuations;
  llvm::StringMap<int32_t> sectionOf; ///< parameters first used in a continuation

  /// The unit of the innermost block that contains `path`; -1 if there is none.
  int32_t blockAround(llvm::StringRef path) const;
};

/// auto: repeated blocks, one unit each, and one unit each for the parameters used before the first block, after the
/// last and between two. Without such blocks the same with modules that are applied several times. Otherwise up to
/// about eight units by size. transformer_based_wrap, manual: the same with the modules of the given classes, or whose
/// full paths match, as blocks, which may be nested. size_based_wrap: consecutive modules until they have minNumParams.
/// no_wrap: one unit. `classes` is Module::classes. Errors: a class or pattern that matches nothing; the message lists
/// the candidates.
llvm::Expected<UnitPlan> planUnits(llvm::ArrayRef<UsedParameter> parameters,
                                   const std::map<std::string, std::string> &classes, const PipelineOptions &options);

/// The paths of repeated blocks ("transformer.h.0") by parameter; empty string: in none.
///
/// A list of blocks is a path followed by a number, alone (h.0) or at the end of a name (encoder_layer_0), that occurs
/// with two or more numbers, where at least two of the blocks contain modules and share half of their parameters'
/// names. The outermost list is used, plain numbers before numbered names.
std::vector<std::string> findRepeatedBlocks(llvm::ArrayRef<UsedParameter> parameters);

/// The paths of modules that are applied several times in a row, like ALBERT's layer, by parameter; empty string: in
/// none. All parameters in such a module, of at least two modules inside it, are used twice or more. The outermost
/// module is used, by the longest path that all its parameters share. If it were split into units by size, all but the
/// last of them would stay gathered through every later use.
std::vector<std::string> findReusedModules(llvm::ArrayRef<UsedParameter> parameters);

/// The path of the innermost module of one of the classes by parameter; empty string: in none. A class is given in full
/// or by its end ("GPT2Block"). Error: no module around a parameter has the class; the message lists the existing
/// classes with counts.
llvm::Expected<std::vector<std::string>> findModulesOfClasses(llvm::ArrayRef<UsedParameter> parameters,
                                                              const std::map<std::string, std::string> &classes,
                                                              llvm::ArrayRef<std::string> wanted);

/// The path of the innermost module whose full path matches. Error: none matches; the message lists the existing paths.
llvm::Expected<std::vector<std::string>> findModulesByPattern(llvm::ArrayRef<UsedParameter> parameters,
                                                              llvm::StringRef pattern);

/// Writes --unit into Module::units and --ignored_params into Module::parameters. Requires: parameters have their
/// units. Errors: an expression that matches no unit or parameter.
llvm::Error applyUnitOverrides(Module &module, const UnitPlan &plan, const PipelineOptions &options);

// ---- Module paths

/// The longest path that contains the modules of all parameters; empty if there is none.
std::string commonPath(llvm::ArrayRef<const UsedParameter *> parameters);
/// "a.b" of "a.b.c"; empty for "a".
llvm::StringRef parentOf(llvm::StringRef path);
/// True if `path` is the module or inside it.
bool isWithinModule(llvm::StringRef path, llvm::StringRef module);
/// "a, b, c", truncated if long.
std::string listed(llvm::ArrayRef<std::string> names);

} // namespace fsdpc

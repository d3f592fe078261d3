// Parameters that the export signature lists, the file lacks and no statement quotes.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/traced_graph.h"

namespace fsdpc {

/// True if a value read in that position may have the parameter's name. A bias is not a factor, and running statistics
/// are read as statistics.
bool fitsName(const GraphIndex &index, const InitializerRead &read, llvm::StringRef name);

/// True if it is read in the position of a parameter of the statement's operation. A GroupNorm is written as an
/// InstanceNormalization of constants.
bool isReadByLayer(const GraphIndex &index, const InitializerRead &read, const TracedStatement &statement);

class MissingNames {
public:
  MissingNames(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced);

  /// True if no initializer holds the parameter.
  bool contains(llvm::StringRef name) const { return isMissing.contains(name); }

  /// The parameter below `scope` that a reader there most likely refers to, among those that no statement quotes and
  /// that are not taken: one of the same name as the initializer has in its own module (`suffix`), else the one with
  /// the fewest modules in between, else the first defined. "" if there is none.
  std::string best(const InitializerRead &read, llvm::StringRef scope, llvm::StringRef suffix,
                   bool sameModuleOnly) const;
  /// Marks the parameter as taken, so that no other read refers to it.
  void take(llvm::StringRef name) { taken.insert(name); }

private:
  using Below = std::vector<std::pair<llvm::StringRef, const std::vector<size_t> *>>;
  Below missingWithin(llvm::StringRef scope, bool sameModuleOnly) const;

  const GraphIndex &index;
  std::vector<std::string> missing; ///< definition order
  llvm::StringSet<> isMissing, taken;
  std::map<std::string, std::vector<size_t>> missingBelow;
};

} // namespace fsdpc

// Parameters that the export signature lists and the file lacks, as far as no statement says who reads them.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/traced_graph.h"

namespace fsdpc {

/// May what is read in that position go by the parameter's name? A bias is no factor, running statistics are read
/// as such.
bool fitsName(const GraphIndex &index, const InitializerRead &read, llvm::StringRef name);

/// Is it what the statement's own operation trains? A GroupNorm is written as an InstanceNormalization of constants.
bool isReadByLayer(const GraphIndex &index, const InitializerRead &read, const TracedStatement &statement);

class MissingNames {
public:
  MissingNames(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced);

  /// Does no initializer hold the parameter?
  bool contains(llvm::StringRef name) const { return isMissing.contains(name); }

  /// The parameter below `scope` that a reader there most likely means, that no statement quotes and nobody has taken:
  /// one of the same name as the initializer has in its own module (`suffix`), else the one with the fewest modules in
  /// between, else the first defined. "" if there is none.
  std::string best(const InitializerRead &read, llvm::StringRef scope, llvm::StringRef suffix,
                   bool sameModuleOnly) const;
  /// Nobody else means it.
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

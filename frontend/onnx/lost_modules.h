// Finds the module of a value whose nodes the exporter merged with those of another module (lost_statements.h).
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <set>

namespace fsdpc {

/// Maps modules of the twin to those of the lost statement: everything within `from` has its counterpart at the same
/// path within `to`.
struct Substitution {
  std::string from, to;

  std::optional<std::string> apply(llvm::StringRef name) const;
};

/// The parameters that the file lacks, and those that statements read. Valid as long as its sources.
class LostModules {
public:
  LostModules(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
              const std::vector<std::vector<int>> &nodesOf,
              llvm::function_ref<bool(const onnx::TensorProto &)> isUniform);

  /// True for a parameter or buffer that nothing in the file holds and no statement quotes.
  bool isLost(llvm::StringRef parameter) const { return lost.contains(parameter); }
  /// Parameters and buffers that the nodes of a statement read.
  const std::vector<std::string> &held(int statement) const { return heldBy[statement]; }

  /// The lost module or parameter that nodes in `readers` (modules) refer to where they read a value made from `own`.
  /// nullopt if that is ambiguous, with the parameters added to `ambiguous`. An empty substitution if no parameter is
  /// lost there.
  std::optional<Substitution> search(llvm::ArrayRef<llvm::StringRef> readers, llvm::ArrayRef<std::string> own,
                                     std::set<std::string> &ambiguous) const;

  /// True if other modules run the statement's operation with parameters that were equal to its own. Then one of their
  /// calls may have been merged with it, though no parameter is lost.
  bool hasEquals(int statement) const { return placesWithValues.lookup(valuesOf(statement)) > 1; }

private:
  void listHeld();
  void listLost();
  void listModules();
  void listEquals();
  std::string leavesText(const std::string &module) const;
  std::string valuesOf(int statement) const;
  std::string classOf(llvm::StringRef module) const;
  size_t nearestCandidates(llvm::StringRef scope, const std::string &module, llvm::ArrayRef<std::string> own,
                           std::set<std::string> &candidates) const;
  void addWithin(const std::set<std::string> &modules, llvm::StringRef scope, const std::string &like,
                 std::set<std::string> &result) const;
  bool mayBeSibling(llvm::ArrayRef<std::string> own) const;
  std::optional<Substitution> choose(const std::string &module, llvm::ArrayRef<std::string> own,
                                     const std::set<std::string> &candidates, std::set<std::string> &ambiguous) const;
  void noteAmbiguous(const std::string &candidate, std::set<std::string> &ambiguous) const;

  const GraphIndex &index;
  const ExportSignature &signature;
  const TracedGraph &traced;
  const std::vector<std::vector<int>> &nodesOf;
  llvm::function_ref<bool(const onnx::TensorProto &)> isUniform;
  std::vector<std::vector<std::string>> heldBy;
  llvm::StringMap<const onnx::TensorProto *> holder;
  llvm::StringSet<> lost;
  std::map<std::string, std::set<std::string>> leaves;          ///< by module: names of its own parameters
  std::map<std::string, std::set<std::string>> lostModules;     ///< by names of parameters: modules without any left
  std::map<std::string, std::vector<std::string>> lostInModule; ///< by module: its own parameters that are lost
  llvm::StringMap<std::string> classes;                         ///< by position in a repeated block
  llvm::StringMap<int> placesWithValues; ///< by operation and values: how many parameter lists have them
};

} // namespace fsdpc

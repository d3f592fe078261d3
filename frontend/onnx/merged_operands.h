// One stored value that a node reads as two operands, because two parameters were equal when the exporter looked.
//
//   %cat = cat([%expand, %expand_1, %x], 1)        the statement
//   Concat(expand, expand, x)                      its node; `expand` was folded from embeddings.cls_token
//
// %expand_1 was another parameter's: no author joins a token with itself.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/traced_graph.h"

namespace fsdpc {

class MergedOperands {
public:
  /// A lost value (%expand_1) is another parameter's where a node reads the stored one in its place and there is one
  /// parameter only that the value can come from. Nothing in the file holds or quotes that one, and it belongs to the
  /// stored value's module, or, where the node reads the stored value once more under its own name, to the reader's
  /// module or one inside, or to a module that left no node. Weights and biases of a layer that has both are none.
  MergedOperands(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced);

  /// The parameter that the read means in place of the one that its initializer was folded from; "" if it means that
  /// one, or several could be meant. For values that are all equal: others are equal on purpose.
  std::string parameterOf(const InitializerRead &read) const;

private:
  struct Twin {
    std::string tensor, parameter;
  };

  void listMissing();
  int lostOperand(int node) const;
  void findTwin(int node);
  void noteReads(int node);
  bool isReadByAlias(llvm::StringRef tensor);
  std::string onlyCandidate(llvm::StringRef tensorModule, llvm::StringRef scope) const;

  const GraphIndex &index;
  const ExportSignature &signature;
  const TracedGraph &traced;
  std::map<std::string, std::vector<std::string>> missingBelow; ///< by module: what nothing holds or quotes
  std::vector<std::string> missingOfIdle;                       ///< two of modules without nodes
  llvm::StringMap<bool> readByAlias;
  llvm::StringMap<Twin> twins;                        ///< by lost value
  std::map<std::pair<int, int>, std::string> meaning; ///< by node and input: the lost value
};

} // namespace fsdpc

// One stored value that a node reads as two operands, because two parameters were equal at export time.
//
//   %cat = cat([%expand, %expand_1, %x], 1)        the statement
//   Concat(expand, expand, x)                      its node; `expand` was folded from embeddings.cls_token
//
// %expand_1 came from another parameter: no author concatenates a token with itself.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/traced_graph.h"

namespace fsdpc {

class MergedOperands {
public:
  /// A lost value (%expand_1) comes from another parameter if a node reads the stored value in its place and exactly
  /// one parameter qualifies. Nothing in the file holds or quotes that parameter. It belongs to the stored value's
  /// module, or, if the node also reads the stored value under its own name, to the reader's module or one inside it,
  /// or to a module without nodes. Weights and biases of a layer that has both do not qualify.
  MergedOperands(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced);

  /// The parameter that the read refers to instead of the one that its initializer was folded from. "" if it refers to
  /// that one, or if several qualify. Only for uniform values: others are equal on purpose.
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
  std::map<std::string, std::vector<std::string>> missingBelow; ///< by module: parameters that nothing holds or quotes
  std::vector<std::string> missingInUnusedModules;              ///< up to two, of modules without nodes
  llvm::StringMap<bool> readByAlias;
  llvm::StringMap<Twin> twins;                        ///< by lost value
  std::map<std::pair<int, int>, std::string> meaning; ///< by node and input: the lost value
};

} // namespace fsdpc

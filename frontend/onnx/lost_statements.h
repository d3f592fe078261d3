// Statements of the traced module whose nodes the exporter merged with those of another statement.
//
// Two norms of one input, or two chains of layers, whose parameters were equal when the exporter looked, are one node
// or one chain in the file, and the parameters of the second are gone. What is left of it is its name, in the quotes of
// the statements that read it (traced_graph.h):
//
//   layer_norm   = LayerNormalization(x, a.weight)   quotes %layer_norm = layer_norm(%x, %p_a_weight), num_users=1
//   linear       = MatMul(layer_norm, ...)           quotes %linear = linear(%layer_norm, ...)
//   linear_1     = MatMul(layer_norm, ...)           quotes %linear_1 = linear(%layer_norm_1, ...): it read b's
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// A merged statement: what its own nodes would be.
struct LostStatement {
  int twin = -1;                                 ///< the statement whose nodes stand for it
  std::string place;                             ///< the module or parameter it belongs to: one copy of `twin` for each
  std::map<std::string, std::string> parameters; ///< of `twin` -> its own; empty if only its inputs differ
  std::string fromScope, toScope;                ///< modules of `twin` and of its own
};

/// A value that was merged, with all that has to be copied to have it again.
struct LostValue {
  std::string name;                      ///< as statements quote it
  int twin = -1;                         ///< the statement whose value is read instead
  std::vector<Read> readers;             ///< node inputs that mean it
  std::vector<LostStatement> statements; ///< the last makes the value; each after those that it reads
};

struct LostValues {
  std::vector<LostValue> values;
  std::vector<std::string>
      ambiguous; ///< parameters that were merged with others, and it cannot be told who reads which
};

/// Which module a lost value belongs to follows from the parameters that the signature lists and no statement quotes:
///   - it has parameters of the same names as the twin's module, all of them gone;
///   - of several, the one nearest to the readers in the tree of modules, then the one at the place most like the
///   twin's (a.norm and b.norm);
///   - or a parameter beside the twin's in the same module.
/// Two that are equally good, or values that would be one, are ambiguous. So are the parameters of the twin where
/// nothing is lost that its value may belong to, and other modules ran the same operation with equal parameters: the
/// value may be a second call of one of those. A statement that a lost one reads is lost too
/// if its quoted number of users says that the lost one is none of them, or if its parameters in the lost module's
/// place are gone. `isUniform`: is the initializer one value? The walk is bounded by what is copied, and by 64 steps
/// for a value where nothing is.
LostValues findLostValues(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
                          llvm::function_ref<bool(const onnx::TensorProto &)> isUniform);

/// Nodes of every statement, in order.
std::vector<std::vector<int>> nodesOfStatements(const GraphIndex &index, const TracedGraph &traced);

} // namespace fsdpc

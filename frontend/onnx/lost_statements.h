// Statements of the traced module whose nodes the exporter merged with those of another statement.
//
// Two norms of one input, or two chains of layers, whose parameters were equal at export time, are one node or one
// chain in the file, and the parameters of the second are gone. Only its name is left, quoted by the statements that
// read it (traced_graph.h):
//
//   layer_norm   = LayerNormalization(x, a.weight)   quotes %layer_norm = layer_norm(%x, %p_a_weight), num_users=1
//   linear       = MatMul(layer_norm, ...)           quotes %linear = linear(%layer_norm, ...)
//   linear_1     = MatMul(layer_norm, ...)           quotes %linear_1 = linear(%layer_norm_1, ...): it read b's
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// A merged statement and what its own nodes would read.
struct LostStatement {
  int twin = -1;                                 ///< the statement whose nodes stand in for it
  std::string place;                             ///< the module or parameter it belongs to: one copy of `twin` for each
  std::map<std::string, std::string> parameters; ///< of `twin` -> its own; empty if only its inputs differ
  std::string fromScope, toScope;                ///< module of `twin` and its own module
};

/// A merged value and the statements that have to be copied to restore it.
struct LostValue {
  std::string name;                      ///< as statements quote it
  int twin = -1;                         ///< the statement whose value is read instead
  std::vector<Read> readers;             ///< node inputs that refer to it
  std::vector<LostStatement> statements; ///< the last makes the value; each follows those that it reads
};

struct LostValues {
  std::vector<LostValue> values;
  std::vector<std::string> ambiguous; ///< merged parameters whose readers cannot be distinguished
};

/// The module of a lost value follows from the parameters that the signature lists and no statement quotes:
///   - it has parameters of the same names as the twin's module, and all of them are lost;
///   - if there are several, the one nearest to the readers in the tree of modules, then the one whose path is most
///     like the twin's (a.norm and b.norm);
///   - or it is the twin's own module, with another lost parameter.
/// Two equally good candidates are ambiguous, and so are two values that would be one. The parameters of the twin are
/// ambiguous if no lost parameter fits the value and other modules ran the same operation with equal parameters: the
/// value may be a second call of one of those modules. A statement that a lost one reads is lost too if its quoted
/// number of users shows that the lost one is not among them, or if its parameters at the lost module's path are lost.
/// `isUniform`: true if all elements of the initializer are equal. The walk is bounded by the number of copies, and by
/// 64 steps for a value without copies.
LostValues findLostValues(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
                          llvm::function_ref<bool(const onnx::TensorProto &)> isUniform);

/// Nodes of every statement, in order.
std::vector<std::vector<int>> nodesOfStatements(const GraphIndex &index, const TracedGraph &traced);

} // namespace fsdpc

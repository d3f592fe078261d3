#include "frontend/onnx/folding.h"

#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

Moves movesOf(llvm::StringRef operation) {
  return llvm::StringSwitch<Moves>(operation)
      .Cases("alias", "slice", "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "numpy_T", Moves::all)
      .Cases("unsqueeze", "squeeze", "select", "narrow", "detach", "clone", "contiguous", "flatten", Moves::all)
      .Cases("unflatten", "lift_fresh_copy", "split", "split_with_sizes", "chunk", "unbind", Moves::all)
      .Cases("arange", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "cumsum", Moves::all)
      .Cases("lt", "le", "gt", "ge", "eq", "ne", "new_zeros", Moves::all)
      .Cases("scalar_tensor", "scalar_tensor_default", Moves::all)
      .Cases("_to_copy", "to", "type_as", "flip", "detach_", "view_copy", "expand_copy", Moves::all)
      .Cases("expand", "expand_as", "repeat", "tile", "repeat_interleave", "broadcast_to", Moves::repeated)
      .Cases("embedding", "index", "index_select", "gather", Moves::rows)
      .Default(Moves::computed);
}

bool takesPart(llvm::StringRef operation) {
  return llvm::StringSwitch<bool>(operation)
      .Cases("slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind", true)
      .Default(false);
}

bool keepsOrder(llvm::StringRef operation) {
  return llvm::StringSwitch<bool>(operation)
      .Cases("alias", "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "detach", "clone", "contiguous", true)
      .Cases("flatten", "unflatten", "lift_fresh_copy", "_to_copy", "to", "type_as", "detach_", "view_copy", true)
      .Cases("scalar_tensor", "scalar_tensor_default", true)
      .Default(false);
}

std::string Folding::operations() const {
  std::vector<std::string> names;
  for (const std::string &name : computing)
    if (!llvm::is_contained(names, name))
      names.push_back(name);
  return names.empty() ? "" : " (" + llvm::join(names, ", ") + ")";
}

llvm::StringRef operationOfFolded(llvm::StringRef initializer) { return tracedOperation(initializer.split('.').first); }

Folding foldingOf(const ExportSignature &signature, llvm::StringRef initializer, llvm::ArrayRef<std::string> sources) {
  Folding folding;
  auto add = [&](llvm::StringRef operation) {
    Moves moves = movesOf(operation);
    folding.repeats |= moves == Moves::repeated;
    folding.readsRows |= moves == Moves::rows;
    folding.computes |= moves == Moves::computed;
    (moves == Moves::computed ? folding.computing : folding.moving).push_back(operation.str());
    return moves;
  };
  for (const std::string &source : sources) {
    // A buffer among the sources holds indices, unless an operation that computes is also among them. The buffer may
    // have the name of an operation: index.
    folding.readsRows |= signature.isBuffer.contains(source);
    if (signature.isParameter.contains(source) || signature.isBuffer.contains(source))
      continue;
    if (llvm::StringRef operation = tracedOperation(source); !operation.empty())
      add(operation);
    else
      folding.operands.push_back(source);
  }
  if (llvm::StringRef own = operationOfFolded(initializer); !own.empty())
    folding.last = add(own);
  return folding;
}

} // namespace fsdpc

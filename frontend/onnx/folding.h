// Infers from names how the exporter computed an initializer from parameters. `folded_from` lists all values that went
// into it, sorted, and traced values are named after their operation (traced_graph.h).
#pragma once

#include "frontend/onnx/metadata.h"

namespace fsdpc {

/// The effect of a traced operation on elements. Operations that only make indices move none of a parameter's elements.
/// A getitem may belong to any operation with several results, which leaves no name of its own.
enum class Moves : uint8_t {
  all,      ///< a permutation or a subset: no element occurs more often than before
  repeated, ///< elements may occur more than once
  rows,     ///< reads rows by indices
  computed, ///< computes other values
};
Moves movesOf(llvm::StringRef operation);

/// True if the operation may leave elements out.
bool takesPart(llvm::StringRef operation);

/// True if all elements keep their row-major order.
bool keepsOrder(llvm::StringRef operation);

struct Folding {
  std::string parameter; ///< empty if there are several
  bool repeats = false, readsRows = false, computes = false;
  Moves last = Moves::all;            ///< of the operation that the initializer is named after
  std::vector<std::string> computing; ///< operations that compute, each as often as it occurs
  std::vector<std::string> moving;    ///< the others, likewise
  std::vector<std::string> operands;  ///< values that the tracer did not name: scalars, shapes, axes

  /// For messages: " (neg, exp)".
  std::string operations() const;
};

/// `sources`: the entries of `folded_from`.
Folding foldingOf(const ExportSignature &signature, llvm::StringRef initializer, llvm::ArrayRef<std::string> sources);

/// The operation that a folded initializer is named after. The name of a copy is followed by a point and its owner.
llvm::StringRef operationOfFolded(llvm::StringRef initializer);

} // namespace fsdpc

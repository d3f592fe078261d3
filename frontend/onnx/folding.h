// How the exporter came from parameters to an initializer that it computed, as far as names tell: `folded_from` lists
// all values that went into it, sorted, and traced values are named after their operation (traced_graph.h).
#pragma once

#include "frontend/onnx/metadata.h"

namespace fsdpc {

/// What an operation of the tracer does with elements. What only makes indices moves none of a parameter's. A getitem
/// may be of any operation with several results, which leaves no name of its own.
enum class Moves : uint8_t {
  all,      ///< a permutation or a part of them: nothing occurs more often than before
  repeated, ///< elements may occur more than once
  rows,     ///< reads rows by indices
  computed, ///< makes other values
};
Moves movesOf(llvm::StringRef operation);

/// Does it leave elements out?
bool takesPart(llvm::StringRef operation);

/// Do all elements stay where they are in row-major order?
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

/// `sources`: of `folded_from`.
Folding foldingOf(const ExportSignature &signature, llvm::StringRef initializer, llvm::ArrayRef<std::string> sources);

/// The operation that a folded initializer is named after. Copies of it carry its name and, behind a point, whose they
/// are.
llvm::StringRef operationOfFolded(llvm::StringRef initializer);

} // namespace fsdpc

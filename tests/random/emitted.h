// The inputs of a program emitted for a random module, and the results that it must compute.
#pragma once

#include "tests/random/properties.h"

namespace fsdpc {

/// Writes the following files into `folder`, for a module of `graphs` independent graphs, or for the module in
/// `graphFile` (one that was reduced) if that is not empty:
///   graph.fsir               the module
///   options.txt              options of fsdpc, one per line
///   batch.safetensors        the global batch
///   weights.safetensors      the initial parameters
///   reference.safetensors    in f64: loss, grad.<parameter>, final.<parameter> after one step; and for each of them
///                            limit.<name>, how far the program may be off, relative to scale.<name>
///
/// The limit is that of the fixtures: 1e-5, or 16 times the error of float32 itself. That error is measured on the same
/// module: the train stage is evaluated with every result rounded to 24 bits, again with 23, and compared with the
/// evaluation without rounding. A graph with cancellation has a larger limit.
llvm::Error writeEmittedCase(uint64_t seed, int64_t graphs, llvm::StringRef folder, llvm::StringRef graphFile);

} // namespace fsdpc

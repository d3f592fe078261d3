// What a program emitted for a random module is given, and what it must do with it.
#pragma once

#include "tests/random/properties.h"

namespace fsdpc {

/// Writes into `folder`, for `graphs` graphs side by side in one module, or for the module in `graphFile` if that is
/// not empty (one that was reduced):
///   graph.fsir               the module
///   options.txt              options of fsdpc, one per line
///   batch.safetensors        the global batch
///   weights.safetensors      the initial parameters
///   reference.safetensors    in f64: loss, grad.<parameter>, final.<parameter> after one step; and for each of them
///                            limit.<name>, how far the program may be off, relative to scale.<name>
///
/// The limit is what the fixtures have: 1e-5, or 16 times what float32 itself loses. What it loses is measured on the
/// same module: the train stage evaluated with every result rounded to 24 bits, and once more to 23, against the same
/// without rounding. A graph that cancels loses more, and says so.
llvm::Error writeEmittedCase(uint64_t seed, int64_t graphs, llvm::StringRef folder, llvm::StringRef graphFile);

} // namespace fsdpc

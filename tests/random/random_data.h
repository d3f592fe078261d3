// Data for a random graph: the same for every stage, number of ranks and run.
#pragma once

#include "ir/eval/evaluate.h"
#include "tests/random/generate.h"

namespace fsdpc {

using Tensors = std::map<std::string, HostTensor>;

/// Multiples of 1/256 in [-1, 1], so that float32 holds them.
Tensors parameterValues(const Module &module, uint64_t seed);

/// The global batch of `rows` samples for every input of the train stage `module`. Floats are multiples of 1/64,
/// integers are in the range that their name states, and labels are valid for the loss. More rows begin with the same
/// rows.
Tensors globalBatch(const Module &train, const Choices &choices, uint64_t seed, int64_t rows);

/// Each rank's rows of a global batch.
std::vector<Tensors> rowsOfRanks(const Tensors &batch, int64_t ranks);

/// Writes f32, f64 and integer tensors in the safetensors format.
llvm::Error writeSafetensors(llvm::StringRef path, const Tensors &tensors);

} // namespace fsdpc

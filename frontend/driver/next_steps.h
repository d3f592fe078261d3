// What to type after a compile.
#pragma once

#include "frontend/compilation/compilation.h"

namespace fsdpc {

/// A few lines for people, after OUT/ has been written: what was built, the values that were chosen by default, the
/// command that trains, and what the data must hold.
///     built out/train for 2 ranks: cpu, full_shard, 4.12 MiB per rank
///     by default: target cpu (this fsdpc finds no CUDA device), strategy full_shard, adamw with lr 0.001
///     train it:   mpirun -n 2 out/train --train_data DATA --steps 100
///     DATA, a sample: input_ids i64[64], labels i64[64] (.safetensors); or tokens, 65 of each sample (.bin)
std::string nextSteps(const Compilation &compilation, const OptionValues &values);

} // namespace fsdpc

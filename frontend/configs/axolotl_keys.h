// The table of Axolotl, with reasons that its combination of keys has too.
#pragma once

#include "frontend/configs/trainer.h"

namespace fsdpc {

constexpr llvm::StringLiteral quantizedReason = "weights are not quantized",
                              fullPrecisionReason =
                                  "there is no copy of the weights in fp32 then; bf16 or fp16 trains with one";

llvm::ArrayRef<KeyRow> axolotlRows();

} // namespace fsdpc

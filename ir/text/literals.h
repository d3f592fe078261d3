// Numbers in the text form. A decimal is rounded to its element type, so 0.1 in an f32 constant is the f32 nearest to
// 0.1. A hexadecimal number (0x1.8p-3) is exact.
#pragma once

#include "ir/attributes.h"
#include "ir/text/constant_store.h"

namespace fsdpc::text {

/// Parses a decimal, a hexadecimal, inf, -inf or nan. nullopt for other texts and for numbers outside the range of
/// double.
std::optional<double> parseDouble(llvm::StringRef text);

/// The value of `text` as a literal in a fused step of `dtype`.
std::optional<double> parseScalar(DType dtype, llvm::StringRef text);
/// The shortest text that parseScalar(dtype, ...) turns into these bits.
std::string scalarText(DType dtype, double value);

/// nullopt if a text is not a number of the dtype or is out of its range.
std::optional<Dense> denseFromTexts(DType dtype, llvm::ArrayRef<llvm::StringRef> texts, bool splat);
/// The text inside value(...), without the dtype: 0.5 (every element), [1, 2], hex "00ff" beyond 16 elements, stored
/// "name" if the bytes go to a store.
std::string denseText(const Dense &dense, ConstantStore *constants);

} // namespace fsdpc::text

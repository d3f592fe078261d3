// Numbers in the text form. A decimal is rounded to the element type it is for, so 0.1 means the f32 nearest to 0.1 in
// an f32 constant; a hexadecimal one (0x1.8p-3) is taken as it is.
#pragma once

#include "ir/attributes.h"

namespace fsdpc::text {

/// Decimal, hexadecimal, inf, -inf or nan; nullopt for anything else and for what no double can hold.
std::optional<double> parseDouble(llvm::StringRef text);

/// The value a fused step of `dtype` gets from `text`.
std::optional<double> parseScalar(DType dtype, llvm::StringRef text);
/// The shortest text that parseScalar(dtype, ...) turns into these bits.
std::string scalarText(DType dtype, double value);

/// nullopt if a text is no number of the dtype, or out of its range.
std::optional<Dense> denseFromTexts(DType dtype, llvm::ArrayRef<llvm::StringRef> texts, bool splat);
/// What stands inside value(...), without the dtype: 0.5 (every element), [1, 2], hex "00ff" beyond 16 elements.
std::string denseText(const Dense &dense);

} // namespace fsdpc::text

// Checks the call graph of local functions before libonnx follows the calls without a bound.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// The maximum number of nodes after inlining or unrolling.
constexpr int64_t maxExpandedNodes = int64_t(1) << 22;
constexpr int64_t maxExpandedBytes = int64_t(1) << 31;

/// Returns an error that names the functions if they are recursive, if calls are nested deeper than 100, or if inlining
/// them would create more than maxExpandedNodes nodes or maxExpandedBytes bytes.
llvm::Error checkFunctionCalls(const OnnxModel &model);

} // namespace fsdpc

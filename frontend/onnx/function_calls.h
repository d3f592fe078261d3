// Which local functions call which, looked at before libonnx follows the calls without a bound.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// What inlining or unrolling may make of a model.
constexpr int64_t mostExpandedNodes = int64_t(1) << 22;
constexpr int64_t mostExpandedBytes = int64_t(1) << 31;

/// An error that names the functions if they call themselves, call each other deeper than 100, or would make more than
/// mostExpandedNodes nodes or mostExpandedBytes bytes when they are inlined.
llvm::Error checkFunctionCalls(const OnnxModel &model);

} // namespace fsdpc

// Conversion of old operator sets.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

constexpr int64_t oldestOpset = 7;      ///< before, broadcasting was an attribute
constexpr int64_t translatedOpset = 13; ///< the oldest that translations read
constexpr int64_t newestOpset = 24;     ///< the newest that libonnx 1.19 knows

/// Rewrites a model of opset 7 to 12 as opset 13 through libonnx's converter. Keeps node names. Loses metadata, which
/// exporters of that age do not write. Newer models are not converted.
llvm::Error convertOpset(OnnxModel &model);

} // namespace fsdpc

// Notes about a file in which nothing distinguishes parameters from buffers and constants.
#pragma once

#include "frontend/onnx/parameters.h"

namespace fsdpc {

/// Adds notes to `repair.model.notes`: convolutions that BatchNorm was folded into, trained tensors that the exporter
/// computed, tensors that only their name makes parameters, and every float tensor of more than one element that does
/// not train. One line each, with names shortened by pattern. Adds nothing if the file has an export signature.
void noteWithoutSignature(const Repair &repair, const RecoveredParameters &recovered);

} // namespace fsdpc

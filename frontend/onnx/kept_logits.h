// Removes the input for the number of logits to keep, which the TorchScript exporter adds.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// transformers' language models compute logits of the last `logits_to_keep` positions, an int; the default 0 means all
/// of them. When a model is exported with its inputs in a dict, TorchScript makes the default a tensor, an input
/// logits_to_keep without dims, and the model then indexes positions by it: Gather(hidden, logits_to_keep) along axis
/// 1, one position. Such a Gather becomes Identity and the input is removed, so that the model has the logits of all
/// positions, as in PyTorch. Shapes stated in the file for later values are dropped. Done only if nothing but Gathers
/// reads the input. Returns a sentence that describes the change, "" if there is no such input.
std::string keepAllLogits(OnnxModel &model);

} // namespace fsdpc

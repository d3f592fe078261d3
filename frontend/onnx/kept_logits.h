// The number of logits to keep, which the TorchScript exporter makes an input.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// transformers' language models compute logits of the last `logits_to_keep` positions, an int; 0, its default, means
/// all of them. Exported with the model's inputs in a dict, TorchScript takes the default for a tensor, an input
/// logits_to_keep without dims, and the model for one that indexes positions by it: Gather(hidden, logits_to_keep)
/// along axis 1, one position. Such a Gather becomes Identity and the input goes, so that the model has the logits of
/// all positions that PyTorch's has; shapes that the file states behind it are dropped. Only where Gathers are all that
/// reads the input. Returns a sentence that says so, "" where there is no such input.
std::string keepAllLogits(OnnxModel &model);

} // namespace fsdpc

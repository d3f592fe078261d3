// Restores training behaviour of models exported in training mode, where the exporter writes the node for evaluation.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

/// The dynamo exporter traces a model in its current mode, but writes
///   - BatchNormalization for inference, in whatever mode the module was;
///   - scaled_dot_product_attention without its dropout.
/// Nodes quote the statement that they were traced from (traced_graph.h), which shows both. With TrainMode::train, a
/// Dropout is inserted after the Softmax of such an attention; batch norms train in that mode anyway. TrainMode::keep
/// leaves the file as it is. Returns a sentence for each kind of node whose mode is not what the author chose, or was
/// restored.
std::vector<std::string> restoreTrainingModes(OnnxModel &model, TrainMode mode);

} // namespace fsdpc

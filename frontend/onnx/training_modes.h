// What a model exported in training mode does, where the exporter writes the node of evaluation.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

/// The dynamo exporter traces a model as it is, but writes
///   - BatchNormalization for inference, whatever mode the module was in;
///   - scaled_dot_product_attention without its dropout.
/// Nodes quote the statement they were traced from (traced_graph.h), which tells both. TrainMode::train gets a Dropout
/// behind the Softmax of such an attention; its batch norms train anyway. TrainMode::keep takes the file as it is.
/// Returns a sentence for each kind whose mode is not what the author chose, or that was restored.
std::vector<std::string> restoreTrainingModes(OnnxModel &model, TrainMode mode);

} // namespace fsdpc

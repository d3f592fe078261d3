// What a model exported in training mode does, where the exporter writes the node of evaluation.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

/// The dynamo exporter traces a model as it is, but writes
///   - BatchNormalization for inference, whatever mode the module was in;
///   - scaled_dot_product_attention without its dropout.
/// Nodes quote the statement they were traced from (traced_graph.h), which tells both. Such a BatchNormalization gets
/// training_mode = 1, and a Dropout goes behind such a Softmax, to be active or not as ImportOptions::trainMode says.
/// Returns a sentence for each kind that `mode` does not decide otherwise.
std::vector<std::string> restoreTrainingModes(OnnxModel &model, TrainMode mode);

} // namespace fsdpc

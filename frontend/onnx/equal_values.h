// Does the file hold equal values more than once? An exporter that merges equal initializers leaves one of each.
#pragma once

#include "frontend/onnx/graph_index.h"

namespace fsdpc {

/// Are there two vectors of the same size and the same values, both under names of the model's own? A fresh model has
/// biases of zeros and norms of ones. Absent and long ones are not looked at.
bool holdsEqualVectors(const OnnxModel &model, const GraphIndex &index);

} // namespace fsdpc

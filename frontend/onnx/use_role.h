// The role of an initializer in a node that reads it, from the op and the operand's position alone.
#pragma once

#include "frontend/onnx/graph_index.h"

namespace fsdpc {

enum class UseRole : uint8_t { weight, bias, table, mean, variance, other };
/// Returns bias for an Add and weight for a Mul, the roles of trained vectors there.
UseRole useRole(const GraphIndex &index, const InitializerRead &read);
/// True if the initializer is the second operand of a MatMul or Gemm.
bool isLinearWeight(const onnx::NodeProto &node, int input);

} // namespace fsdpc

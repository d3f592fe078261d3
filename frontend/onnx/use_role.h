// What a node does with an initializer that it reads, from its op and the operand's position alone.
#pragma once

#include "frontend/onnx/graph_index.h"

namespace fsdpc {

enum class UseRole : uint8_t { weight, bias, table, mean, variance, other };
/// Of an Add the answer is bias, of a Mul weight: what trained vectors are there.
UseRole useRole(const GraphIndex &index, const InitializerRead &read);
/// Is the initializer the second operand of a MatMul or Gemm?
bool isLinearWeight(const onnx::NodeProto &node, int input);

} // namespace fsdpc

// Graphs inside graphs: the bodies of If, Loop and Scan.
#pragma once

#include "onnx/onnx_pb.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <vector>

namespace fsdpc {

/// Calls `visit` for the graph and every graph in an attribute of a node, however deep, without recursion.
inline void forEachGraph(const onnx::GraphProto &graph, llvm::function_ref<void(const onnx::GraphProto &)> visit) {
  std::vector<const onnx::GraphProto *> waiting = {&graph};
  while (!waiting.empty()) {
    const onnx::GraphProto *next = waiting.back();
    waiting.pop_back();
    visit(*next);
    for (const onnx::NodeProto &node : next->node())
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (attribute.has_g())
          waiting.push_back(&attribute.g());
        for (const onnx::GraphProto &inner : attribute.graphs())
          waiting.push_back(&inner);
      }
  }
}

} // namespace fsdpc

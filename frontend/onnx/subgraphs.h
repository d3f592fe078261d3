// Graphs inside graphs: the bodies of If, Loop and Scan.
#pragma once

#include "onnx/onnx_pb.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <vector>

namespace fsdpc {

/// Calls `visit` for every graph in an attribute of the node itself.
inline void forEachBody(const onnx::NodeProto &node, llvm::function_ref<void(const onnx::GraphProto &)> visit) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      visit(attribute.g());
    for (const onnx::GraphProto &inner : attribute.graphs())
      visit(inner);
  }
}

/// Calls `visit` for the graph and every graph in an attribute of a node, however deep, without recursion.
inline void forEachGraph(const onnx::GraphProto &graph, llvm::function_ref<void(const onnx::GraphProto &)> visit) {
  std::vector<const onnx::GraphProto *> waiting = {&graph};
  while (!waiting.empty()) {
    const onnx::GraphProto *next = waiting.back();
    waiting.pop_back();
    visit(*next);
    for (const onnx::NodeProto &node : next->node())
      forEachBody(node, [&](const onnx::GraphProto &inner) { waiting.push_back(&inner); });
  }
}

/// Calls `visit` for the nodes and all nodes in their bodies, however deep.
inline void forEachNode(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                        llvm::function_ref<void(const onnx::NodeProto &)> visit) {
  for (const onnx::NodeProto &node : nodes) {
    visit(node);
    forEachBody(node, [&](const onnx::GraphProto &body) {
      forEachGraph(body, [&](const onnx::GraphProto &graph) {
        for (const onnx::NodeProto &inner : graph.node())
          visit(inner);
      });
    });
  }
}

} // namespace fsdpc

// Shared state of the repairs of computed initializers: the graph under edit, and the location of each parameter's
// values.
#pragma once

#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"

namespace fsdpc {

class FoldedValues {
public:
  /// The index is of the graph before the edits.
  FoldedValues(const Repair &repair, const GraphIndex &index, const ExportSignature &signature, GraphEdit &edit);

  const Repair &repair;
  const GraphIndex &index;
  const ExportSignature &signature;
  GraphEdit &edit;

  /// The initializer of that name, from the file or made since. Null if there is none.
  const onnx::TensorProto *parameter(llvm::StringRef name) const;
  /// An initializer under another name that holds the parameter transposed or reshaped. Null if there is none.
  const onnx::TensorProto *moved(llvm::StringRef parameter) const { return holders.lookup(parameter); }
  /// Makes an initializer for a parameter that has none. Returns the value to read in its place.
  std::string make(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<uint8_t> bytes,
                   llvm::StringRef note);
  /// Its elements, if the file has them as f32.
  llvm::Expected<std::optional<std::vector<float>>> floats(const onnx::TensorProto &tensor) const;
  /// A node that reads the computed tensor in place of another tensor of equal values, with which the exporter merged
  /// it. Its statement does not quote the tensor, and either quotes a lost value of the same operation or is outside
  /// the parameter's module. "" if there is none, for example after merged tensors have been split.
  std::string foreignReader(const onnx::TensorProto &tensor, llvm::StringRef parameter) const;

private:
  /// True if the module has another parameter with the same number of elements, or one that is not in the file.
  bool hasSibling(const onnx::TensorProto &tensor, llvm::StringRef name) const;

  TracedGraph traced;
  llvm::StringMap<const onnx::TensorProto *> made, holders;
};

} // namespace fsdpc

// What the repairs of computed initializers share: the graph under edit, and where each parameter's values are.
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

  /// The initializer of that name: of the file, or made since. Null if there is none.
  const onnx::TensorProto *parameter(llvm::StringRef name) const;
  /// An initializer of other name that is the parameter moved about: transposed, reshaped. Null if there is none.
  const onnx::TensorProto *moved(llvm::StringRef parameter) const { return holders.lookup(parameter); }
  /// Makes an initializer for a parameter that has none; what is read in its place.
  std::string make(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<uint8_t> bytes,
                   llvm::StringRef note);
  /// Its elements, if the file has them as f32.
  llvm::Expected<std::optional<std::vector<float>>> floats(const onnx::TensorProto &tensor) const;
  /// A node that reads the computed tensor for another one of equal values, with which the exporter merged it: its
  /// statement quotes a lost value of the same operation and not the tensor, or it stands outside of the parameter's
  /// module and does not quote the tensor. "" if there is none, as where the merged have been split.
  std::string foreignReader(const onnx::TensorProto &tensor, llvm::StringRef parameter) const;

private:
  /// Another parameter of the module, of as many elements as the tensor or not in the file.
  bool hasSibling(const onnx::TensorProto &tensor, llvm::StringRef name) const;

  TracedGraph traced;
  llvm::StringMap<const onnx::TensorProto *> made, holders;
};

} // namespace fsdpc

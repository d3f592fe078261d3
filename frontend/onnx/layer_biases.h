// By what name a bias goes that several layers share, where only Identity nodes tell (TorchScript exporter).
#pragma once

#include "frontend/onnx/graph_index.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

/// The weight of the layer whose bias is read: of the product that it is added to, of the convolution or of the
/// recurrent node. "" if it is read as something else.
std::string weightBeside(const GraphIndex &index, const InitializerRead &read);

class LayerBiases {
public:
  explicit LayerBiases(const GraphIndex &index) : index(index) {}

  /// The first name under which the initializer is read beside the weight: its own where a read of its own is.
  std::string nameBeside(llvm::StringRef initializer, llvm::StringRef weight);

private:
  const GraphIndex &index;
  llvm::StringMap<std::string> names; ///< by "initializer\nweight"
  llvm::StringSet<> listed;
};

} // namespace fsdpc

// Names a bias that several layers share, where only Identity nodes distinguish its uses (TorchScript exporter).
#pragma once

#include "frontend/onnx/graph_index.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

/// The weight of the layer whose bias is read: the weight of the matmul that it is added to, of the convolution or of
/// the recurrent node. "" if it is not read as a bias.
std::string weightOfBias(const GraphIndex &index, const InitializerRead &read);

class LayerBiases {
public:
  explicit LayerBiases(const GraphIndex &index) : index(index) {}

  /// The first name under which the initializer is read with this weight: its own name if it is read under that.
  std::string nameForWeight(llvm::StringRef initializer, llvm::StringRef weight);

private:
  const GraphIndex &index;
  llvm::StringMap<std::string> names; ///< by "initializer\nweight"
  llvm::StringSet<> listed;
};

} // namespace fsdpc

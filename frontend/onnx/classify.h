// Classifies each initializer as a parameter, a buffer or a constant, and finds its name in PyTorch.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"

namespace fsdpc {

enum class InitializerKind : uint8_t { parameter, buffer, constant };

struct InitializerRole {
  InitializerKind kind = InitializerKind::constant;
  std::string origin;        ///< how that is known: "export metadata", "name", "use"
  std::string name;          ///< the recovered name; the initializer's own if no better one is known
  bool isTransposed = false; ///< [in, out] in the file, [out, in] in PyTorch
  bool dropsOnes = false;    ///< [1, S, D] or [C, 1, 1] in the file, [S, D] or [C] in PyTorch
  std::string note;          ///< how the exporter changed it
};

/// By position in the file. Evidence in this order: export metadata; names (dotted names and names of folded weights,
/// as the TorchScript exporter writes them); use (operands of matmuls, convolutions, norms and embeddings). Integers
/// are never parameters, nor are the tables of RotaryEmbedding.
std::vector<InitializerRole> classifyInitializers(const OnnxModel &model, const GraphIndex &index,
                                                  const ExportSignature &signature);

} // namespace fsdpc

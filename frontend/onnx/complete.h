// Checks that the import is complete: every parameter that the exporter names trains as its author wrote it, or is
// accounted for. Otherwise the model is refused.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"

namespace fsdpc {

/// The fate of the parameters that the export signature lists and no initializer holds. Signature order.
struct MissingParameters {
  std::vector<std::string> zeroBiases;       ///< the exporter drops zero biases after a matmul or convolution
  std::vector<std::string> foldedBatchNorms; ///< modules whose BatchNorm went into the convolution before it
  std::vector<std::string> unused;           ///< no remaining statement reads them
  std::vector<LostParameter> lost;           ///< still in use, but without a value of their own
};

/// Works on the graph as repaired so far. Names in `model.tied` and `model.lost` are already accounted for. Without
/// traced statements (traced_graph.h), a missing parameter counts as unused unless it has the name of a bias.
MissingParameters findMissing(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature);

/// Adds the results of findMissing and findLostDerivatives to `model.lost`, removes those that --accept_changed names,
/// and adds the rest to `model.notes`. Call it after all repairs. Error: --accept_changed is not a regular expression
/// or matches no changed parameter.
llvm::Error accountForAll(const Repair &repair);

/// Classes of torch.autograd.Function that the source calls, according to the stack traces. The export has only their
/// forward passes. A user who accepts one by its name gets the derivative of the exported forward pass.
std::vector<LostParameter> findLostDerivatives(const onnx::GraphProto &graph);

/// Fills `model.tracedSeparately` with the trainable `parameters` that a separately traced statement reads.
void findTracedSeparately(OnnxModel &model, llvm::ArrayRef<Parameter> parameters);

/// One error for all of `model.lost`, or of `model.tracedSeparately`, with advice how to avoid it. Success if both are
/// empty.
llvm::Error refuseLost(const OnnxModel &model);

} // namespace fsdpc

// Complete or refused: every parameter that the exporter names trains as its author wrote it, or is accounted for.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"

namespace fsdpc {

/// What became of the parameters that the export signature lists and no initializer holds. Signature order.
struct MissingParameters {
  std::vector<std::string> zeroBiases;       ///< the exporter drops a bias of zeros behind a product
  std::vector<std::string> foldedBatchNorms; ///< modules whose BatchNorm went into the convolution before it
  std::vector<std::string> unused;           ///< no statement that is left reads them
  std::vector<LostParameter> lost;           ///< read by what is left, and by nothing of their own
};

/// The graph as repaired so far. What `model.tied` and `model.lost` name is accounted for already. Where the file has
/// no traced statements (fx_trace.h), what has no bias's name counts as unused.
MissingParameters findMissing(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature);

/// Adds to `model.lost` what findMissing and findLostDerivatives find lost, takes off what --accept_changed names, and
/// notes the rest as remarks. Call it after all repairs. Error: --accept_changed is no regular expression or matches
/// nothing that was changed.
llvm::Error accountForAll(const Repair &repair);

/// Classes of torch.autograd.Function that the source calls, by the stack traces: the export has their forward passes
/// alone. Whoever accepts one by its name takes the derivative of what the file computes.
std::vector<LostParameter> findLostDerivatives(const onnx::GraphProto &graph);

/// Fills `model.tracedApart` with the trainable ones of `parameters` that a statement traced apart reads.
void findTracedApart(OnnxModel &model, llvm::ArrayRef<Parameter> parameters);

/// All of `model.lost`, or of `model.tracedApart`, in one error, with what avoids it; success if there is none.
llvm::Error refuseLost(const OnnxModel &model);

} // namespace fsdpc

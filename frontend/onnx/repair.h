// Repairs of what exporters do to parameters, as edits of the graph: afterwards every parameter is one initializer. And
// of what they do to a mask.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

struct Repair {
  OnnxModel &model;
  const ImportOptions &options;
  std::vector<std::string> &remarks;
};

/// One parameter in several initializers becomes one initializer again: an embedding and the transposed copy that a
/// last MatMul reads, two foldings of one weight. Contents must be equal bit for bit and not all one value. Off with
/// noTie.
llvm::Error tieCopies(const Repair &repair);

/// A parameter of which several modules read parts (a Split that quotes no statement), because theirs were equal,
/// becomes one for each: a reader in module b.attn takes b.attn.in_proj_bias if the file lacks it, no statement quotes
/// it, and the reader's own quotes a value that is gone. Runs before splitMerged. Off with keepShared.
llvm::Error splitMergedParts(const Repair &repair);

/// An initializer that several modules read, because their parameters happened to be equal when the exporter looked,
/// becomes one initializer per parameter again:
///   - by the names of Identity nodes (TorchScript exporter): fc2.bias = Identity(fc1.bias);
///   - by the parameters that the export signature lists and the file lacks (dynamo exporter): a reader in module
///   a.norm2 takes
///     a.norm2.weight. A reader in a foreign module for which none is left reads a constant that was merged with the
///     parameter;
///   - else by scope: a reader in another module than the initializer's name says.
/// Values that differ among each other are equal on purpose, and the initializer stays one parameter, unless the
/// modules stand at equal places of repeated blocks (layers.0.fc and layers.1.fc), which start as copies. An embedding
/// table and what multiplies by it stay one parameter (unless noTie), and so do shared initializers of more than 1024
/// elements and more than one dim without an Identity: exporters merge no such. Off with keepShared.
llvm::Error splitMerged(const Repair &repair);

/// A node, or a chain of nodes, that stands for the calls of several modules because their parameters were equal
/// becomes one for each again (dynamo exporter; lost_statements.h says how the readers of each are known). Runs after
/// splitMerged, by which every node that is left reads the parameters of its own module:
///   - nodes of a statement that another statement's nodes share (one MatMul for two Linear with equal weights and
///     different biases);
///   - whole statements, with what they read.
/// Returns the parameters that were merged in this way and cannot be told apart: they stay missing, or are in the file
/// and may be read where another's call was. Off with keepShared.
llvm::Expected<std::vector<std::string>> splitMergedNodes(const Repair &repair);

/// Biases that the model joins to one vector and takes apart again (those of q, k and v, for PyTorch's attention with
/// weights of its own), which the exporter stored joined, are parameters again: each read of a part is the bias of the
/// layer whose weight the reader's statement quotes. Runs before restoreFolded, which calls the joined one computed.
llvm::Error restoreConcatenated(const Repair &repair);

/// A parameter that the exporter expanded, sliced or looked up, and stored as the result (`folded_from` names it), is
/// an initializer again, read through Expand, Gather, Reshape and Transpose nodes:
///   - along an axis where all slices are equal, the parameter is one of them. Slices of one value count only along the
///     samples of the batch;
///   - rows that occur again are rows of a table, each of which is stored once. Other rows of it are not in the file.
/// What was computed by elementwise steps that have inverses is computed back (computed_back.h), and what was computed
/// from a state of zero is its constant or its bias (zero_state.h). What was computed otherwise (clamp, a norm; several
/// parameters at once), or has one value where several rows are, is lost: OnnxModel::lost says why.
llvm::Error restoreFolded(const Repair &repair);

/// The operands of LSTM, GRU and RNN nodes, which the exporter put together from weight_ih, weight_hh, bias_ih and
/// bias_hh of both directions with the gates in ONNX's order, are those parameters again, in PyTorch's order. Without
/// metadata (TorchScript exporter) they have torch.nn's names below the node's scope: r.weight_ih_l0, r.bias_hh_l1.
llvm::Error restoreRecurrent(const Repair &repair);

/// Without metadata (TorchScript exporter): the slices of in_proj_weight and in_proj_bias that the exporter stored for
/// a torch.nn.MultiheadAttention whose keys are not its queries, or its in_proj_bias and three weights of several
/// widths, are those parameters again. They are the products that stand in a module itself beside its out_proj.
llvm::Error restoreInProjections(const Repair &repair);

/// Without metadata (TorchScript exporter): what the exporter computed as 1 - p from a parameter p that is in the file
/// too is computed from it again, so that p has its whole gradient. p belongs to the module that reads the result, and
/// either the result is 1 - p bit for bit and not all one value, or it weighs a sum as x * p + y * (1 - p). Several
/// such p that nothing tells apart are lost.
llvm::Error restoreComplements(const Repair &repair);

/// Biases that the export signature lists and the file lacks come back as zeros where a Gemm or Conv has room for them.
/// Only with restoreBiases; otherwise a remark counts them.
llvm::Error restoreBiases(const Repair &repair);

/// Where the author stopped gradients by detach(), they stop (dynamo exporter): a kept Identity is marked
/// (stopGradientKey), and a dropped one comes back in front of the node whose statement quotes it. Where the statement
/// does not tell which input that is, or a value was merged with one that may be detached, the node is lost
/// (OnnxModel::lost). What depends on no parameter stays as it is. Runs when every parameter is an initializer.
llvm::Error stopGradients(const Repair &repair);

/// A boolean mask of PyTorch's scaled_dot_product_attention hides keys altogether, and a query that sees none is zero.
/// The dynamo exporter selects the least float instead of -infinity: such a query would see all keys alike, and the NaN
/// that its own guard behind the softmax looks for never comes. Where the statement says so, -infinity is selected.
llvm::Error restoreBooleanMasks(const Repair &repair);

} // namespace fsdpc

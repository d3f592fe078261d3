// Graph edits that undo changes that exporters make to parameters, so that every parameter is one initializer, and to a
// mask.
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
/// last MatMul reads, two foldings of one weight. Contents must be bitwise identical and not uniform. Off with noTie.
llvm::Error tieCopies(const Repair &repair);

/// A parameter of which several modules read slices (a Split without a statement), because their parameters were equal,
/// becomes one parameter per module: a reader in module b.attn gets b.attn.in_proj_bias if the file lacks it, no
/// statement quotes it, and the reader's statement quotes a value that is lost. Runs before splitMerged. Off with
/// keepShared.
llvm::Error splitMergedParts(const Repair &repair);

/// An initializer that several modules read, because their parameters happened to be equal at export time, becomes one
/// initializer per parameter again:
///   - by the names of Identity nodes (TorchScript exporter): fc2.bias = Identity(fc1.bias);
///   - by the parameters that the export signature lists and the file lacks (dynamo exporter): a reader in module
///     a.norm2 gets a.norm2.weight. A reader in another module for which no such parameter is left reads a constant
///     that was merged with the parameter;
///   - else by scope: a reader in another module than the one in the initializer's name.
/// Values that are not uniform are equal on purpose, and the initializer stays one parameter, unless the modules are at
/// the same position of repeated blocks (layers.0.fc and layers.1.fc), which start as copies. An embedding table and a
/// matmul weight that shares it stay one parameter (unless noTie). So do shared initializers of more than 1024 elements
/// and more than one dim without an Identity: exporters do not merge those. Off with keepShared.
llvm::Error splitMerged(const Repair &repair);

/// A node, or a chain of nodes, that stands for calls of several modules because their parameters were equal becomes
/// one per module again (dynamo exporter; lost_statements.h describes how the readers of each are found). Runs after
/// splitMerged, so that every remaining node reads the parameters of its own module:
///   - nodes of a statement that another statement's nodes share (one MatMul for two Linear with equal weights and
///     different biases);
///   - entire statements, with the values that they read.
/// Returns the parameters that were merged in this way and whose readers cannot be distinguished. They stay missing, or
/// they are in the file and may also be read in place of a call of another module. Off with keepShared.
llvm::Expected<std::vector<std::string>> splitMergedNodes(const Repair &repair);

/// Biases that the model concatenates and splits again (those of q, k and v, for PyTorch's attention with separate
/// weights), and that the exporter stored concatenated, become parameters again. Each read of a slice is the bias of
/// the layer whose weight the reader's statement quotes. Runs before restoreFolded, which would treat the concatenation
/// as computed.
llvm::Error restoreConcatenated(const Repair &repair);

/// A parameter that the exporter expanded, sliced or looked up, and stored as the result (`folded_from` names it),
/// becomes an initializer again, read through Expand, Gather, Reshape and Transpose nodes:
///   - along an axis where all slices are equal, the parameter is one slice. Uniform slices count only along the
///     samples of the batch;
///   - repeated rows are rows of a table, and each is stored once. Other rows of the table are not in the file.
/// A result of invertible elementwise steps is inverted (computed_back.h). A result computed from a zero state is
/// replaced by its constant or its bias (zero_state.h). A result of other computations (clamp, a norm, several
/// parameters together), or a uniform one where several rows are expected, is lost: OnnxModel::lost has the reason.
llvm::Error restoreFolded(const Repair &repair);

/// The operands of LSTM, GRU and RNN nodes, which the exporter packed from weight_ih, weight_hh, bias_ih and bias_hh of
/// both directions with the gates in ONNX's order, become those parameters again, in PyTorch's order. Without metadata
/// (TorchScript exporter) they get torch.nn's names below the node's scope: r.weight_ih_l0, r.bias_hh_l1.
llvm::Error restoreRecurrent(const Repair &repair);

/// Without metadata (TorchScript exporter): restores in_proj_weight and in_proj_bias of a torch.nn.MultiheadAttention
/// whose keys are not its queries from the slices that the exporter stored, or its in_proj_bias and three weights of
/// different widths. The slices are found as operands of the matmuls in the attention module itself, next to its
/// out_proj.
llvm::Error restoreInProjections(const Repair &repair);

/// Without metadata (TorchScript exporter): a tensor that the exporter computed as 1 - p from a parameter p in the file
/// is computed from p again, so that p gets its full gradient. p belongs to the module that reads the result, and
/// either the result is bitwise 1 - p and not uniform, or it weights a sum as x * p + y * (1 - p). If several such p
/// qualify, they are lost.
llvm::Error restoreComplements(const Repair &repair);

/// Adds biases that the export signature lists and the file lacks, as zeros, if a Gemm or Conv has a free bias operand.
/// Only with restoreBiases; otherwise a remark counts them.
llvm::Error restoreBiases(const Repair &repair);

/// Stops gradients where the author called detach() (dynamo exporter). A kept Identity is marked (stopGradientKey). A
/// dropped one is inserted again before the node whose statement quotes it. If the statement does not determine the
/// input, or a value was merged with one that may be detached, the node is lost (OnnxModel::lost). Values that depend
/// on no parameter stay as they are. Runs when every parameter is an initializer.
llvm::Error stopGradients(const Repair &repair);

/// A boolean mask of PyTorch's scaled_dot_product_attention hides keys completely, and a query that sees no key yields
/// zero. The dynamo exporter selects the lowest float instead of -infinity: such a query would see all keys equally,
/// and the NaN that the exporter's own check after the softmax looks for never occurs. If the statement is such an
/// attention, selects -infinity.
llvm::Error restoreBooleanMasks(const Repair &repair);

} // namespace fsdpc

// ONNX files in: the only door of this folder. No protobuf type crosses it.
//
// importOnnx reads a file (.onnx, or ONNX's text form .onnxtxt), checks it with libonnx, inlines its local functions,
// decides what is a parameter, repairs what the exporter hid (transposed, merged, copied parameters: parameters.h) and
// translates the nodes into a module of the graph stage with static shapes (translate/).
//
// What the graph looks like
// - Arguments: the graph inputs that are not initializers. Results: the graph outputs, by name.
// - One `read` per used parameter, at its first use; a parameter whose file layout differs is read in its own layout
// and
//   transposed or reshaped for its readers (matmul takes it through its transpose flags).
// - Operands of elementwise ops have equal shapes: broadcasts are `broadcast` nodes, never two in a row.
// - What only constants decide is a `constant`, with one value for all elements (splat) where it can be.
// - ReduceMean is mul(reduce_sum(x), constant 1/n). float16 and bfloat16 become f32, other small integers i32 or i64.
// - Node::source is "scope.path|node name": the dotted path of the PyTorch module ("" if unknown), a bar, the ONNX
// node's name.
//   Messages for people print what follows the bar.
//
// A loss inside the graph. If a graph output is one float element and its end is a mean or a sum, then Module::settings
// has
//   model_loss = mean | sum, model_loss_output = NAME
// and forward returns two more values: `loss_terms` (f32, before reduction, 0 where nothing counts) and `loss_counts`
// (f32; the loss is sum(loss_terms) / sum(loss_counts) for mean, sum(loss_terms) for sum). If such an output ends in
// something else, settings has model_loss_error, a sentence that names the node.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

/// Dropout and BatchNormalization as the file says (training_mode true is active), or forced on or off.
enum class TrainMode : uint8_t { keep, train, eval };

/// How parameters start. Values that a parameter takes from the file are in writeWeights's file; what training info
/// says is Parameter::initial; what is left has neither and follows the rules of initializeParameters.
enum class Init : uint8_t {
  file,     ///< values of the file; where they are absent, training info, else rules
  keep,     ///< values of the file, all of them
  defaults, ///< training info where it names them, else rules
  random,   ///< rules
};

struct ImportOptions {
  int64_t microBatchSize = 1;          ///< binds dim 0 of every input
  std::map<std::string, int64_t> dims; ///< values of the other symbols; `input[axis]` for a dim without a name
  TrainMode trainMode = TrainMode::keep;
  bool syncBatchNorm = false; ///< batch norms that train take the statistics of the batch of all ranks
  std::string trainableRegex; ///< not empty: exactly these are trained. A match may also turn a buffer into a parameter
  std::string frozenRegex;    ///< not empty: these are not trained
  std::string acceptChanged;  ///< not empty: of these, what the exporter changed beyond recovery trains as in the file
  std::vector<std::pair<std::string, std::string>> ties; ///< parameter A and parameter B are one, named A
  bool noTie = false;         ///< shared and copied parameters of different modules become parameters of their own
  bool keepShared = false;    ///< initializers that the exporter merged because they were equal stay one parameter
  bool restoreBiases = false; ///< zero biases that the exporter dropped come back
  Init init = Init::file;
  /// A parameter whose external data file does not exist has no value. What would need the value fails later.
  bool weightsMayBeAbsent = false;
};

class OnnxModel; ///< the file as repaired, with its weights (model.h)

struct ImportedModel {
  std::unique_ptr<Module> module;    ///< graph stage; null from inspectOnnx
  std::shared_ptr<OnnxModel> model;  ///< keeps initial values reachable
  std::vector<Parameter> parameters; ///< as in the module, where there is one
  std::vector<std::string> remarks;  ///< what was repaired or left out, one sentence each
  /// What everybody has to know, one sentence each: data files that do not exist and which parameters start without;
  /// where the graph is not the one in the file.
  std::vector<std::string> notes;
  bool hasTrainingModes = false; ///< some node computes one thing in training and another in evaluation
};

/// Errors name the file, tensor, dim or node at fault; all unsupported nodes and all unbound dims come in one error.
llvm::Expected<ImportedModel> importOnnx(llvm::StringRef path, const ImportOptions &options);

/// The same without translation: shapes may stay symbolic and ops may be unsupported.
llvm::Expected<ImportedModel> inspectOnnx(llvm::StringRef path, const ImportOptions &options);

/// Ops with counts, dims, parameters with their origin, buffers and constants, blocks that repeat: `fsdpc inspect`.
void printInspection(const ImportedModel &imported, llvm::raw_ostream &out);

/// Initial values of the parameters that have some (Parameter::hasValue) as safetensors, under Parameter::name in the
/// parameter's own layout. A few megabytes at a time are in memory, and holes of sparse files stay holes.
llvm::Error writeWeights(const ImportedModel &imported, llvm::StringRef path);

/// Where trained values go in the external data file of a repaired model.
struct ExternalLayout {
  struct Entry {
    std::string parameter;
    int64_t offsetBytes = 0;
    int64_t bytes = 0; ///< of the parameter's dtype, elements in the order of the file (Parameter::permutation)
  };
  std::vector<Entry> entries;
  int64_t totalBytes = 0;
};

/// The model as repaired, every parameter an initializer of its own under Parameter::initializer, its values external
/// in `dataFileName` beside `path` (which somebody else writes by the layout). Buffers and constants stay inside.
llvm::Expected<ExternalLayout> writeRepairedModel(const ImportedModel &imported, llvm::StringRef path,
                                                  llvm::StringRef dataFileName);

/// Of a model that writeRepairedModel wrote, for these parameters: what it returned. Errors: the file is not that.
llvm::Expected<ExternalLayout> readRepairedLayout(llvm::StringRef path, llvm::ArrayRef<Parameter> parameters,
                                                  llvm::StringRef dataFileName);

} // namespace fsdpc

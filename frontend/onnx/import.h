// Import of ONNX files: the only public interface of this folder. It exposes no protobuf types.
//
// importOnnx reads a file (.onnx, or ONNX's text form .onnxtxt), checks it with libonnx, inlines its local functions,
// finds the parameters, repairs those that the exporter changed (transposed, merged, copied: parameters.h) and
// translates the nodes into a module of the graph stage with static shapes (translate/).
//
// What the graph looks like
// - Arguments: the graph inputs that are not initializers. Results: the graph outputs, by name.
// - One `read` per used parameter, at its first use. A parameter whose file layout differs is read in its own layout
//   and transposed or reshaped for its readers (matmul uses its transpose flags).
// - Operands of elementwise ops have equal shapes: broadcasts are `broadcast` nodes, never two in a row.
// - A value that only constants determine is a `constant`, with one value for all elements (splat) if possible.
// - ReduceMean is mul(reduce_sum(x), constant 1/n). float16 and bfloat16 become f32, other small integers i32 or i64.
// - Node::source is "scope.path|node name": the dotted path of the PyTorch module ("" if unknown), a bar, the ONNX
//   node's name. Messages for users print the part after the bar.
//
// A loss inside the graph. If a graph output is one float element that a mean or a sum produces, Module::facts has
//   model_loss = mean | sum, model_loss_output = NAME
// and forward returns two more values: `loss_terms` (f32, before reduction, 0 where nothing counts) and `loss_counts`
// (f32; the loss is sum(loss_terms) / sum(loss_counts) for mean, sum(loss_terms) for sum). If another op produces such
// an output, facts has model_loss_error, a sentence that names the node.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

/// Dropout and BatchNormalization as specified in the file (training_mode true is active), or forced on or off.
enum class TrainMode : uint8_t { keep, train, eval };

/// How parameters are initialized. Values that a parameter takes from the file are in writeWeights's file. The start
/// given by training info is Parameter::initial. Other parameters have neither and follow the rules of
/// initializeParameters.
enum class Init : uint8_t {
  file,     ///< values of the file; if absent, training info, else rules
  keep,     ///< values of the file, all of them
  defaults, ///< training info if it names them, else rules
  random,   ///< rules
};

class FactStore; ///< what was learnt about the weights of files (fact_store.h)
/// Keeps it in this folder for later compiles, too, unless the folder is empty.
std::shared_ptr<FactStore> makeFactStore(llvm::StringRef folder);

struct ImportOptions {
  int64_t microBatchSize = 1;          ///< binds dim 0 of every input
  std::map<std::string, int64_t> dims; ///< values of the other symbols; `input[axis]` for a dim without a name
  TrainMode trainMode = TrainMode::keep;
  bool syncBatchNorm = false; ///< training batch norms use the statistics of the batch over all ranks
  std::string trainableRegex; ///< not empty: exactly these are trained. A match may also turn a buffer into a parameter
  std::string frozenRegex;    ///< not empty: these are not trained
  std::string acceptChanged;  ///< not empty: matches that the exporter changed beyond recovery train as in the file
  std::vector<std::pair<std::string, std::string>> ties; ///< parameter A and parameter B are one, named A
  bool noTie = false;         ///< shared and copied parameters of different modules become separate parameters
  bool keepShared = false;    ///< initializers that the exporter merged because they were equal stay one parameter
  bool restoreBiases = false; ///< restore zero biases that the exporter dropped
  Init init = Init::file;
  /// A parameter whose external data file does not exist has no value. Uses of the value fail later.
  bool weightsMayBeAbsent = false;
  /// Imports that share it read no weight twice for what it knows. Null: none are shared.
  std::shared_ptr<FactStore> facts;
};

class OnnxModel; ///< the file as repaired, with its weights (model.h)

struct ImportedModel {
  std::unique_ptr<Module> module;    ///< graph stage; null from inspectOnnx
  std::shared_ptr<OnnxModel> model;  ///< keeps initial values reachable
  std::vector<Parameter> parameters; ///< as in the module, if there is one
  std::vector<std::string> remarks;  ///< repairs and omissions, one sentence each
  /// Notes for every user, one sentence each: missing data files and the parameters that start without them, and
  /// differences between the graph and the file.
  std::vector<std::string> notes;
  bool hasTrainingModes = false; ///< some node computes different values in training and in evaluation
};

/// Errors name the file, tensor, dim or node. All unsupported nodes and all unbound dims are in one error.
llvm::Expected<ImportedModel> importOnnx(llvm::StringRef path, const ImportOptions &options);

/// The same without translation: shapes may stay symbolic and ops may be unsupported.
llvm::Expected<ImportedModel> inspectOnnx(llvm::StringRef path, const ImportOptions &options);

/// Writes the initial values of the parameters that have some (Parameter::hasValue) as safetensors, under
/// Parameter::name in the parameter's own layout. Holds a few megabytes in memory at a time. Holes of sparse files stay
/// holes.
llvm::Error writeWeights(const ImportedModel &imported, llvm::StringRef path);

/// The offsets of trained values in the external data file of a repaired model.
struct ExternalLayout {
  struct Entry {
    std::string parameter;
    int64_t offsetBytes = 0;
    int64_t bytes = 0; ///< of the parameter's dtype, elements in the order of the file (Parameter::permutation)
  };
  std::vector<Entry> entries;
  int64_t totalBytes = 0;
};

/// Writes the repaired model. Every parameter is a separate initializer under Parameter::initializer, with its values
/// external in `dataFileName` next to `path`; that file is written separately, according to the layout. Buffers and
/// constants stay inside.
llvm::Expected<ExternalLayout> writeRepairedModel(const ImportedModel &imported, llvm::StringRef path,
                                                  llvm::StringRef dataFileName);

/// Returns the layout that writeRepairedModel returned when it wrote the model for these parameters. Errors: the file
/// is no such model.
llvm::Expected<ExternalLayout> readRepairedLayout(llvm::StringRef path, llvm::ArrayRef<Parameter> parameters,
                                                  llvm::StringRef dataFileName);

} // namespace fsdpc

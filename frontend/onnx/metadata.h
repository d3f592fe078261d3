// Metadata that exporters write next to the graph: module scopes of nodes, kinds of initializers, names of all
// parameters.
#pragma once

#include "frontend/onnx/model.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace fsdpc {

/// The dotted module path of every node of the graph, by position: "transformer.h.0.attn". From
/// `pkg.torch.onnx.name_scopes` (dynamo exporter: the last entry but one), else from a name like
/// /transformer/h.0/attn/MatMul (TorchScript exporter). A node without either has the scope of a producer of its
/// inputs, else of a consumer.
std::vector<std::string> moduleScopes(const onnx::GraphProto &graph);

/// The class of every module that contains a node, by path, from `pkg.torch.onnx.class_hierarchy` (dynamo exporter),
/// whose elements correspond to those of the name scopes. The TorchScript exporter does not record it.
std::map<std::string, std::string> moduleClasses(const onnx::GraphProto &graph);

/// The elements of a Python list of strings as `repr` writes it; empty if the text is no list.
std::vector<std::string> pythonStrings(llvm::StringRef text);

/// The values from which the exporter computed an initializer.
constexpr llvm::StringRef foldedKey = "pkg.onnxscript.optimizer.folded_from";

/// The traced statement that a node implements a part of (traced_graph.h).
constexpr llvm::StringRef statementKey = "pkg.torch.onnx.fx_node";
/// The modules that contain a node, outermost first, and the statement.
constexpr llvm::StringRef scopesKey = "pkg.torch.onnx.name_scopes";

/// The location of the statement in the author's source.
constexpr llvm::StringRef sourceKey = "pkg.torch.onnx.stack_trace";

/// On a model: names that its parameters have in files of weights, one line `parameter TAB name` for each.
constexpr llvm::StringRef otherNamesKey = "fsdpc.other_names";

/// On an Identity node: no gradient flows back through it. Other programs treat the node as a plain Identity.
constexpr llvm::StringRef stopGradientKey = "fsdpc.stop_gradient";
void markStopsGradient(onnx::NodeProto &node);

/// How the import changed an initializer, as metadata of the initializer.
constexpr llvm::StringRef recoveredKey = "fsdpc.recovered";

/// The value of a key, or "".
template <class Message>
llvm::StringRef metadataOf(const Message &message, llvm::StringRef key) {
  for (const onnx::StringStringEntryProto &entry : message.metadata_props())
    if (entry.key() == key)
      return entry.value();
  return "";
}

/// The export signature that torch.export wrote into the file.
struct ExportSignature {
  std::vector<std::string> parameters; ///< names of all parameters, in definition order
  std::vector<std::string> buffers;
  llvm::StringSet<> isParameter, isBuffer;
  llvm::StringMap<std::string> placeholders;            ///< of traced statements: the parameter or buffer of each
  llvm::StringMap<std::string> placeholderOf;           ///< of parameters: the placeholder of each
  llvm::StringSet<> otherPlaceholders;                  ///< those of inputs and constants
  llvm::StringMap<std::string> kinds;                   ///< of values: PARAMETER, BUFFER, CONSTANT_TENSOR, ...
  llvm::StringMap<std::vector<std::string>> foldedFrom; ///< of initializers that the exporter computed: their sources
  bool known() const { return !parameters.empty() || !kinds.empty(); }
};
ExportSignature exportSignature(const onnx::GraphProto &graph);

/// The parameter or buffer that the initializer holds or was computed from; "" for none or several.
std::string parameterOf(const ExportSignature &signature, const onnx::TensorProto &tensor);
/// Records in the metadata of `copy`, which is to hold parameter `name`, that it was folded like `from` and is stored
/// like it (transposed, for instance).
void copyFolding(const ExportSignature &signature, const onnx::TensorProto &from, onnx::TensorProto &copy,
                 llvm::StringRef name);
/// Records in an initializer's metadata the values that it was computed from.
void setFoldedFrom(onnx::TensorProto &tensor, llvm::ArrayRef<std::string> sources);
/// Parameters and buffers of the signature that no initializer holds or was computed from, in definition order.
std::vector<std::string> missingParameters(const onnx::GraphProto &graph, const ExportSignature &signature);

// ---- Names

/// Names that exporters make up: onnx::MatMul_18, /fc1/Gemm_output_0, val_3, 336.
bool isExporterName(llvm::StringRef name);

/// "a.b.weight" -> "a.b"; "weight" -> "".
llvm::StringRef moduleOf(llvm::StringRef name);
/// "a.b.weight" -> "weight".
llvm::StringRef leafOf(llvm::StringRef name);
/// True if `outer` is `inner` or a module around it. Every module is inside "".
bool isWithin(llvm::StringRef inner, llvm::StringRef outer);
/// True if `scope` is the module's path or a suffix of it. TorchScript omits modules whose forward is not called:
/// self.model.decoder(x) has the scope "decoder".
bool isScopeOf(llvm::StringRef scope, llvm::StringRef module);
/// Exporters write a second call of fc as fc_1 or fc@1: "a.fc_1" -> "a.fc".
llvm::StringRef withoutCallCount(llvm::StringRef scope);
/// "layers.0.fc" -> "layers..fc": equal for modules at the same position of repeated blocks.
std::string withoutDigits(llvm::StringRef scope);

} // namespace fsdpc

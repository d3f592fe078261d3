// Reads a file and checks it with libonnx.
#include "frontend/onnx/model.h"

#include "frontend/onnx/check_order.h"
#include "frontend/onnx/convert_opset.h"
#include "frontend/onnx/expand_functions.h"
#include "frontend/onnx/function_calls.h"
#include "frontend/onnx/subgraphs.h"
#include "frontend/onnx/unsupported.h"
#include "onnx/checker.h"
#include "onnx/defs/parser.h"
#include "onnx/inliner/inliner.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

namespace fsdpc {

namespace {

llvm::Error modelError(const OnnxModel &model, const llvm::Twine &why) {
  return llvm::createStringError(model.path + ": " + why);
}

/// The first line of a libonnx message. The rest is context for libonnx's developers. libonnx names the node in
/// separate lines.
std::string oneLine(llvm::StringRef message) {
  llvm::SmallVector<llvm::StringRef, 4> lines;
  message.trim().split(lines, '\n', -1, /*KeepEmpty=*/false);
  return llvm::join(lines, " ");
}

std::string firstLine(llvm::StringRef message) { return message.split('\n').first.rtrim().str(); }

llvm::Error parseText(OnnxModel &model, llvm::StringRef text) {
  std::string copy = text.str();
  onnx::OnnxParser parser(copy.c_str());
  onnx::Common::Status status = parser.Parse(model.proto);
  if (!status.IsOK())
    return modelError(model, "not ONNX text: " + status.ErrorMessage());
  return llvm::Error::success();
}

llvm::Error parseBinary(OnnxModel &model, llvm::StringRef bytes) {
  if (bytes.size() >= (uint64_t(1) << 31))
    return modelError(model,
                      "is larger than the 2 GiB that the ONNX format allows in one file; export with external data");
  google::protobuf::LogSilencer quiet;
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (!model.proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    return modelError(model, "is not an ONNX model, or the file is truncated or damaged");
  if (!model.proto.has_graph() || (model.graph().node_size() == 0 && model.graph().output_size() == 0))
    return modelError(model, "is not an ONNX model: it holds no graph");
  return llvm::Error::success();
}

llvm::Error parseFile(OnnxModel &model) {
  if (llvm::sys::fs::is_directory(model.path))
    return modelError(model, "is a folder, not an ONNX file");
  auto buffer = llvm::MemoryBuffer::getFile(model.path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return modelError(model, "cannot open: " + buffer.getError().message());
  bool isText = llvm::StringRef(model.path).ends_with(".onnxtxt");
  return isText ? parseText(model, (*buffer)->getBuffer()) : parseBinary(model, (*buffer)->getBuffer());
}

llvm::Error checkTensors(const OnnxModel &model) {
  std::string faults;
  forEachGraph(model.graph(), [&](const onnx::GraphProto &graph) {
    auto check = [&](const onnx::TensorProto &tensor) {
      if (llvm::Error error = checkTensor(model, tensor))
        faults += "\n  " + llvm::toString(std::move(error));
    };
    for (const onnx::TensorProto &tensor : graph.initializer())
      check(tensor);
    for (const onnx::NodeProto &node : graph.node())
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        bool isKept = attribute.has_t() && dtypeOf(attribute.t().data_type());
        if (isKept)
          check(attribute.t());
      }
    if (graph.sparse_initializer_size())
      faults += "\n  sparse initializer '" + graph.sparse_initializer(0).values().name() + "' is not supported";
  });
  return faults.empty() ? llvm::Error::success() : modelError(model, "bad weights:" + faults);
}

/// The same as onnx::checker::check_model, but with the model's folder for external data. In libonnx, only the overload
/// that reads the file itself knows the folder.
void checkWithLibrary(const OnnxModel &model) {
  onnx::checker::CheckerContext context;
  std::unordered_map<std::string, int> imports;
  for (const onnx::OperatorSetIdProto &import : model.proto.opset_import())
    imports[import.domain()] = static_cast<int>(import.version());
  context.set_ir_version(static_cast<int>(model.proto.ir_version()));
  context.set_opset_imports(imports);
  context.set_model_dir(model.folder);
  onnx::checker::LexicalScopeContext names;
  onnx::checker::check_graph(model.graph(), context, names);
  if (model.proto.ir_version() >= 8)
    onnx::checker::check_model_local_functions(model.proto, context, names);
}

llvm::Error checkVersions(const OnnxModel &model) {
  if (model.proto.ir_version() < 3)
    return modelError(model,
                      "has IR version " + llvm::Twine(model.proto.ir_version()) + "; 3 is the oldest that is read");
  if (model.proto.ir_version() > onnx::IR_VERSION)
    return modelError(model, "has IR version " + llvm::Twine(model.proto.ir_version()) + "; " +
                                 llvm::Twine(static_cast<int>(onnx::IR_VERSION)) + " is the newest that is read");
  int64_t opset = model.opset("");
  if (opset < oldestOpset || opset > newestOpset)
    return modelError(model, "uses opset " + llvm::Twine(opset) + "; " + llvm::Twine(oldestOpset) + " to " +
                                 llvm::Twine(newestOpset) + " are supported: export again with one of these");
  return llvm::Error::success();
}

/// While it lives, absent weights are empty tensors: libonnx requires every file to exist.
class AbsentWeightsHidden {
public:
  explicit AbsentWeightsHidden(OnnxModel &model) {
    for (onnx::TensorProto &tensor : *model.graph().mutable_initializer())
      if (isAbsent(model, tensor)) {
        kept.emplace_back(&tensor, tensor);
        tensor.clear_external_data();
        tensor.clear_data_location();
        tensor.clear_dims();
        tensor.add_dims(0);
      }
  }
  ~AbsentWeightsHidden() {
    for (auto &[tensor, original] : kept)
      *tensor = std::move(original);
  }
  AbsentWeightsHidden(const AbsentWeightsHidden &) = delete;
  AbsentWeightsHidden &operator=(const AbsentWeightsHidden &) = delete;

private:
  std::vector<std::pair<onnx::TensorProto *, onnx::TensorProto>> kept;
};

llvm::Error checkModel(OnnxModel &model) {
  if (std::string fault = misplacedInput(model); !fault.empty())
    return modelError(model, "is not a valid ONNX model: " + fault);
  try {
    AbsentWeightsHidden hidden(model);
    checkWithLibrary(model);
  } catch (const std::exception &fault) {
    // libonnx's check stops at the first unknown op. The list of all such nodes is more useful.
    std::string unsupported = unsupportedNodes(model);
    if (!unsupported.empty() && llvm::StringRef(fault.what()).contains("No Op registered"))
      return modelError(model, unsupported);
    return modelError(model, "is not a valid ONNX model: " + oneLine(fault.what()));
  }
  return llvm::Error::success();
}

/// ONNX Runtime writes this one of its own ops without a domain.
llvm::Error nameDomains(OnnxModel &model) {
  bool found = false;
  for (onnx::NodeProto &node : *model.graph().mutable_node())
    if (domainOf(node).empty() && node.op_type() == "SimplifiedLayerNormalization") {
      node.set_domain("com.microsoft");
      found = true;
    }
  if (found && model.opset("com.microsoft") == 0) {
    onnx::OperatorSetIdProto *import = model.proto.add_opset_import();
    import->set_domain("com.microsoft");
    import->set_version(1);
  }
  return llvm::Error::success();
}

llvm::Error inlineFunctions(OnnxModel &model) {
  if (model.proto.functions_size() == 0)
    return llvm::Error::success();
  try {
    onnx::inliner::InlineLocalFunctions(model.proto);
  } catch (const std::exception &fault) {
    return modelError(model, "cannot inline its local functions: " + firstLine(fault.what()));
  }
  if (model.proto.functions_size() != 0)
    return modelError(model, "its local function " + model.proto.functions(0).domain() + ":" +
                                 model.proto.functions(0).name() + " cannot be inlined");
  return llvm::Error::success();
}

} // namespace

int64_t OnnxModel::opset(llvm::StringRef domain) const {
  auto plain = [](llvm::StringRef name) { return name == "ai.onnx" ? llvm::StringRef() : name; };
  for (const onnx::OperatorSetIdProto &import : proto.opset_import())
    if (plain(import.domain()) == plain(domain))
      return import.version();
  return 0;
}

llvm::StringRef nameOf(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  for (const std::string &output : node.output())
    if (!output.empty())
      return output;
  return "(unnamed)";
}

llvm::StringRef domainOf(const onnx::NodeProto &node) {
  return node.domain() == "ai.onnx" ? llvm::StringRef() : llvm::StringRef(node.domain());
}

const onnx::AttributeProto *attributeOf(const onnx::NodeProto &node, llvm::StringRef name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

std::string describe(const OnnxModel &model, const onnx::NodeProto &node) {
  llvm::StringRef domain = domainOf(node);
  return (nameOf(node) + " (" + node.op_type() + " of " + (domain.empty() ? "ai.onnx" : domain) + ", opset " +
          llvm::Twine(model.opset(domain)) + ")")
      .str();
}

llvm::Expected<std::shared_ptr<OnnxModel>> loadModel(llvm::StringRef path, bool weightsMayBeAbsent) {
  auto model = std::make_shared<OnnxModel>();
  model->weightsMayBeAbsent = weightsMayBeAbsent;
  model->path = path.str();
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  model->folder = folder.empty() ? "." : folder.str();
  for (auto *step : {+[](OnnxModel &m) { return parseFile(m); }, +[](OnnxModel &m) { return checkVersions(m); },
                     +[](OnnxModel &m) { return checkFunctionCalls(m); }, +[](OnnxModel &m) { return checkTensors(m); },
                     +[](OnnxModel &m) { return readTrainingInfo(m); }, +[](OnnxModel &m) { return nameDomains(m); },
                     +[](OnnxModel &m) { return checkModel(m); }, +[](OnnxModel &m) { return inlineFunctions(m); },
                     +[](OnnxModel &m) { return convertOpset(m); }, +[](OnnxModel &m) { return expandFunctions(m); }})
    if (llvm::Error error = step(*model))
      return error;
  return model;
}

} // namespace fsdpc

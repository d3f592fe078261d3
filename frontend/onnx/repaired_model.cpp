// OUT/model.onnx: the model as repaired, with the values of parameters in a file next to it.
#include "frontend/onnx/import.h"

#include "frontend/onnx/graph_index.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <limits>

namespace fsdpc {

namespace {

// The ONNX format recommends page-aligned offsets for large tensors, so that readers can map them.
constexpr int64_t pageBytes = 4096;
constexpr int64_t smallAlignment = 64;

void setExternal(onnx::TensorProto &tensor, llvm::StringRef file, const ExternalLayout::Entry &entry) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char *key, const std::string &value) {
    onnx::StringStringEntryProto *field = tensor.add_external_data();
    field->set_key(key);
    field->set_value(value);
  };
  add("location", file.str());
  add("offset", std::to_string(entry.offsetBytes));
  add("length", std::to_string(entry.bytes));
}

/// The same tensor without its values.
onnx::TensorProto withoutValues(const onnx::TensorProto &tensor) {
  onnx::TensorProto bare;
  bare.set_name(tensor.name());
  bare.set_doc_string(tensor.doc_string());
  bare.set_data_type(tensor.data_type());
  *bare.mutable_dims() = tensor.dims();
  *bare.mutable_metadata_props() = tensor.metadata_props();
  return bare;
}

class RepairedModel {
public:
  RepairedModel(const ImportedModel &imported, llvm::StringRef dataFile) : imported(imported), dataFile(dataFile) {
    for (const Parameter &parameter : imported.parameters)
      parameters[parameter.initializer] = &parameter;
  }

  llvm::Error build() {
    copyAllButWeights();
    for (const onnx::TensorProto &tensor : imported.model->graph().initializer()) {
      auto parameter = parameters.find(tensor.name());
      if (parameter != parameters.end())
        addParameter(tensor, *parameter->second);
      else if (llvm::Error error = addInline(tensor))
        return error;
    }
    prependCasts();
    // Before IR 4, initializers must also be listed among the inputs. Initializers that were split off are not.
    proto.set_ir_version(std::max<int64_t>(proto.ir_version(), 4));
    return llvm::Error::success();
  }

  onnx::ModelProto proto;
  ExternalLayout layout;

private:
  /// Moves the weights out while the rest is copied: a file may have gigabytes of them.
  void copyAllButWeights() {
    google::protobuf::RepeatedPtrField<onnx::TensorProto> weights;
    imported.model->graph().mutable_initializer()->Swap(&weights);
    proto = imported.model->proto;
    imported.model->graph().mutable_initializer()->Swap(&weights);
  }

  void addParameter(const onnx::TensorProto &tensor, const Parameter &parameter) {
    int64_t bytes = parameter.type.bytes();
    int64_t alignment = bytes >= 16 * pageBytes ? pageBytes : smallAlignment;
    layout.totalBytes = llvm::alignTo(layout.totalBytes, alignment);
    layout.entries.push_back({parameter.name, layout.totalBytes, bytes});
    layout.totalBytes += bytes;
    onnx::TensorProto *written = proto.mutable_graph()->add_initializer();
    *written = withoutValues(tensor);
    setExternal(*written, dataFile, layout.entries.back());
    bool isHalf = tensor.data_type() == onnx::TensorProto::FLOAT16 || tensor.data_type() == onnx::TensorProto::BFLOAT16;
    if (isHalf)
      readThroughCast(*written, tensor);
  }

  /// Trained values are f32. Nodes that read the half-precision initializer now read a Cast of the f32 one.
  void readThroughCast(onnx::TensorProto &written, const onnx::TensorProto &tensor) {
    written.set_name(tensor.name() + ".float32");
    written.set_data_type(onnx::TensorProto::FLOAT);
    onnx::NodeProto &cast = casts.emplace_back();
    cast.set_name("cast_" + tensor.name());
    cast.set_op_type("Cast");
    cast.add_input(written.name());
    cast.add_output(tensor.name());
    onnx::AttributeProto *to = cast.add_attribute();
    to->set_name("to");
    to->set_type(onnx::AttributeProto::INT);
    to->set_i(tensor.data_type());
  }

  void prependCasts() {
    auto *nodes = proto.mutable_graph()->mutable_node();
    google::protobuf::RepeatedPtrField<onnx::NodeProto> all;
    for (onnx::NodeProto &cast : casts)
      all.Add()->Swap(&cast);
    for (onnx::NodeProto &node : *nodes)
      all.Add()->Swap(&node);
    nodes->Swap(&all);
  }

  llvm::Error addInline(const onnx::TensorProto &tensor) {
    onnx::TensorProto *written = proto.mutable_graph()->add_initializer();
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) {
      *written = tensor;
      return llvm::Error::success();
    }
    *written = withoutValues(tensor);
    llvm::Expected<std::string> bytes = readRaw(*imported.model, tensor);
    if (!bytes)
      return bytes.takeError();
    written->set_raw_data(std::move(*bytes));
    return llvm::Error::success();
  }

  const ImportedModel &imported;
  llvm::StringRef dataFile;
  llvm::StringMap<const Parameter *> parameters;
  std::vector<onnx::NodeProto> casts;
};

} // namespace

llvm::Expected<ExternalLayout> writeRepairedModel(const ImportedModel &imported, llvm::StringRef path,
                                                  llvm::StringRef dataFileName) {
  RepairedModel repaired(imported, dataFileName);
  if (llvm::Error error = repaired.build())
    return error;
  std::string bytes;
  if (repaired.proto.ByteSizeLong() >= (uint64_t(1) << 31) || !repaired.proto.SerializeToString(&bytes))
    return llvm::createStringError(path + ": constants other than parameters exceed the 2 GiB of an ONNX file");
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error)
    out << bytes;
  out.close();
  if (!error && out.has_error())
    error = out.error();
  out.clear_error();
  if (error)
    return llvm::createStringError(path + ": cannot write: " + error.message());
  return std::move(repaired.layout);
}

llvm::Expected<ExternalLayout> readRepairedLayout(llvm::StringRef path, llvm::ArrayRef<Parameter> parameters,
                                                  llvm::StringRef dataFileName) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  onnx::ModelProto proto;
  if (!buffer || !proto.ParseFromArray((*buffer)->getBufferStart(), static_cast<int>((*buffer)->getBufferSize())))
    return llvm::createStringError(path + ": is not an ONNX model");
  llvm::StringMap<ExternalLayout::Entry> entries;
  for (const onnx::TensorProto &tensor : proto.graph().initializer()) {
    std::map<std::string, std::string> fields;
    for (const onnx::StringStringEntryProto &field : tensor.external_data())
      fields[field.key()] = field.value();
    ExternalLayout::Entry entry;
    const bool isFull = fields["location"] == dataFileName &&
                        !llvm::StringRef(fields["offset"]).getAsInteger(10, entry.offsetBytes) &&
                        !llvm::StringRef(fields["length"]).getAsInteger(10, entry.bytes);
    if (isFull && entry.offsetBytes >= 0 && entry.bytes >= 0 &&
        entry.bytes <= std::numeric_limits<int64_t>::max() - entry.offsetBytes)
      entries[tensor.name()] = entry;
  }
  ExternalLayout layout;
  for (const Parameter &parameter : parameters) {
    if (parameter.initializer.empty()) // added by the compiler
      continue;
    auto found = entries.find(parameter.initializer);
    if (found == entries.end())
      return llvm::createStringError(path + ": has no external initializer " + parameter.initializer +
                                     ", as a model beside its stages does");
    layout.entries.push_back({parameter.name, found->second.offsetBytes, found->second.bytes});
    layout.totalBytes = std::max(layout.totalBytes, found->second.offsetBytes + found->second.bytes);
  }
  return layout;
}

} // namespace fsdpc

// Small models as the dynamo exporter writes them: a signature that names all parameters, folded values, and for every
// node the statement that it was traced from.
#pragma once

#include "frontend/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "gtest/gtest.h"
#include <memory>

namespace fsdpc {

class ExportedModel {
public:
  explicit ExportedModel(llvm::ArrayRef<std::string> parameters) {
    model.set_ir_version(10);
    model.set_producer_name("pytorch");
    model.add_opset_import()->set_version(20);
    model.mutable_graph()->set_name("main");
    std::string signature = "\n# inputs\n";
    for (const std::string &name : parameters) {
      std::string placeholder = "p_" + name;
      std::replace(placeholder.begin(), placeholder.end(), '.', '_');
      signature += placeholder + ": PARAMETER target='" + name + "'\n";
    }
    add(*model.mutable_graph(), "pkg.torch.export.ExportedProgram.graph_signature", signature);
  }

  /// Lines `parameter TAB name`, as `fsdpc.export` writes them.
  void otherNames(llvm::StringRef lines) { add(model, "fsdpc.other_names", lines); }

  void input(llvm::StringRef name, llvm::ArrayRef<int64_t> shape) { value(*graph().add_input(), name, shape); }
  void output(llvm::StringRef name, llvm::ArrayRef<int64_t> shape) { value(*graph().add_output(), name, shape); }

  void initializer(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values) {
    onnx::TensorProto &tensor = *graph().add_initializer();
    tensor.set_name(name.str());
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t dim : shape)
      tensor.add_dims(dim);
    for (float element : values)
      tensor.add_float_data(element);
  }

  /// An initializer that the exporter computed.
  void folded(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values,
              llvm::ArrayRef<std::string> sources) {
    initializer(name, shape, values);
    value(*graph().add_value_info(), name, shape);
    add(*graph().mutable_value_info(graph().value_info_size() - 1), "pkg.onnxscript.optimizer.folded_from",
        "['" + llvm::join(sources, "', '") + "']");
  }

  /// `statement` is the text after the name and the number of users: "aten.add.Tensor](args = (%x, %expand)".
  onnx::NodeProto &node(llvm::StringRef op, llvm::ArrayRef<std::string> inputs, llvm::StringRef result,
                        llvm::StringRef scope, llvm::StringRef statement) {
    onnx::NodeProto &node = *graph().add_node();
    node.set_name("node_" + result.str());
    node.set_op_type(op.str());
    for (const std::string &name : inputs)
      node.add_input(name);
    node.add_output(result.str());
    add(node, "pkg.torch.onnx.fx_node",
        ("%" + result + " : [num_users=1] = call_function[target=torch.ops." + statement + ", kwargs = {})").str());
    add(node, "pkg.torch.onnx.name_scopes", ("['', '" + scope + "', '" + result + "']").str());
    return node;
  }

  /// Sets the source line that a node was traced from.
  void source(onnx::NodeProto &node, llvm::StringRef line) {
    add(node, "pkg.torch.onnx.stack_trace", ("File \"model.py\", line 7, in forward\n    " + line).str());
  }

  void integer(onnx::NodeProto &node, llvm::StringRef name, int64_t value) {
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(name.str());
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  /// Writes the model to a file that lives as long as this.
  std::string save() {
    llvm::SmallString<128> path;
    EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("exported", "onnx", path));
    file = std::make_unique<llvm::FileRemover>(path);
    std::error_code error;
    llvm::raw_fd_ostream out(path, error);
    out << model.SerializeAsString();
    return path.str().str();
  }

  onnx::GraphProto &graph() { return *model.mutable_graph(); }

private:
  template <class Message>
  static void add(Message &message, llvm::StringRef key, llvm::StringRef value) {
    onnx::StringStringEntryProto &entry = *message.add_metadata_props();
    entry.set_key(key.str());
    entry.set_value(value.str());
  }

  static void value(onnx::ValueInfoProto &info, llvm::StringRef name, llvm::ArrayRef<int64_t> shape) {
    info.set_name(name.str());
    auto &type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    for (int64_t dim : shape)
      type.mutable_shape()->add_dim()->set_dim_value(dim);
  }

  onnx::ModelProto model;
  std::unique_ptr<llvm::FileRemover> file;
};

} // namespace fsdpc

// Graphs whose nodes quote traced statements, after the repairs that split nodes and values merged by the dynamo
// exporter.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"
#include "onnx/defs/parser.h"
#include "gmock/gmock.h"

namespace fsdpc {

struct Quote {
  const char *node;      ///< its name
  const char *scope;     ///< of its module
  const char *statement; ///< name, users, target and arguments: "norm 1 layer_norm(%x, %p_a_weight)"
  const char *type = ""; ///< the module's class
};

class SplitNodes : public testing::Test {
protected:
  /// `signature`: parameters as "placeholder=name".
  void load(const char *text, std::initializer_list<std::pair<const char *, const char *>> signature,
            std::initializer_list<Quote> quotes) {
    onnx::OnnxParser parser(text);
    onnx::Common::Status status = parser.Parse(model.proto);
    ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
    std::string lines = "# inputs\nx: USER_INPUT\n";
    for (const auto &[placeholder, name] : signature)
      lines += std::string(placeholder) + ": PARAMETER target='" + name + "'\n";
    add(*model.graph().add_metadata_props(), "pkg.torch.export.ExportedProgram.graph_signature", lines);
    for (onnx::NodeProto &node : *model.graph().mutable_node())
      for (const Quote &quote : quotes)
        if (node.name() == quote.node)
          addQuote(node, quote);
    std::vector<std::string> remarks;
    ImportOptions options;
    Repair repair{model, options, remarks};
    for (auto *step : {splitMergedParts, splitMerged})
      ASSERT_FALSE(step(repair));
    llvm::Expected<std::vector<std::string>> left = splitMergedNodes(repair);
    ASSERT_TRUE(bool(left));
    ambiguous = *left;
  }

  static void add(onnx::StringStringEntryProto &entry, llvm::StringRef key, const std::string &value) {
    entry.set_key(key.str());
    entry.set_value(value);
  }

  static void addQuote(onnx::NodeProto &node, const Quote &quote) {
    auto [name, afterName] = llvm::StringRef(quote.statement).split(' ');
    auto [users, call] = afterName.split(' ');
    auto [target, arguments] = call.split('(');
    add(*node.add_metadata_props(), statementKey,
        ("%" + name + " : [num_users=" + users + "] = call_function[target=torch.ops.aten." + target + "](args = (" +
         arguments + ", kwargs = {})")
            .str());
    add(*node.add_metadata_props(), scopesKey, ("['', '" + llvm::StringRef(quote.scope) + "', '" + name + "']").str());
    add(*node.add_metadata_props(), "pkg.torch.onnx.class_hierarchy",
        ("['Model', '" + llvm::StringRef(quote.type) + "', 'aten." + target + "']").str());
  }

  /// Inputs of the node of that name.
  std::vector<std::string> inputsOf(llvm::StringRef name) {
    for (const onnx::NodeProto &node : model.graph().node())
      if (node.name() == name)
        return {node.input().begin(), node.input().end()};
    return {"no node " + name.str()};
  }

  /// Inputs of the node that computes input `input` of the node `name`.
  std::vector<std::string> inputsOfProducer(llvm::StringRef name, int input) {
    GraphIndex index(model.graph());
    const onnx::NodeProto *node = index.producer(inputsOf(name)[input]);
    return node ? std::vector<std::string>(node->input().begin(), node->input().end()) : std::vector<std::string>();
  }

  OnnxModel model;
  std::vector<std::string> ambiguous;
};

} // namespace fsdpc

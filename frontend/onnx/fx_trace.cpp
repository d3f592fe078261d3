#include "frontend/onnx/fx_trace.h"

#include "frontend/onnx/metadata.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

constexpr llvm::StringRef statementKey = "pkg.torch.onnx.fx_node";

bool isNameCharacter(char c) { return llvm::isAlnum(c) || c == '_'; }

/// The name behind a %, taken off the text.
llvm::StringRef takeName(llvm::StringRef &text) {
  llvm::StringRef name = text.take_while(isNameCharacter);
  text = text.drop_front(name.size());
  return name;
}

/// torch.ops.aten.linear.default -> linear
llvm::StringRef operationOf(llvm::StringRef target) {
  target.consume_front("torch.ops.");
  target = target.split('.').second;
  return target.split('.').first;
}

} // namespace

FxStatement fxStatement(const onnx::NodeProto &node) {
  FxStatement statement;
  llvm::StringRef text = metadataOf(node, statementKey).trim();
  if (!text.consume_front("%"))
    return statement;
  statement.name = takeName(text).str();
  auto [head, arguments] = text.split("](");
  statement.operation = operationOf(head.split("[target=").second).str();
  for (size_t at = arguments.find('%'); at != llvm::StringRef::npos; at = arguments.find('%')) {
    arguments = arguments.drop_front(at + 1);
    if (llvm::StringRef name = takeName(arguments); !name.empty())
      statement.arguments.push_back(name.str());
  }
  return statement;
}

llvm::StringRef fxOperation(llvm::StringRef valueName) {
  llvm::StringRef base = valueName;
  while (!base.empty() && llvm::isDigit(base.back()))
    base = base.drop_back();
  if (base.size() < valueName.size() && base.ends_with("_"))
    valueName = base.drop_back();
  return valueName == "val" || !llvm::all_of(valueName, isNameCharacter) ? llvm::StringRef() : valueName;
}

FxTrace::FxTrace(const onnx::GraphProto &graph) {
  for (const onnx::NodeProto &node : graph.node()) {
    FxStatement statement = fxStatement(node);
    if (statement.name.empty())
      continue;
    defined.insert(statement.name);
    for (const std::string &argument : statement.arguments)
      mentioned.insert(argument);
  }
}

std::vector<std::string> FxTrace::undefinedArguments() const {
  std::vector<std::string> result;
  for (const auto &entry : mentioned)
    if (!defined.contains(entry.first()))
      result.push_back(entry.first().str());
  std::sort(result.begin(), result.end());
  return result;
}

} // namespace fsdpc

#include "frontend/onnx/traced_graph.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

bool isNameCharacter(char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; }

/// The text after the first `%` and the name that starts there; both empty if there is none.
llvm::StringRef nextName(llvm::StringRef &text) {
  size_t at = text.find('%');
  text = at == llvm::StringRef::npos ? llvm::StringRef() : text.drop_front(at + 1);
  llvm::StringRef name = text.take_while(isNameCharacter);
  text = text.drop_front(name.size());
  return name;
}

TracedStatement parseStatement(llvm::StringRef text, const ExportSignature &signature) {
  TracedStatement statement;
  auto [head, call] = text.split("](args = ");
  statement.target = head.rsplit("[target=").second;
  if (auto [before, users] = head.split("[num_users="); users.consumeInteger(10, statement.users))
    statement.users = -1;
  statement.name = nextName(head);
  while (!call.empty()) {
    llvm::StringRef name = nextName(call);
    if (name.empty())
      continue;
    statement.arguments.push_back(name);
    if (auto target = signature.placeholders.find(name); target != signature.placeholders.end())
      statement.parameters.push_back(target->second);
  }
  return statement;
}

} // namespace

TracedGraph::TracedGraph(const onnx::GraphProto &graph, const ExportSignature &signature) : signature(signature) {
  ofNode.reserve(graph.node_size());
  for (const onnx::NodeProto &node : graph.node()) {
    llvm::StringRef text = metadataOf(node, statementKey);
    llvm::StringRef rest = text, name = nextName(rest);
    if (name.empty() || !text.contains("](args = ")) {
      ofNode.push_back(-1);
      continue;
    }
    auto [known, isNew] = byName.try_emplace(name, static_cast<int>(statements.size()));
    if (isNew) {
      statements.push_back(parseStatement(text, signature));
      statements.back().isTracedSeparately = metadataOf(node, sourceKey).contains("\"<eval_with_key>");
      for (const std::string &parameter : statements.back().parameters)
        mentioned.insert(parameter);
    }
    ofNode.push_back(known->second);
  }
}

int TracedGraph::find(llvm::StringRef name) const {
  auto found = byName.find(name);
  return found == byName.end() ? -1 : found->second;
}

bool TracedGraph::isLost(llvm::StringRef argument) const {
  return !byName.contains(argument) && !signature.placeholders.contains(argument) &&
         !signature.otherPlaceholders.contains(argument);
}

llvm::StringRef withoutNumber(llvm::StringRef tracedName) {
  llvm::StringRef name = tracedName;
  while (!name.empty() && llvm::isDigit(name.back()))
    name = name.drop_back();
  return name.size() < tracedName.size() && name.size() > 1 && name.ends_with("_") ? name.drop_back() : tracedName;
}

llvm::StringRef tracedOperation(llvm::StringRef valueName) {
  llvm::StringRef operation = withoutNumber(valueName);
  bool isTraced = operation != "val" && llvm::all_of(operation, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  return isTraced ? operation : llvm::StringRef();
}

llvm::StringRef operationOfTarget(llvm::StringRef target) {
  target.consume_front("torch.ops.");
  return target.split('.').second.split('.').first;
}

bool keepsElements(llvm::StringRef operation) {
  return llvm::StringSwitch<bool>(operation)
      .Cases("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", true)
      .Cases("alias", "detach", "clone", "contiguous", true)
      .Default(false);
}

} // namespace fsdpc

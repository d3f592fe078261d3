#include "passes/check/fault.h"

#include "ir/text/text.h"

namespace fsdpc::check {

namespace {
constexpr size_t longestText = 400;
} // namespace

llvm::Error fault(Fault kind, const llvm::Twine &message) {
  return llvm::createStringError("(S" + llvm::Twine(static_cast<int>(kind)) + ") " + message);
}

llvm::Error fault(Fault kind, const Function &function, const llvm::Twine &message) {
  return fault(kind, nameOf(function.kind()) + llvm::Twine(": ") + message);
}

llvm::Error fault(Fault kind, const Node &node, const llvm::Twine &message) {
  const Function &function = *node.function();
  const std::vector<Unit> &units = function.module()->units;
  bool inUnit = node.unit >= 0 && static_cast<size_t>(node.unit) < units.size();
  std::string unit = inUnit ? ", unit " + symbolText('@', units[node.unit].name) : "";
  return fault(kind, nameOf(function.kind()) + llvm::Twine(unit) + ": " + message + "\n  " + textOf(node));
}

std::string textOf(const Value *value) { return ValueNames(*value->function()).of(value); }

std::string textOf(const Node &node) {
  const std::string text = toText(node);
  const llvm::StringRef shown = llvm::StringRef(text).take_front(longestText);
  return (shown + (text.size() > longestText ? " ..." : "")).str();
}

} // namespace fsdpc::check

#include "ir/verify.h"

#include "ir/text/text.h"
#include "ir/verify_rules.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace rules {

namespace {
// A constant's elements or a long body would bury the message.
constexpr size_t longestNodeText = 400;
} // namespace

llvm::Error broken(llvm::StringRef label, const llvm::Twine &message) {
  return llvm::createStringError("(" + label + ") " + message);
}

llvm::Error broken(llvm::StringRef label, const Function &function, const llvm::Twine &message) {
  return broken(label, nameOf(function.kind()) + llvm::Twine(": ") + message);
}

llvm::Error broken(llvm::StringRef label, const Node &node, const llvm::Twine &message) {
  const std::string text = toText(node);
  return broken(label, *node.function(),
                message + "\n  " + llvm::StringRef(text).take_front(longestNodeText) +
                    (text.size() > longestNodeText ? " ..." : ""));
}

std::string nameIn(const Function &function, const Value *value) { return ValueNames(function).of(value); }

} // namespace rules

llvm::Error verify(const Module &module) {
  using Check = llvm::Error (*)(const Module &);
  static constexpr Check checks[] = {rules::checkTables, rules::checkStructure, rules::checkInterfaces,
                                     rules::checkStage,  rules::checkLifetimes, rules::checkPlaces,
                                     rules::checkEvents};
  for (Check check : checks)
    if (llvm::Error error = check(module))
      return error;
  return llvm::Error::success();
}

} // namespace fsdpc

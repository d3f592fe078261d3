#include "ir/op.h"

#include "llvm/ADT/StringMap.h"
#include <array>

namespace fsdpc {

#define OP(enumerator, text, info) extern const OpInfo info;
#include "ir/ops.def"

namespace {

// Pointers, not copies: descriptors are constants in other files, whose initialization order is not fixed.
constexpr const OpInfo *infoTable[] = {
#define OP(enumerator, text, info) &info,
#include "ir/ops.def"
};

constexpr Op opList[] = {
#define OP(enumerator, text, info) Op::enumerator,
#include "ir/ops.def"
};

struct NameRow {
  llvm::StringRef name;
  Op op;
};
constexpr NameRow nameRows[] = {
#define OP(enumerator, text, info) {text, Op::enumerator},
#include "ir/ops.def"
};

} // namespace

const OpInfo &infoOf(Op op) { return *infoTable[static_cast<size_t>(op)]; }

std::optional<Op> opFromName(llvm::StringRef name) {
  static const llvm::StringMap<Op> byName = [] {
    llvm::StringMap<Op> map;
    for (const NameRow &row : nameRows)
      map[row.name] = row.op;
    return map;
  }();
  auto found = byName.find(name);
  return found == byName.end() ? std::nullopt : std::optional<Op>(found->second);
}

llvm::ArrayRef<Op> allOps() { return opList; }

unsigned OpInfo::minOperands() const {
  unsigned count = 0;
  for (llvm::StringRef operand : operandNames)
    count += !operand.ends_with("?") && !operand.ends_with("...");
  return count;
}

unsigned OpInfo::maxOperands() const {
  bool anyNumber = !operandNames.empty() && operandNames.back().ends_with("...");
  return anyNumber ? ~0u : static_cast<unsigned>(operandNames.size());
}

void notDifferentiable(VjpContext &) {}

Cost costOfTypes(const Node &node) {
  Cost cost;
  for (Value *operand : node.operands())
    cost.bytesRead += static_cast<double>(operand->type().bytes());
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    cost.bytesWritten += static_cast<double>(node.result(i)->type().bytes());
    cost.flops += static_cast<double>(node.result(i)->type().elements());
  }
  return cost;
}

llvm::Error constraintError(llvm::StringRef op, llvm::StringRef constraint, const llvm::Twine &message) {
  return llvm::createStringError(llvm::Twine(op) + ": (" + constraint + ") " + message);
}

} // namespace fsdpc

#include "frontend/onnx/source_line.h"

#include "frontend/onnx/metadata.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

bool isOfName(char c) { return llvm::isAlnum(c) || c == '_'; }
bool isOperation(char c) { return c == '+' || c == '-' || c == '*' || c == '/'; }

/// Calls that change a tensor's type and nothing else: `.float()`, `.to(x.dtype)`, `.type_as(x)`.
llvm::StringRef dropConversions(llvm::StringRef text) {
  for (;;) {
    llvm::StringRef rest = text;
    const bool isConversion = rest.consume_front(".float(") || rest.consume_front(".to(") ||
                              rest.consume_front(".type_as(") || rest.consume_front(".type(");
    if (!isConversion)
      return text;
    int depth = 1;
    while (depth > 0 && !rest.empty()) {
      depth += rest.front() == '(' ? 1 : rest.front() == ')' ? -1 : 0;
      rest = rest.drop_front();
    }
    text = rest;
  }
}

std::optional<float> numberOf(llvm::StringRef text) {
  double number = 0;
  const bool isNumber = !text.empty() && (llvm::isDigit(text.front()) || text.front() == '.') &&
                        text.find_first_of("xXnN") == llvm::StringRef::npos && !text.getAsDouble(number);
  return isNumber ? std::optional(static_cast<float>(number)) : std::nullopt;
}

/// True if a term before the text ends there.
bool endsTerm(llvm::StringRef text) {
  text = text.ltrim();
  return text.empty() || text.front() == ')' || text.front() == ',' || text.front() == ']' || text.front() == '#';
}

/// True if a term after the text begins there.
bool beginsTerm(llvm::StringRef text) {
  const bool isStatement = text.trim() == "return";
  text = text.rtrim();
  const bool isAssigned = text.ends_with("=") && !text.drop_back().empty() &&
                          llvm::StringRef("=!<>+-*/@%&|^:").find(text[text.size() - 2]) == llvm::StringRef::npos;
  return text.empty() || isStatement || isAssigned || text.ends_with("(") || text.ends_with(",") || text.ends_with("[");
}

std::optional<ScalarOperand> numberAfter(llvm::StringRef before, llvm::StringRef behind) {
  behind = behind.ltrim();
  if (behind.empty() || !isOperation(behind.front()) || !beginsTerm(before))
    return std::nullopt;
  const char operation = behind.front();
  behind = behind.drop_front().ltrim();
  llvm::StringRef text = behind.take_while([](char c) { return isOfName(c) || c == '.'; });
  const std::optional<float> number = numberOf(text);
  if (!number || !endsTerm(behind.drop_front(text.size())))
    return std::nullopt;
  return ScalarOperand{operation, *number, false};
}

std::optional<ScalarOperand> numberBefore(llvm::StringRef before, llvm::StringRef behind) {
  before = before.rtrim();
  if (before.empty() || !isOperation(before.back()) || !endsTerm(behind))
    return std::nullopt;
  const char operation = before.back();
  before = before.drop_back().rtrim();
  size_t start = before.size();
  while (start > 0 && (isOfName(before[start - 1]) || before[start - 1] == '.'))
    --start;
  const std::optional<float> number = numberOf(before.drop_front(start));
  if (!number || !beginsTerm(before.take_front(start)))
    return std::nullopt;
  return ScalarOperand{operation, *number, true};
}

} // namespace

llvm::StringRef sourceLine(const onnx::NodeProto &node) {
  llvm::StringRef trace = metadataOf(node, sourceKey).rtrim();
  auto [frames, line] = trace.rsplit('\n');
  // A frame without available source has no line.
  return line.trim().starts_with("File \"") || line.empty() ? llvm::StringRef() : line.trim();
}

std::optional<ScalarOperand> findScalarOperand(llvm::StringRef line, llvm::StringRef attribute) {
  const std::string name = ("self." + attribute).str();
  std::optional<ScalarOperand> found;
  for (size_t at = line.find(name); at != llvm::StringRef::npos; at = line.find(name, at + name.size())) {
    llvm::StringRef before = line.take_front(at), behind = line.drop_front(at + name.size());
    const bool isLonger = (!behind.empty() && isOfName(behind.front())) ||
                          (!before.empty() && (isOfName(before.back()) || before.back() == '.'));
    if (isLonger)
      continue;
    behind = dropConversions(behind);
    std::optional<ScalarOperand> term = numberAfter(before, behind);
    if (!term)
      term = numberBefore(before, behind);
    if (!term || (found && !(*found == *term)))
      return std::nullopt;
    found = term;
  }
  return found;
}

} // namespace fsdpc

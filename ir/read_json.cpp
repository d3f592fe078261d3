#include "ir/read_json.h"

namespace fsdpc {

static bool isDeeperThan(unsigned limit, llvm::StringRef text) {
  unsigned depth = 0;
  bool isInString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      isInString = !isInString;
    else if (isInString)
      i += c == '\\';
    else if ((c == '[' || c == '{') && ++depth > limit)
      return true;
    else if ((c == ']' || c == '}') && depth > 0)
      --depth;
  }
  return false;
}

llvm::Expected<llvm::json::Value> readJson(llvm::StringRef text) {
  if (isDeeperThan(maxJsonDepth, text))
    return llvm::createStringError("lists and objects are more than " + llvm::Twine(maxJsonDepth) + " deep");
  return llvm::json::parse(text);
}

} // namespace fsdpc

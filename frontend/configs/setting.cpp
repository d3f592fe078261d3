#include "frontend/configs/setting.h"

#include "ir/usage_error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

const Setting *Setting::find(llvm::StringRef wanted) const {
  const Setting *found = nullptr;
  for (const Setting &item : items)
    if (isMapping() && item.name == wanted)
      found = &item;
  return found;
}

std::vector<std::string> Setting::texts() const {
  if (isScalar())
    return {text};
  std::vector<std::string> result;
  for (const Setting &item : items)
    result.push_back(item.text);
  return result;
}

/// Appends until the text is long enough for a message.
static void show(const Setting &setting, std::string &text) {
  constexpr size_t enough = 64;
  if (setting.kind == Setting::Kind::null)
    text += "null";
  if (setting.isScalar())
    text += setting.text.substr(0, enough);
  if (setting.items.empty() && !setting.isScalar())
    text += setting.isMapping() ? "{}" : setting.kind == Setting::Kind::list ? "[]" : "";
  for (size_t i = 0; i < setting.items.size() && text.size() < enough; ++i) {
    text += i > 0 ? ", " : setting.isMapping() ? "{" : "[";
    if (setting.isMapping())
      text += setting.items[i].name + ": ";
    show(setting.items[i], text);
    if (i + 1 == setting.items.size())
      text += setting.isMapping() ? "}" : "]";
  }
}

std::string Setting::shown() const {
  std::string whole;
  show(*this, whole);
  std::string text;
  for (char c : whole.substr(0, 57))
    text += llvm::isPrint(c) ? c : '?';
  return text + (whole.size() > 57 ? "..." : "");
}

llvm::Expected<Setting> readSettings(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  const std::string start = "--config " + path.str() + ": ";
  if (!buffer)
    return llvm::make_error<UsageError>(start + buffer.getError().message());
  const llvm::StringRef text = (*buffer)->getBuffer();
  if (text.size() > maxConfigBytes)
    return llvm::make_error<UsageError>(start + "has " + std::to_string(text.size()) +
                                        " bytes; a configuration has at most " + std::to_string(maxConfigBytes));
  return path.ends_with_insensitive(".toml") ? readToml(path, text) : readYaml(path, text);
}

} // namespace fsdpc

#include "frontend/configs/setting.h"
#include "ir/usage_error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include <charconv>

// More than that is refused by the library.
#define TOML_MAX_NESTED_VALUES 32
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace fsdpc {

static_assert(TOML_MAX_NESTED_VALUES == maxConfigDepth);

/// A name a.b.c is a table in a table. The library does not limit them, and its destructors call themselves.
constexpr size_t maxDotsOfLine = 1000;

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(("--config " + message).str()); }

class TomlTree {
public:
  explicit TomlTree(llvm::StringRef path) : path(path) {}

  llvm::Error fill(Setting &into, const toml::node &node) {
    if (++settings > maxConfigSettings)
      return usage(path + ": has more than " + llvm::Twine(maxConfigSettings) + " values");
    if (const toml::table *table = node.as_table())
      return fillMapping(into, *table);
    if (const toml::array *array = node.as_array())
      return fillList(into, *array);
    into.kind = Setting::Kind::scalar;
    into.text = textOf(node);
    return llvm::Error::success();
  }

private:
  llvm::Error fillMapping(Setting &into, const toml::table &table) {
    into.kind = Setting::Kind::mapping;
    for (const auto &[key, value] : table)
      if (llvm::Error error = add(into, std::string(key.str()), value))
        return error;
    // The library sorts names.
    llvm::sort(into.items, [&](const Setting &a, const Setting &b) {
      return std::pair(lineOf(a), a.name) < std::pair(lineOf(b), b.name);
    });
    return llvm::Error::success();
  }

  llvm::Error fillList(Setting &into, const toml::array &array) {
    into.kind = Setting::Kind::list;
    for (const toml::node &value : array)
      if (llvm::Error error = add(into, "", value))
        return error;
    return llvm::Error::success();
  }

  llvm::Error add(Setting &into, std::string name, const toml::node &value) {
    Setting item;
    item.name = std::move(name);
    item.where = (path + ":" + llvm::Twine(value.source().begin.line)).str();
    if (depth == maxConfigDepth)
      return usage(item.where + ": lists and mappings are more than " + llvm::Twine(maxConfigDepth) + " deep");
    ++depth;
    if (llvm::Error error = fill(item, value))
      return error;
    --depth;
    into.items.push_back(std::move(item));
    return llvm::Error::success();
  }

  static uint64_t lineOf(const Setting &item) {
    uint64_t line = 0;
    llvm::StringRef(item.where).rsplit(':').second.getAsInteger(10, line);
    return line;
  }

  static std::string textOf(const toml::node &node) {
    if (const auto *text = node.as_string())
      return text->get();
    if (const auto *flag = node.as_boolean())
      return flag->get() ? "true" : "false";
    if (const auto *integer = node.as_integer())
      return std::to_string(integer->get());
    if (const auto *real = node.as_floating_point()) {
      char digits[32];
      return std::string(digits, std::to_chars(digits, digits + sizeof digits, real->get()).ptr);
    }
    return "a date or time"; // no option takes one
  }

  llvm::StringRef path;
  size_t settings = 0;
  unsigned depth = 0; ///< of the setting that `add` makes
};

} // namespace

llvm::Expected<Setting> readToml(llvm::StringRef path, llvm::StringRef text) {
  size_t number = 0;
  for (llvm::StringRef line : llvm::split(text, '\n'))
    if (++number; line.count('.') > maxDotsOfLine)
      return usage(path + ":" + llvm::Twine(number) + ": the line has more than " + llvm::Twine(maxDotsOfLine) +
                   " dots");
  const toml::parse_result parsed = toml::parse(std::string_view(text), std::string(path));
  if (!parsed)
    return usage(path + ":" + llvm::Twine(parsed.error().source().begin.line) + ": " +
                 std::string(parsed.error().description()));
  Setting root;
  if (llvm::Error error = TomlTree(path).fill(root, parsed.table()))
    return error;
  return root;
}

} // namespace fsdpc

// A configuration file as a tree of names and values, whatever its format.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace fsdpc {

struct Setting {
  enum class Kind : uint8_t { null, scalar, list, mapping };
  Kind kind = Kind::null;
  std::string name;           ///< in a mapping; "" for items of a list
  std::string text;           ///< of a scalar
  std::string where;          ///< "FILE:LINE", for messages
  std::vector<Setting> items; ///< of a list or a mapping, in the order of the file

  bool isScalar() const { return kind == Kind::scalar; }
  bool isMapping() const { return kind == Kind::mapping; }
  /// The value, or nullptr if this is no mapping or has no such name. The last of equal names counts.
  const Setting *find(llvm::StringRef wanted) const;
  /// The text of a scalar, or of each item.
  std::vector<std::string> texts() const;
  /// On one line, at most 60 printable characters, for messages.
  std::string shown() const;
};

/// What a file may have. Beyond that it is no configuration.
constexpr size_t maxConfigBytes = size_t(1) << 20, maxConfigSettings = 20000;
constexpr unsigned maxConfigDepth = 32; ///< of mappings and lists in each other

/// The root, which is a mapping. A file called *.toml is TOML, every other YAML, of which JSON is a part. Names may be
/// repeated. Anchors, aliases and merge keys (`<<`) are resolved. Errors are UsageErrors that begin with `--config`.
llvm::Expected<Setting> readSettings(llvm::StringRef path);

/// Reads the text of a file called `path`.
llvm::Expected<Setting> readYaml(llvm::StringRef path, llvm::StringRef text);
llvm::Expected<Setting> readToml(llvm::StringRef path, llvm::StringRef text);

} // namespace fsdpc

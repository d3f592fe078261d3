// The one rule for regular expressions that name parameters, units or modules: they match the whole name, and one that
// matches nothing is a mistake.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Regex.h"
#include <string>

namespace fsdpc {

class NamePattern {
public:
  /// Of `--option text`; POSIX extended, as LLVM has them. Without text it matches nothing, and that is right. A
  /// UsageError if it is no regular expression.
  static llvm::Expected<NamePattern> make(llvm::StringRef option, llvm::StringRef text);

  bool isGiven() const { return !text.empty(); }
  bool matches(llvm::StringRef name) const { return isGiven() && whole.match(name); }

  /// What to say if none of `names` matches: a UsageError with the nearest of them, and with the expression to write
  /// if it matches inside of some. `kind`: "parameter", "unit".
  llvm::Error matchesNone(llvm::StringRef kind, llvm::ArrayRef<std::string> names) const;

private:
  std::string option, text;
  llvm::Regex whole;
};

} // namespace fsdpc

// The one rule for regular expressions over the names of parameters, units or modules: they match the full name, and an
// expression without a match is an error.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Regex.h"
#include <string>

namespace fsdpc {

class NamePattern {
public:
  /// The pattern of `--option text`, in the POSIX extended syntax of LLVM. An empty text matches nothing and is valid.
  /// Returns a UsageError for an invalid regular expression.
  static llvm::Expected<NamePattern> make(llvm::StringRef option, llvm::StringRef text);

  bool isGiven() const { return !text.empty(); }
  bool matches(llvm::StringRef name) const { return isGiven() && whole.match(name); }

  /// The error if none of `names` matches: a UsageError that lists the nearest names, and suggests an expression if the
  /// text matches a part of some name. `kind`: "parameter", "unit".
  llvm::Error matchesNone(llvm::StringRef kind, llvm::ArrayRef<std::string> names) const;

private:
  std::string option, text;
  llvm::Regex whole;
};

} // namespace fsdpc

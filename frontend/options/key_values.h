// Options whose value is a list of settings, as in --group 'REGEX:lr=1e-5,betas=0.9,0.95'.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace fsdpc {

/// KEY=VALUE at commas; keys in small letters, with `_` for `-`. A part that does not begin with a word and an equals
/// sign continues the value before it: betas=0.9,0.95.
std::vector<std::pair<std::string, std::string>> keyValues(llvm::StringRef text);

/// The UsageError if `key` is not one of `keys`.
llvm::Error checkKey(llvm::StringRef key, llvm::ArrayRef<std::string> keys);

} // namespace fsdpc

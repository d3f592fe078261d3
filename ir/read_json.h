// Reads JSON that may come from anywhere.
#pragma once

#include "llvm/Support/JSON.h"

namespace fsdpc {

/// Values in each other. llvm::json::parse calls itself for each level.
constexpr unsigned maxJsonDepth = 64;

/// As llvm::json::parse; deeper text is an error, too.
llvm::Expected<llvm::json::Value> readJson(llvm::StringRef text);

} // namespace fsdpc

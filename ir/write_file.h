// Files that are written at once, with every fault of the disk told.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Makes or replaces the file. An error names it and what went wrong, a full disk too: then it may hold a part.
llvm::Error writeFile(llvm::StringRef path, llvm::StringRef text);
/// The same into a descriptor, which it closes; `path` is for the message.
llvm::Error writeFile(int descriptor, llvm::StringRef path, llvm::StringRef text);

} // namespace fsdpc

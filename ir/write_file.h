// Writes files in one call and reports every disk error.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Creates or replaces the file. An error names the file and the cause, for example a full disk. The file may then be
/// incomplete.
llvm::Error writeFile(llvm::StringRef path, llvm::StringRef text);
/// The same for a descriptor, which it closes. `path` is for the message.
llvm::Error writeFile(int descriptor, llvm::StringRef path, llvm::StringRef text);
/// Creates the file and the folders above it, or replaces the file: readers see the old text or the new one, and after
/// an error the old one.
llvm::Error replaceFile(llvm::StringRef path, llvm::StringRef text);

} // namespace fsdpc

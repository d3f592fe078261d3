// Ownership of the files of an output folder, and their replacement by new ones.
#pragma once

#include "llvm/Support/Error.h"
#include <set>
#include <string>
#include <vector>

namespace fsdpc {

/// The file of an output folder that lists, relative to it, everything fsdpc wrote there.
constexpr llvm::StringLiteral ownedFilesName = "files.json";

struct FolderContent {
  bool exists = false;
  bool isOutput = false;         ///< it has a valid list
  std::set<std::string> owned;   ///< listed files that exist: relative paths of files and links
  std::set<std::string> foreign; ///< everything else except folders that hold owned files; for a folder only its path
};

/// The content of `folder`. Links are not followed. `skipped` is a path below it that is ignored. Errors: the folder
/// cannot be read.
llvm::Expected<FolderContent> contentOf(llvm::StringRef folder, llvm::StringRef skipped = "");

/// Every file below `folder`, relative to it.
llvm::Expected<std::set<std::string>> filesBelow(llvm::StringRef folder);

/// The text of `ownedFilesName`.
std::string ownedFilesText(const std::set<std::string> &files);

/// The relative path that prevents `files` from replacing the owned files of the folder, or "". A link to a folder
/// prevents files below it.
std::string collision(llvm::StringRef folder, const FolderContent &content, const std::set<std::string> &files);

/// Deletes the files, and the folders that then are empty, `folder` itself included if it is.
void removeOwned(llvm::StringRef folder, const std::set<std::string> &files);

/// Moves the files of `from` into `to` in place of those that `content` owns there, which are deleted. On an error
/// everything is restored.
llvm::Error replaceFiles(llvm::StringRef from, const std::set<std::string> &files, llvm::StringRef to,
                         const FolderContent &content);

} // namespace fsdpc

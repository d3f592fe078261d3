// Whose the files of an output folder are, and how new ones take the place of old ones.
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
  bool isOutput = false;         ///< there is a list, and it is one
  std::set<std::string> owned;   ///< of the list, what is there: relative paths of files and links
  std::set<std::string> foreign; ///< everything else but folders that hold owned files; of a folder its path alone
};

/// What lies in `folder`; no link is followed. `skipped` is a path below it that does not count. Errors: the folder
/// cannot be read.
llvm::Expected<FolderContent> contentOf(llvm::StringRef folder, llvm::StringRef skipped = "");

/// Every file below `folder`, relative to it.
llvm::Expected<std::set<std::string>> filesBelow(llvm::StringRef folder);

/// The text of `ownedFilesName`.
std::string ownedFilesText(const std::set<std::string> &files);

/// What stands in the way of putting `files` into the folder in place of what is owned there: a relative path, or
/// nothing. A link to a folder stands in the way of files below it.
std::string collision(llvm::StringRef folder, const FolderContent &content, const std::set<std::string> &files);

/// Deletes the files, and the folders that then are empty, `folder` itself included if it is.
void removeOwned(llvm::StringRef folder, const std::set<std::string> &files);

/// Puts the files of `from` into `to` in place of what `content` owns there, which is deleted. On an error everything
/// is where it was.
llvm::Error replaceFiles(llvm::StringRef from, const std::set<std::string> &files, llvm::StringRef to,
                         const FolderContent &content);

} // namespace fsdpc

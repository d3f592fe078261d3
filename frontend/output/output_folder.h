// Writes OUT/. Everything is written to a folder next to it first, which replaces OUT/ when it is complete.
//
// Ownership
// - OUT/files.json lists the files that fsdpc wrote there. No other file is ever replaced or deleted, and no link is
//   followed to delete something.
// - OUT may be absent, an empty folder, or an earlier output. Any other folder is refused. An output is also refused if
//   a program runs from it (programs hold a lock on OUT/train), or if one of its own files is the input.
// - Files that others put into an earlier output (checkpoints, logs, a build folder) stay where they are. If such a
//   file has the name of one of the new files, or is the data file that OUT/model.onnx names, the folder is refused.
//
// Atomicity
// - An absent OUT appears by one rename. An earlier output without other files is exchanged for the new one by one
//   rename. Otherwise (files of others in it, an empty folder of somebody, a mount point, the current folder) files are
//   renamed one by one, `train` out first and in last, and back again if one cannot be.
// - A compile that fails or is interrupted leaves OUT as it was and nothing next to it. One that is killed may leave
//   OUT.partial-<pid>.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace fsdpc {

class Module;

/// The data file that OUT/model.onnx names. The program writes it, not the compiler.
constexpr llvm::StringLiteral modelDataName = "model.onnx.data";

class OutputFolder {
public:
  /// Checks that a compile of `input` may write there. Errors are UsageErrors. Called before the work begins.
  static llvm::Error check(llvm::StringRef path, llvm::StringRef input);
  static llvm::Expected<OutputFolder> create(llvm::StringRef path, llvm::StringRef input);
  OutputFolder(OutputFolder &&other);
  OutputFolder &operator=(OutputFolder &&) = delete;
  ~OutputFolder(); ///< removes what was not committed

  /// Absolute path of a file or folder below OUT/; its parent folders exist.
  llvm::Expected<std::string> pathOf(llvm::StringRef name) const;
  llvm::Error write(llvm::StringRef name, llvm::StringRef text);
  /// Copies a file of the source tree to the same relative path.
  llvm::Error copyFrom(llvm::StringRef sourceTree, llvm::StringRef relativePath);
  llvm::StringRef workingPath() const { return working; }

  /// Lists the written files in files.json. They replace the files that fsdpc wrote into OUT/ before.
  llvm::Error commit();

private:
  OutputFolder(std::string shown, std::string target, std::string working);
  std::string shown, target, working; ///< as the user spells it; the real path; the folder being written
};

/// Writes one file outside of output folders. "-" or nothing is stdout.
llvm::Error writeText(llvm::StringRef path, llvm::StringRef text);
/// The same for the text of a module. Beside a file are its large constants.
llvm::Error writeText(llvm::StringRef path, const Module &module);

} // namespace fsdpc

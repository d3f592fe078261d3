// Writing OUT/: everything goes to a folder beside it first and takes its place when it is complete.
//
// Whose files
// - OUT/files.json lists what fsdpc wrote there. Nothing else is ever replaced or deleted, and no link is followed to
//   delete something.
// - OUT may be absent, an empty folder, or an earlier output. Any other folder is refused, and so is an output from
//   which a program runs (programs hold a lock on OUT/train), and one whose own file is the input.
// - What somebody put into an earlier output (checkpoints, logs, a build folder) stays where it is. Where such a file
//   has the name of one of the new files, or is the data file that OUT/model.onnx names, the folder is refused.
//
// As a whole
// - An absent OUT appears by one rename; an earlier output without anything else is exchanged for the new one by one
//   rename. Otherwise (files of others in it, an empty folder of somebody, a mount point, the current folder) files
//   are renamed one by one, `train` out first and in last, and back again if one cannot be.
// - A compile that fails or is interrupted leaves OUT as it was and nothing beside it. One that is killed may leave
//   OUT.partial-<pid>.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace fsdpc {

/// The data file that OUT/model.onnx names: the program writes it, not the compiler.
constexpr llvm::StringLiteral modelDataName = "model.onnx.data";

class OutputFolder {
public:
  /// May a compile of `input` write there? Faults are UsageErrors. Asked before the work begins.
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

  /// Lists what was written in files.json and puts all of it in the place of what fsdpc wrote into OUT/ before.
  llvm::Error commit();

private:
  OutputFolder(std::string shown, std::string target, std::string working);
  std::string shown, target, working; ///< as the user says it; the real path; the folder that is being written
};

/// Writes one file that stands outside output folders; "-" or nothing is stdout.
llvm::Error writeText(llvm::StringRef path, llvm::StringRef text);

} // namespace fsdpc

// Writing OUT/: everything goes to a folder beside it first and is moved into place when it is complete.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace fsdpc {

class OutputFolder {
public:
  static llvm::Expected<OutputFolder> create(llvm::StringRef path);
  OutputFolder(OutputFolder &&other);
  OutputFolder &operator=(OutputFolder &&) = delete;
  ~OutputFolder(); ///< removes what was not committed

  /// Absolute path of a file or folder below OUT/; its parent folders exist.
  llvm::Expected<std::string> pathOf(llvm::StringRef name) const;
  llvm::Error write(llvm::StringRef name, llvm::StringRef text);
  /// Copies a file of the source tree to the same relative path.
  llvm::Error copyFrom(llvm::StringRef sourceTree, llvm::StringRef relativePath);
  llvm::StringRef workingPath() const { return working; }

  /// Moves everything into OUT/, replacing files of the same name, keeping others.
  llvm::Error commit();

private:
  OutputFolder(std::string target, std::string working) : target(std::move(target)), working(std::move(working)) {}
  std::string target, working;
};

/// Compiles the program in `folder` with the host compiler, without a shell. On failure the error carries the
/// compiler's output.
struct BuildOptions {
  std::string target;            ///< "cpu" or "cuda"
  std::string testBuild = "off"; ///< as the option says
};
llvm::Error buildProgram(const OutputFolder &folder, llvm::ArrayRef<std::string> sources, const BuildOptions &options);

/// Writes one file that stands outside output folders; "-" or nothing is stdout.
llvm::Error writeText(llvm::StringRef path, llvm::StringRef text);

} // namespace fsdpc

// The files that this fsdpc needs in addition to its executable: the sources that it copies into outputs, and the
// settings to build programs. They are found relative to the executable, so an installed fsdpc can be moved, and its
// build tree deleted.
//
// `toolchains.json` is next to the executable (build tree) or in ../share/fsdpc (installed). CMakeLists.txt writes
// both. `{here}` in it is its folder.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <map>
#include <string>
#include <vector>

namespace fsdpc {

/// How programs of one kind are built.
struct Toolchain {
  std::string compiler;
  std::vector<std::string> flags, libraries, linkFlags;
  /// For a program whose functions and kernels are there once more, for x86-64-v4; else empty.
  std::vector<std::string> v4Flags;
  std::string v4Kernels, objcopy;
};

struct Installation {
  std::string resources;   ///< holds runtime/, codegen/templates/ and the pages of frontend/report/
  std::string calibration; ///< the program that `fsdpc calibrate` runs
  std::string checkpoint;  ///< the program that `fsdpc checkpoint` runs
  /// By target, or target.test_build: "cpu", "cpu.on", "cuda.emulated_loopback", ...
  std::map<std::string, Toolchain> toolchains;
};

/// Read once. An error names the file that is missing or broken.
llvm::Expected<const Installation &> installation();

} // namespace fsdpc

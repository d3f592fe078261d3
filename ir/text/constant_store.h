// The bytes of large constants, beside the texts that name them. Several texts share a store: stages of one compile
// hold mostly the same constants.
#pragma once

#include "ir/attributes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class ConstantStore {
public:
  /// Constants of more bytes than this are named in a text that has a store.
  static constexpr size_t maxBytesInText = 4096;
  /// The folder of their files, beside a text's file.
  static constexpr llvm::StringLiteral folderName = "constants";

  /// The folder for the text in this file.
  static std::string beside(llvm::StringRef path);

  ConstantStore() = default;
  /// Also has the files of this folder, and reads one when it is looked up.
  explicit ConstantStore(std::string folder) : folder(std::move(folder)) {}

  /// Keeps the bytes, shared with `dense`, and returns their name: type and digest.
  std::string add(const Dense &dense);
  /// An error says why there is no such constant, or that its file has other bytes.
  llvm::Expected<Dense> find(llvm::StringRef name) const;

  const llvm::StringMap<Dense> &constants() const { return byName; }
  /// Writes the files of the added constants to this folder, which is created if there are any. A file that exists is
  /// not written again.
  llvm::Error write(llvm::StringRef folder) const;

private:
  llvm::StringMap<Dense> byName;
  std::string folder;
};

} // namespace fsdpc

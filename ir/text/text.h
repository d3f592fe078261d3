// The one text form: print any stage, read it back to the same module. The syntax is described in ir/README.md.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBufferRef.h"

namespace fsdpc {

void print(const Module &module, llvm::raw_ostream &out);
std::string toText(const Module &module);
/// One node as it prints inside its function, without a newline: for messages. Walks the whole function to name its
/// values: whoever prints many nodes makes the ValueNames once.
std::string toText(const Node &node);

/// The names of a function's values as they print: unique within the function, the same every time. A snapshot: make it
/// anew after the function has changed.
class ValueNames {
public:
  explicit ValueNames(const Function &function);
  /// With sigil: %x, %x.1 (the second x), %"a b", %3 (the fourth value without a name). %? for a value of another
  /// function.
  std::string of(const Value *value) const;
  /// The same without sigil and quotes; empty for a value without a name.
  llvm::StringRef plain(const Value *value) const { return entries.lookup(value).name; }

private:
  void add(const Value *value);
  struct Entry {
    llvm::StringRef name; ///< empty: numbered; the characters belong to `taken`
    uint64_t number = 0;
  };
  llvm::DenseMap<const Value *, Entry> entries;
  llvm::StringMap<uint64_t> taken; ///< name -> next suffix to try
  uint64_t unnamed = 0;
};
std::string toText(const Node &node, const ValueNames &names);

/// Gives every value the name it prints under, as if the module had been saved and read back.
void settleNames(Module &module);

/// Reads a module; errors carry file, line and column with the source line (llvm::SourceMgr form).
/// The text is not trusted: whatever it holds, the answer is a module (to be verified) or an error.
llvm::Expected<std::unique_ptr<Module>> parse(llvm::MemoryBufferRef text);

} // namespace fsdpc

// The one text form: prints any stage and reads it back to the same module. ir/README.md describes the syntax.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBufferRef.h"

namespace fsdpc {

class ConstantStore; // ir/text/constant_store.h

/// With a store, large constants go there and the text has their names; else it has their bytes.
void print(const Module &module, llvm::raw_ostream &out, ConstantStore *constants = nullptr);
std::string toText(const Module &module, ConstantStore *constants = nullptr);
/// One node as printed inside its function, without a newline, for messages. It walks the entire function to name its
/// values, so callers that print many nodes should create the ValueNames once.
std::string toText(const Node &node);

/// The printed names of a function's values: unique within the function and deterministic. This is a snapshot: create a
/// new one after the function has changed.
class ValueNames {
public:
  explicit ValueNames(const Function &function);
  /// With sigil: %x, %x.1 (the second x), %"a b", %3 (the fourth value without a name). %? for a value of another
  /// function.
  std::string of(const Value *value) const;
  /// The same without sigil and quotes. Empty for a value without a name.
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

/// Sets the name of every value to its printed name, as if the module had been saved and read back.
void assignPrintedNames(Module &module);

/// Reads a module. Errors have file, line and column with the source line (llvm::SourceMgr form). The text is not
/// trusted: for every input, the result is a module (still to be verified) or an error.
/// `constants`: what the text names.
llvm::Expected<std::unique_ptr<Module>> parse(llvm::MemoryBufferRef text, const ConstantStore *constants = nullptr);
/// The same for a file, with the constants beside it.
llvm::Expected<std::unique_ptr<Module>> parseFile(llvm::StringRef path);
/// Writes the text of a module to a file, and its large constants beside it.
llvm::Error writeModule(const Module &module, llvm::StringRef path);

} // namespace fsdpc

// Constants of a program: small ones as digits in its source, large ones in a file of bytes, which the assembler takes
// in.
#pragma once

#include "codegen/common/program_text.h"
#include "codegen/emit.h"

namespace fsdpc {

/// True if the constant is in the file.
bool isInConstantsFile(const Dense &constant);

/// The symbol of constant `index` in that file.
std::string constantSymbol(size_t index);

/// Definitions `<storage> std::uint64_t constant<i>[]` of the constants that are digits, as the bytes of their
/// elements.
std::string smallConstantsText(const ProgramText &program, llvm::StringRef storage);

/// constants.bin, and the statements of a source for the host that define its symbols. Empty without large constants.
struct ConstantsFile {
  explicit ConstantsFile(const ProgramText &program);
  static constexpr const char *name = "constants.bin";
  std::string bytes, definitions;
};

} // namespace fsdpc

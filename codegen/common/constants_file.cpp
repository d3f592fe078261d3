#include "codegen/common/constants_file.h"

#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

constexpr size_t maxBytesInSource = 4096;
constexpr size_t constantAlignment = 64;

} // namespace

bool isInConstantsFile(const Dense &constant) { return constant.bytes().size() > maxBytesInSource; }

std::string constantSymbol(size_t index) { return "fsdpcConstant" + std::to_string(index); }

std::string smallConstantsText(const ProgramText &program, llvm::StringRef storage) {
  std::string out;
  llvm::raw_string_ostream stream(out);
  for (size_t i = 0; i < program.constants().size(); ++i) {
    if (isInConstantsFile(program.constants()[i]))
      continue;
    llvm::ArrayRef<uint8_t> bytes = program.constants()[i].bytes();
    stream << "alignas(64) " << storage << " std::uint64_t constant" << i << "[" << (bytes.size() + 7) / 8 << "] = {";
    for (size_t word = 0; word * 8 < bytes.size(); ++word) {
      uint64_t value = 0;
      for (size_t k = 0; k < 8 && word * 8 + k < bytes.size(); ++k)
        value |= static_cast<uint64_t>(bytes[word * 8 + k]) << (8 * k);
      stream << (word % 6 ? " " : "\n    ") << "0x";
      stream.write_hex(value) << ",";
    }
    stream << "\n};\n\n";
  }
  return out;
}

ConstantsFile::ConstantsFile(const ProgramText &program) {
  for (size_t i = 0; i < program.constants().size(); ++i) {
    const Dense &constant = program.constants()[i];
    if (!isInConstantsFile(constant))
      continue;
    bytes.resize(llvm::alignTo(bytes.size(), constantAlignment));
    const std::string symbol = constantSymbol(i);
    definitions += "asm(\".section .rodata\\n.balign 64\\n.globl " + symbol + "\\n" + symbol + ":\\n.incbin \\\"" +
                   name + "\\\", " + std::to_string(bytes.size()) + ", " + std::to_string(constant.bytes().size()) +
                   "\\n.previous\");\n";
    bytes += constant.asText();
  }
}

} // namespace fsdpc

#include "passes/support/bytes_text.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

std::string bytesText(int64_t bytes) {
  constexpr llvm::StringLiteral names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(names); ++unit)
    value /= 1024;
  std::string text;
  llvm::raw_string_ostream out(text);
  out << llvm::format(unit == 0 ? "%.0f " : "%.2f ", value) << names[unit];
  return text;
}

} // namespace fsdpc

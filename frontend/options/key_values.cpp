#include "frontend/options/key_values.h"

#include "frontend/options/option_schema.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

bool beginsSetting(llvm::StringRef part) {
  const llvm::StringRef key = part.split('=').first.trim();
  return part.contains('=') && !key.empty() &&
         llvm::all_of(key, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '-'; });
}

} // namespace

std::vector<std::pair<std::string, std::string>> keyValues(llvm::StringRef text) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (llvm::StringRef part : llvm::split(text, ',')) {
    if (!beginsSetting(part) && !settings.empty()) {
      settings.back().second += "," + part.trim().str();
      continue;
    }
    const auto [key, value] = part.split('=');
    settings.emplace_back(key.trim().lower(), value.trim().str());
    std::replace(settings.back().first.begin(), settings.back().first.end(), '-', '_');
  }
  return settings;
}

llvm::Error checkKey(llvm::StringRef key, llvm::ArrayRef<std::string> keys) {
  if (llvm::is_contained(keys, key))
    return llvm::Error::success();
  const llvm::SmallVector<llvm::StringRef, 12> names(keys.begin(), keys.end());
  return llvm::make_error<UsageError>(
      ("'" + key + "' is not one of " + llvm::join(keys, ", ") + didYouMean(key, names)).str());
}

} // namespace fsdpc

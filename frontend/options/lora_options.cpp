// --lora 'rank=16,alpha=32,dropout=0.05,targets=REGEX'.
#include "frontend/options/key_values.h"
#include "frontend/options/resolve.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace fsdpc {

namespace {

const std::vector<std::string> keys = {"rank", "alpha", "dropout", "rslora", "targets"};

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

llvm::Error setRank(LoraOptions &lora, llvm::StringRef value) {
  if (value.getAsInteger(10, lora.rank) || lora.rank < 1 || lora.rank > int64_t(1) << 20)
    return usage("rank=" + value + ": an integer from 1 is expected");
  return llvm::Error::success();
}

llvm::Error setValue(LoraOptions &lora, llvm::StringRef key, llvm::StringRef value) {
  if (key == "rank")
    return setRank(lora, value);
  if (key == "targets") {
    lora.targets = value == "all-linear" ? "all_linear" : value.str();
    return value.empty() ? usage("targets is empty") : llvm::Error::success();
  }
  if (key == "rslora") {
    lora.isStable = value == "on" || value == "true";
    return lora.isStable || value == "off" || value == "false" ? llvm::Error::success()
                                                               : usage("rslora=" + value + ": on or off is expected");
  }
  double number;
  if (value.getAsDouble(number) || !std::isfinite(number))
    return usage(key + "=" + value + ": a number is expected");
  if (key == "dropout" && !(number >= 0 && number < 1))
    return usage("dropout=" + value + ": from 0 to below 1 is expected");
  if (key == "alpha" && !(number > 0))
    return usage("alpha=" + value + ": a number above 0 is expected");
  (key == "alpha" ? lora.alpha : lora.dropout) = number;
  return llvm::Error::success();
}

llvm::Expected<LoraOptions> loraOf(llvm::StringRef text) {
  LoraOptions lora;
  for (const auto &[key, value] : keyValues(text)) {
    if (llvm::Error error = checkKey(key, keys))
      return error;
    if (llvm::Error error = setValue(lora, key, value))
      return error;
  }
  if (lora.targets.empty())
    return usage("targets=REGEX is missing: modules whose full names match, or all_linear");
  return lora;
}

} // namespace

llvm::Expected<std::optional<LoraOptions>> loraOptions(const OptionValues &values) {
  const llvm::StringRef text = values.text("lora");
  if (text.empty())
    return std::nullopt;
  llvm::Expected<LoraOptions> lora = loraOf(text);
  if (!lora)
    return usage("--lora " + text + ": " + llvm::toString(lora.takeError()));
  if (llvm::Error error = checkPattern("lora", lora->targets))
    return error;
  return std::optional(*lora);
}

} // namespace fsdpc

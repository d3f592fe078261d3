#include "frontend/driver/activation_budget.h"

#include "frontend/driver/memory_budget.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace fsdpc {

namespace {

constexpr int shares = 64;

std::string shareText(int share) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", static_cast<double>(share) / shares);
  return text;
}

} // namespace

bool searchesActivationBudget(const OptionValues &values) {
  return values.text("activation_checkpointing") == "budget" && values.text("activation_memory_budget").empty() &&
         !values.text("memory_budget").empty();
}

llvm::Error settleActivationBudget(const Estimator &model, OptionValues &values) {
  llvm::Expected<std::optional<int64_t>> budget = memoryBudget(values);
  if (!budget)
    return budget.takeError();
  auto fits = [&](int share) -> llvm::Expected<bool> {
    OptionValues changed = values;
    changed.resolve("activation_memory_budget", shareText(share));
    llvm::Expected<Estimate> plan = model.plan(std::move(changed));
    if (!plan)
      return plan.takeError();
    return plan->memory.totalBytes <= **budget;
  };
  llvm::Expected<bool> isEnough = fits(0);
  int most = 0;
  for (int step = isEnough && *isEnough ? shares : 0; step > 0 && isEnough; step /= 2) {
    if (most + step > shares)
      continue;
    isEnough = fits(most + step);
    most += isEnough && *isEnough ? step : 0;
  }
  if (!isEnough)
    return isEnough.takeError();
  values.resolve("activation_memory_budget", shareText(most));
  return llvm::Error::success();
}

} // namespace fsdpc

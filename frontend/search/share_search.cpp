#include "frontend/search/share_search.h"

#include "frontend/search/memory_budget.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace fsdpc {

namespace {

std::string shareText(int part, int parts) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", static_cast<double>(part) / parts);
  return text;
}

bool isOpen(const OptionValues &values, llvm::StringRef share) {
  return values.text(share).empty() && !values.text("memory_budget").empty();
}

bool keepsByBudget(const OptionValues &values) {
  return values.text("activation_checkpointing") == "budget" && isOpen(values, "activation_memory_budget");
}

/// With activation_checkpointing budget it is the compiler that says which activations go.
bool offloadsByBudget(const OptionValues &values) {
  bool offloadsActivations = values.flag("offload_activations") && values.text("activation_checkpointing") != "budget";
  bool offloads = offloadsActivations || values.flag("offload_params") || values.flag("offload_optimizer");
  return offloads && isOpen(values, "offload_share");
}

class ShareSearch {
public:
  ShareSearch(const Estimator &model, int64_t budgetBytes) : model(model), budgetBytes(budgetBytes) {}

  /// The most that is kept, in 64ths.
  llvm::Error settleKept(OptionValues &values) const {
    constexpr int parts = 64;
    return settle(values, "activation_memory_budget", parts, [](int part) { return shareText(part, parts); });
  }

  /// The least that goes, in 16ths.
  llvm::Error settleOffloaded(OptionValues &values) const {
    constexpr int parts = 16;
    return settle(values, "offload_share", parts, [](int part) { return shareText(parts - part, parts); });
  }

  llvm::Error settleBoth(OptionValues &values) const {
    constexpr int parts = 4;
    std::optional<OptionValues> best;
    Estimate bestPlan;
    for (int part = 0; part <= parts; ++part) {
      OptionValues tried = values;
      tried.resolve("offload_share", shareText(part, parts));
      if (llvm::Error error = settleKept(tried))
        return error;
      llvm::Expected<Estimate> plan = model.plan(tried);
      if (!plan)
        return plan.takeError();
      if (!best || isBetter(*plan, bestPlan)) {
        best = std::move(tried);
        bestPlan = std::move(*plan);
      }
    }
    values = std::move(*best);
    return llvm::Error::success();
  }

private:
  bool fits(const Estimate &plan) const { return plan.memory.totalBytes <= budgetBytes; }

  bool isBetter(const Estimate &a, const Estimate &b) const {
    if (fits(a) != fits(b))
      return fits(a);
    return fits(a) ? a.stepMicroseconds < b.stepMicroseconds : a.memory.totalBytes < b.memory.totalBytes;
  }

  /// Resolves the option to the last of `parts` steps with which the plan fits, if the first does. Each needs no less
  /// memory than the one before.
  llvm::Error settle(OptionValues &values, llvm::StringRef option, int parts,
                     llvm::function_ref<std::string(int)> text) const {
    auto isEnough = [&](int part) -> llvm::Expected<bool> {
      OptionValues changed = values;
      changed.resolve(option, text(part));
      llvm::Expected<Estimate> plan = model.plan(std::move(changed));
      if (!plan)
        return plan.takeError();
      return fits(*plan);
    };
    llvm::Expected<bool> isFirstEnough = isEnough(0);
    if (!isFirstEnough)
      return isFirstEnough.takeError();
    int most = 0;
    for (int step = *isFirstEnough ? parts : 0; step > 0; step /= 2) {
      if (most + step > parts)
        continue;
      llvm::Expected<bool> isStillEnough = isEnough(most + step);
      if (!isStillEnough)
        return isStillEnough.takeError();
      most += *isStillEnough ? step : 0;
    }
    values.resolve(option, text(most));
    return llvm::Error::success();
  }

  const Estimator &model;
  const int64_t budgetBytes;
};

} // namespace

bool searchesShares(const OptionValues &values) { return keepsByBudget(values) || offloadsByBudget(values); }

llvm::Error settleShares(const Estimator &model, OptionValues &values) {
  llvm::Expected<std::optional<int64_t>> budget = memoryBudget(values);
  if (!budget)
    return budget.takeError();
  ShareSearch search(model, **budget);
  if (keepsByBudget(values) && offloadsByBudget(values))
    return search.settleBoth(values);
  return keepsByBudget(values) ? search.settleKept(values) : search.settleOffloaded(values);
}

} // namespace fsdpc

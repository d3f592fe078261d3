#include "frontend/search/share_search.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

namespace {

bool keepsByBudget(const Candidate &plan) {
  return plan.checkpointing == ActivationCheckpointing::budget && plan.budgetBytes && !plan.keptShare;
}

/// With activation_checkpointing budget the compiler decides which activations are offloaded.
bool offloadsByBudget(const Candidate &plan) {
  bool offloadsActivations = plan.offloadsActivations && plan.checkpointing != ActivationCheckpointing::budget;
  bool offloads = offloadsActivations || plan.offloadsParams || plan.offloadsOptimizer;
  return offloads && plan.budgetBytes && !plan.offloadShare;
}

class ShareSearch {
public:
  ShareSearch(const Estimator &model, int64_t budgetBytes) : model(model), budgetBytes(budgetBytes) {}

  /// Finds the largest share that is kept, in 64ths.
  llvm::Error findKeptShare(Candidate &plan) const {
    return settle(plan, 64, [](Candidate &changed, double share) { changed.keptShare = share; });
  }

  /// Finds the smallest share that is offloaded, in 16ths.
  llvm::Error findOffloadShare(Candidate &plan) const {
    return settle(plan, 16, [](Candidate &changed, double share) { changed.offloadShare = 1 - share; });
  }

  llvm::Error findBothShares(Candidate &plan) const {
    constexpr int parts = 4;
    std::optional<Candidate> best;
    Estimate bestPlan;
    for (int part = 0; part <= parts; ++part) {
      Candidate tried = plan;
      tried.offloadShare = static_cast<double>(part) / parts;
      if (llvm::Error error = findKeptShare(tried))
        return error;
      llvm::Expected<Estimate> estimate = model.plan(tried);
      if (!estimate)
        return estimate.takeError();
      if (!best || isBetter(*estimate, bestPlan)) {
        best = std::move(tried);
        bestPlan = std::move(*estimate);
      }
    }
    plan = std::move(*best);
    return llvm::Error::success();
  }

private:
  bool fits(const Estimate &plan) const { return plan.memory.totalBytes <= budgetBytes; }

  bool isBetter(const Estimate &a, const Estimate &b) const {
    if (fits(a) != fits(b))
      return fits(a);
    return fits(a) ? a.stepMicroseconds < b.stepMicroseconds : a.memory.totalBytes < b.memory.totalBytes;
  }

  /// Gives the plan the largest of `parts` + 1 shares, from 0 to 1, with which it fits, if it fits with the first.
  /// Memory must not decrease from one share to the next.
  llvm::Error settle(Candidate &plan, int parts, llvm::function_ref<void(Candidate &, double)> give) const {
    auto isEnough = [&](int part) -> llvm::Expected<bool> {
      Candidate changed = plan;
      give(changed, static_cast<double>(part) / parts);
      llvm::Expected<Estimate> estimate = model.plan(std::move(changed));
      if (!estimate)
        return estimate.takeError();
      return fits(*estimate);
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
    give(plan, static_cast<double>(most) / parts);
    return llvm::Error::success();
  }

  const Estimator &model;
  const int64_t budgetBytes;
};

} // namespace

bool searchesShares(const Candidate &plan) { return keepsByBudget(plan) || offloadsByBudget(plan); }

llvm::Error settleShares(const Estimator &model, Candidate &plan) {
  ShareSearch search(model, *plan.budgetBytes);
  if (keepsByBudget(plan) && offloadsByBudget(plan))
    return search.findBothShares(plan);
  return keepsByBudget(plan) ? search.findKeptShare(plan) : search.findOffloadShare(plan);
}

} // namespace fsdpc

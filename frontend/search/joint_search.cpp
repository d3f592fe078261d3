#include "frontend/search/joint_search.h"

#include "frontend/search/share_search.h"
#include "passes/support/bytes_text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <functional>

namespace fsdpc {

namespace {

/// A smaller gain is no reason to prefer a plan, since predictions are not that exact.
constexpr double worthwhile = 0.002;

/// A choice that may be varied once a strategy is chosen. Values are tried in turn, until one wins.
struct Knob {
  bool isFixed;
  llvm::SmallVector<std::function<void(Candidate &)>, 3> turns;
  bool needsFirst = false; ///< where the first value cannot be planned, the others change nothing
};

template <auto field, class T>
Knob knob(const Candidate &asked, std::initializer_list<T> values) {
  Knob result{asked.isGiven<field>(), {}};
  for (T value : values)
    result.turns.push_back([value](Candidate &plan) { plan.*field = value; });
  return result;
}

std::vector<Knob> knobsFor(const Candidate &asked) {
  std::vector<Knob> knobs = {
      knob<&Candidate::maxInflightAllGathers, int64_t>(asked, {3, 4, 1}),
      knob<&Candidate::ownReduceCommunicator>(asked, {true}),
      knob<&Candidate::allGatherBucketBytes, int64_t>(asked, {64 << 20, 16 << 20}),
      knob<&Candidate::reduceBucketBytes, int64_t>(asked, {64 << 20, 16 << 20}),
      knob<&Candidate::accumulation>(
          asked, {Accumulation::keepGradients, Accumulation::keepParameters, Accumulation::keepBoth})};
  knobs.back().isFixed |= asked.microSteps == 1;
  knobs.push_back(knob<&Candidate::lossChunk, std::optional<int64_t>>(asked, {256, 0}));
  knobs.back().needsFirst = true;
  return knobs;
}

/// One way to use the host's memory.
struct Offloading {
  bool Candidate::*flag;
  bool isGiven;
};

class Searcher {
public:
  Searcher(const Estimator &model, const Candidate &asked) : model(model), asked(asked), budget(*asked.budgetBytes) {}

  llvm::Expected<JointSearch> run() {
    // One rank alone holds everything, whatever the strategy.
    for (Strategy strategy : knownStrategies())
      if (asked.worldSize > 1 || strategy == Strategy::fullShard)
        tryStrategy(strategy);
    if (result.points.empty())
      return lastError ? std::move(lastError) : llvm::createStringError("--strategy auto: nothing can be planned");
    llvm::consumeError(std::move(lastError));
    chooseWinner();
    // One option may add to the gain of another, so this repeats until the winner stays.
    for (std::optional<size_t> before; before != result.winner;) {
      before = result.winner;
      tryOffload();
      chooseWinner();
    }
    if (result.fits)
      keepUnitsGathered();
    tryKnobs();
    result.fits = fits(result.winner);
    return std::move(result);
  }

private:
  bool mayChooseCheckpointing() const { return !asked.isGiven<&Candidate::checkpointing>(); }

  void tryStrategy(Strategy strategy) {
    std::optional<Candidate> candidate = asked.with(strategy, asked.worldSize);
    if (!candidate)
      return;
    std::optional<size_t> plain = plan(*candidate);
    if (!plain || fits(*plain) || !mayChooseCheckpointing())
      return;
    for (ActivationCheckpointing mode :
         {ActivationCheckpointing::selective, ActivationCheckpointing::full, ActivationCheckpointing::budget}) {
      candidate->checkpointing = mode;
      plan(*candidate);
    }
  }

  /// Tries variants of the best plan so far: with and without recomputation, and with more of its data on the host. If
  /// nothing fits, the smallest plan is the base.
  void tryOffload() {
    const Candidate base = result.points[result.winner].plan;
    const bool isWanted = !fits(result.winner) || base.checkpointing != ActivationCheckpointing::none;
    if (!isWanted)
      return;
    llvm::SmallVector<ActivationCheckpointing, 2> modes = {base.checkpointing};
    if (modes[0] != ActivationCheckpointing::none && mayChooseCheckpointing())
      modes.push_back(ActivationCheckpointing::none);
    const Offloading ways[] = {
        {&Candidate::offloadsOptimizer, asked.isGiven<&Candidate::offloadsOptimizer>() || base.offloadsParams},
        {&Candidate::offloadsActivations, asked.isGiven<&Candidate::offloadsActivations>()},
        {&Candidate::offloadsParams, asked.isGiven<&Candidate::offloadsParams>()}};
    for (const Offloading &way : ways) {
      if (way.isGiven || base.*way.flag)
        continue;
      for (ActivationCheckpointing mode : modes)
        plan(offloaded(base, way, mode));
    }
  }

  Candidate offloaded(const Candidate &base, const Offloading &way, ActivationCheckpointing mode) const {
    Candidate changed = base;
    changed.checkpointing = mode;
    if (mode != ActivationCheckpointing::budget)
      changed.keptShare = std::nullopt;
    changed.*way.flag = true;
    if (!asked.isGiven<&Candidate::offloadShare>())
      changed.offloadShare = std::nullopt;
    return changed;
  }

  /// Returns the index of the new point, or nothing if this candidate cannot be planned.
  std::optional<size_t> plan(Candidate candidate) {
    if (searchesShares(candidate))
      if (llvm::Error error = settleShares(model, candidate))
        return refused(std::move(error));
    llvm::Expected<Estimate> estimate = model.plan(candidate);
    if (!estimate)
      return refused(estimate.takeError());
    std::string choices = candidate.describe(asked);
    result.points.push_back({std::move(choices), std::move(candidate), std::move(*estimate)});
    return result.points.size() - 1;
  }

  std::nullopt_t refused(llvm::Error error) {
    llvm::consumeError(std::move(lastError));
    lastError = std::move(error);
    return std::nullopt;
  }

  bool fits(size_t point) const { return result.points[point].estimate.memory.totalBytes <= budget; }
  double time(size_t point) const { return result.points[point].estimate.stepMicroseconds; }
  int64_t bytes(size_t point) const { return result.points[point].estimate.memory.totalBytes; }

  /// Of two plans that fit, the faster is better, of two equally fast ones the smaller. Of two that do not fit, the
  /// smaller is better.
  bool isBetter(size_t a, size_t b) const {
    if (fits(a) != fits(b))
      return fits(a);
    if (!fits(a))
      return bytes(a) < bytes(b);
    if (std::abs(time(a) - time(b)) > worthwhile * time(b))
      return time(a) < time(b);
    return bytes(a) < bytes(b);
  }

  void chooseWinner() {
    for (size_t i = 0; i < result.points.size(); ++i)
      if (isBetter(i, result.winner))
        result.winner = i;
    result.fits = fits(result.winner);
  }

  bool wins(std::optional<size_t> point) {
    bool isNew = point && isBetter(*point, result.winner);
    if (isNew)
      result.winner = *point;
    return isNew;
  }

  /// If gathering again costs time, keeps the first units gathered from forward to backward, as many as fit.
  void keepUnitsGathered() {
    const SearchPoint base = result.points[result.winner];
    bool regathers = base.plan.strategy == Strategy::fullShard || base.plan.strategy == Strategy::hybridShard;
    const std::vector<std::string> &units = base.estimate.units;
    if (!regathers || base.estimate.exposedMicroseconds < worthwhile * base.estimate.stepMicroseconds || units.empty())
      return;
    size_t most = 0;
    for (size_t step = llvm::bit_floor(units.size()); step > 0; step /= 2) {
      if (most + step > units.size())
        continue;
      Candidate kept = base.plan;
      kept.keptUnits = llvm::ArrayRef(units).take_front(most + step).vec();
      std::optional<size_t> point = plan(std::move(kept));
      if (point && fits(*point)) {
        most += step;
        wins(point);
      }
    }
  }

  void tryKnobs() {
    for (const Knob &knob : knobsFor(asked)) {
      if (knob.isFixed)
        continue;
      for (const auto &turn : knob.turns) {
        Candidate turned = result.points[result.winner].plan;
        turn(turned);
        const std::optional<size_t> point = plan(std::move(turned));
        if (wins(point) || (!point && knob.needsFirst))
          break;
      }
    }
  }

  const Estimator &model;
  const Candidate &asked;
  const int64_t budget;
  JointSearch result;
  llvm::Error lastError = llvm::Error::success();
};

std::string milliseconds(double microseconds) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.2f", microseconds * 1e-3);
  return text;
}

/// The Pareto points, smallest first, each faster than all before it, and the winner.
std::vector<size_t> paretoPoints(const JointSearch &search) {
  std::vector<size_t> order(search.points.size()), best;
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  auto key = [&](size_t i) {
    const Estimate &estimate = search.points[i].estimate;
    return std::pair(estimate.memory.totalBytes, estimate.stepMicroseconds);
  };
  llvm::stable_sort(order, [&](size_t a, size_t b) { return key(a) < key(b); });
  for (size_t i : order)
    if (best.empty() || key(i).second < key(best.back()).second || i == search.winner)
      best.push_back(i);
  return best;
}

} // namespace

llvm::Expected<JointSearch> searchJointly(const Estimator &model, const Candidate &asked) {
  if (!asked.budgetBytes)
    return llvm::make_error<UsageError>("--strategy auto: --memory_budget BYTES is required, e.g. 16GiB");
  return Searcher(model, asked).run();
}

void printSearch(const JointSearch &search, int64_t budgetBytes, llvm::raw_ostream &out) {
  const SearchPoint &winner = search.points[search.winner];
  out << search.points.size() << " plans made; those that no other beats in both memory and predicted step time:\n"
      << "       memory    step ms  exposed ms   (> is chosen)\n";
  const SearchPoint *faster = nullptr;
  for (size_t i : paretoPoints(search)) {
    const SearchPoint &point = search.points[i];
    const Estimate &estimate = point.estimate;
    out << (i == search.winner ? "> " : "  ") << llvm::right_justify(bytesText(estimate.memory.totalBytes), 11)
        << llvm::right_justify(milliseconds(estimate.stepMicroseconds), 11)
        << llvm::right_justify(milliseconds(estimate.exposedMicroseconds), 12) << "  " << point.choices << '\n';
    if (!faster && estimate.memory.totalBytes > budgetBytes &&
        estimate.stepMicroseconds < winner.estimate.stepMicroseconds)
      faster = &point;
  }
  if (!search.fits) {
    out << "nothing fits in " << bytesText(budgetBytes) << "; the smallest plan is " << winner.choices << '\n';
    return;
  }
  out << "chosen: " << winner.choices << "\n  the fastest that fits in " << bytesText(budgetBytes) << ", "
      << bytesText(budgetBytes - winner.estimate.memory.totalBytes) << " below it";
  if (faster)
    out << "; " << milliseconds(winner.estimate.stepMicroseconds - faster->estimate.stepMicroseconds)
        << " ms a step could be had for " << bytesText(faster->estimate.memory.totalBytes - budgetBytes) << " more";
  out << '\n';
}

} // namespace fsdpc

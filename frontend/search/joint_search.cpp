#include "frontend/search/joint_search.h"

#include "frontend/search/memory_budget.h"
#include "frontend/search/share_search.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Regex.h"

namespace fsdpc {

namespace {

/// Less is no reason to prefer a plan: predictions are not that exact.
constexpr double worthwhile = 0.002;

/// What may be varied once a strategy is chosen, each value in turn.
struct Knob {
  llvm::StringRef option;
  llvm::SmallVector<llvm::StringRef, 3> values;
};

llvm::ArrayRef<Knob> knobs() {
  static const Knob rows[] = {{"max_inflight_all_gathers", {"3", "4", "1"}},
                              {"reduce_communicator", {"own"}},
                              {"allgather_bucket_size", {"67108864", "16777216"}},
                              {"reduce_bucket_size", {"67108864", "16777216"}},
                              {"accumulation", {"keep_gradients", "keep_parameters", "keep_both"}}};
  return rows;
}

bool isUseless(const Knob &knob, const OptionValues &asked) {
  bool isOneMicroStep = asked.integer("gradient_accumulation_steps") == 1;
  return asked.given(knob.option) || (knob.option == "accumulation" && isOneMicroStep);
}

/// What is said of a point: options that the search may change and has.
constexpr llvm::StringLiteral searched[] = {"strategy",
                                            "data_parallel_shard_degree",
                                            "activation_checkpointing",
                                            "activation_memory_budget",
                                            "offload_activations",
                                            "offload_optimizer",
                                            "offload_params",
                                            "offload_share",
                                            "max_inflight_all_gathers",
                                            "reduce_communicator",
                                            "allgather_bucket_size",
                                            "reduce_bucket_size",
                                            "accumulation"};

class Searcher {
public:
  Searcher(const Estimator &model, const OptionValues &asked, int64_t budget)
      : model(model), asked(asked), budget(budget) {}

  llvm::Expected<JointSearch> run() {
    // One rank alone holds everything, whatever the strategy.
    for (const std::string &strategy : knownStrategies())
      if (asked.integer("world_size") > 1 || strategy == "full_shard")
        tryStrategy(strategy);
    if (result.points.empty())
      return lastError ? std::move(lastError) : llvm::createStringError("--strategy auto: nothing can be planned");
    llvm::consumeError(std::move(lastError));
    chooseWinner();
    // What one option has gained another may add to.
    for (std::optional<size_t> before; before != result.winner;) {
      before = result.winner;
      tryOffload();
      chooseWinner();
    }
    if (result.fits)
      keepUnitsGathered();
    turnKnobs();
    result.fits = fits(result.winner);
    return std::move(result);
  }

private:
  void tryStrategy(llvm::StringRef strategy) {
    OptionValues values = asked;
    if (!choosePlan(values, strategy, asked.integer("world_size")))
      return;
    std::optional<size_t> plain = plan(values);
    bool mayRecompute = !asked.given("activation_checkpointing");
    if (!plain || fits(*plain) || !mayRecompute)
      return;
    for (llvm::StringRef mode : {"selective", "full", "budget"}) {
      values.resolve("activation_checkpointing", mode.str());
      plan(values);
    }
  }

  /// Beside the plan that is best so far: the same without what backward computes again, or with it, and what does not
  /// fit on the host. Where nothing fits, the smallest plan decides.
  void tryOffload() {
    const OptionValues base = result.points[result.winner].values;
    const bool isWanted = !fits(result.winner) || base.text("activation_checkpointing") != "none";
    if (!isWanted)
      return;
    llvm::SmallVector<std::string, 2> modes = {base.text("activation_checkpointing").str()};
    if (modes[0] != "none" && !asked.given("activation_checkpointing"))
      modes.push_back("none");
    for (llvm::StringRef option : {"offload_optimizer", "offload_activations", "offload_params"}) {
      bool isIncluded = base.flag(option) || (option == "offload_optimizer" && base.flag("offload_params"));
      if (asked.given(option) || isIncluded)
        continue;
      for (const std::string &mode : modes) {
        OptionValues values = base;
        values.resolve("activation_checkpointing", mode);
        if (mode != "budget")
          values.resolve("activation_memory_budget", defaultOf("activation_memory_budget").str());
        values.resolve(option, "true");
        if (!asked.given("offload_share"))
          values.resolve("offload_share", defaultOf("offload_share").str());
        plan(std::move(values));
      }
    }
  }

  /// The index of the new point; nothing if these options cannot be planned.
  std::optional<size_t> plan(OptionValues values) {
    if (searchesShares(values))
      if (llvm::Error error = settleShares(model, values))
        return refused(std::move(error));
    llvm::Expected<Estimate> estimate = model.plan(values);
    if (!estimate)
      return refused(estimate.takeError());
    std::string choices = describe(values);
    result.points.push_back({std::move(choices), std::move(values), std::move(*estimate)});
    return result.points.size() - 1;
  }

  std::nullopt_t refused(llvm::Error error) {
    llvm::consumeError(std::move(lastError));
    lastError = std::move(error);
    return std::nullopt;
  }

  std::string describe(const OptionValues &values) const {
    std::string text;
    llvm::raw_string_ostream out(text);
    llvm::ListSeparator space(" ");
    for (llvm::StringRef name : searched)
      if (name == "strategy" || (values.text(name) != asked.text(name) && values.text(name) != defaultOf(name)))
        out << space << "--" << name << (values.text(name) == "true" ? "" : " " + values.text(name).str());
    for (llvm::StringRef unit : values.list("unit").drop_front(asked.list("unit").size()))
      out << space << "--unit '" << unit << '\'';
    return text;
  }

  bool fits(size_t point) const { return result.points[point].estimate.memory.totalBytes <= budget; }
  double time(size_t point) const { return result.points[point].estimate.stepMicroseconds; }
  int64_t bytes(size_t point) const { return result.points[point].estimate.memory.totalBytes; }

  /// Of two that fit the faster, of two as fast the smaller; of two that do not the smaller.
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

  /// Where gathering again costs time, the first units stay gathered from forward to backward: as many as fit.
  void keepUnitsGathered() {
    const SearchPoint base = result.points[result.winner];
    bool regathers = base.estimate.strategy == "full_shard" || base.estimate.strategy == "hybrid_shard";
    const std::vector<std::string> &units = base.estimate.units;
    if (!regathers || base.estimate.exposedMicroseconds < worthwhile * base.estimate.stepMicroseconds || units.empty())
      return;
    size_t most = 0;
    for (size_t step = llvm::bit_floor(units.size()); step > 0; step /= 2) {
      if (most + step > units.size())
        continue;
      OptionValues values = base.values;
      values.append("unit", patternOf(llvm::ArrayRef(units).take_front(most + step)) + ":reshard_after_forward=never");
      std::optional<size_t> point = plan(std::move(values));
      if (point && fits(*point)) {
        most += step;
        wins(point);
      }
    }
  }

  static std::string patternOf(llvm::ArrayRef<std::string> units) {
    std::vector<std::string> escaped;
    for (const std::string &unit : units)
      escaped.push_back(llvm::Regex::escape(unit));
    return llvm::join(escaped, "|");
  }

  void turnKnobs() {
    for (const Knob &knob : knobs()) {
      if (isUseless(knob, asked))
        continue;
      for (llvm::StringRef value : knob.values) {
        OptionValues values = result.points[result.winner].values;
        values.resolve(knob.option, value.str());
        if (wins(plan(std::move(values))))
          break;
      }
    }
  }

  const Estimator &model;
  const OptionValues &asked;
  const int64_t budget;
  JointSearch result;
  llvm::Error lastError = llvm::Error::success();
};

std::string milliseconds(double microseconds) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.2f", microseconds * 1e-3);
  return text;
}

/// Smallest first, each faster than all before it; and the winner.
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

llvm::Expected<JointSearch> searchJointly(const Estimator &model, const OptionValues &values) {
  llvm::Expected<std::optional<int64_t>> budget = memoryBudget(values);
  if (!budget)
    return budget.takeError();
  if (!*budget)
    return llvm::make_error<UsageError>("--strategy auto: --memory_budget BYTES is required, e.g. 16GiB");
  return Searcher(model, values, **budget).run();
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

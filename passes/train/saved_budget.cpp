#include "passes/train/saved_budget.h"

#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

constexpr int64_t maxSteps = 4096;    ///< of the budget
constexpr int64_t maxCells = 1 << 25; ///< of the table; with more regions the steps are larger

/// The knapsack: table[r][b] is the point of the r-th region in the fastest choice for the first r + 1 regions with b
/// steps together.
class Knapsack {
public:
  Knapsack(std::vector<const std::vector<SavedPoint> *> pointsOf) : pointsOf(std::move(pointsOf)) {
    int64_t least = 0, most = 0;
    for (const std::vector<SavedPoint> *points : this->pointsOf) {
      least += points->back().bytes;
      most += points->front().bytes;
    }
    int64_t runs = std::max<int64_t>(static_cast<int64_t>(this->pointsOf.size()), 1);
    range = std::max<int64_t>(most - least, 1);
    steps = std::max<int64_t>(std::min({maxSteps, maxCells / runs, range}), 1);
  }

  std::vector<const SavedPoint *> solve(double budget) {
    auto allowed = static_cast<int64_t>(std::floor(budget * static_cast<double>(steps)));
    std::vector<double> best(static_cast<size_t>(allowed) + 1, 0);
    std::vector<std::vector<uint16_t>> table;
    for (const std::vector<SavedPoint> *points : pointsOf)
      table.push_back(addForwardRegion(*points, best));
    std::vector<const SavedPoint *> choices(pointsOf.size());
    int64_t left = allowed;
    for (size_t run = pointsOf.size(); run-- > 0;) {
      const std::vector<SavedPoint> &points = *pointsOf[run];
      const SavedPoint &point = points[table[run][static_cast<size_t>(left)]];
      choices[run] = &point;
      left -= stepsOf(point, points);
    }
    return choices;
  }

private:
  int64_t stepsOf(const SavedPoint &point, const std::vector<SavedPoint> &points) const {
    auto scaled = static_cast<__int128>(point.bytes - points.back().bytes) * steps;
    return static_cast<int64_t>((scaled + range - 1) / range);
  }

  /// `best[b]` is the least time with b steps, before and after.
  std::vector<uint16_t> addForwardRegion(const std::vector<SavedPoint> &points, std::vector<double> &best) const {
    std::vector<double> next(best.size(), std::numeric_limits<double>::infinity());
    std::vector<uint16_t> chosen(best.size(), 0);
    for (size_t i = 0; i < points.size(); ++i) {
      auto taken = static_cast<size_t>(stepsOf(points[i], points));
      for (size_t b = taken; b < best.size(); ++b)
        if (double time = best[b - taken] + points[i].microseconds; time < next[b]) {
          next[b] = time;
          chosen[b] = static_cast<uint16_t>(i);
        }
    }
    best = std::move(next);
    return chosen;
  }

  std::vector<const std::vector<SavedPoint> *> pointsOf;
  int64_t steps = 1;
  int64_t range = 1; ///< bytes between the minimum and keeping everything
};

} // namespace

std::vector<const SavedPoint *> choosePoints(llvm::ArrayRef<ForwardRegion> runs, const Target &target, double budget,
                                             PointsBySignature &points) {
  std::vector<const std::vector<SavedPoint> *> pointsOf;
  for (const ForwardRegion &run : runs) {
    auto [entry, isNew] = points.try_emplace(signatureOf(run, target));
    if (isNew)
      entry->second = savedPoints(run, target);
    pointsOf.push_back(&entry->second);
  }
  if (budget < 1)
    return Knapsack(std::move(pointsOf)).solve(budget);
  std::vector<const SavedPoint *> fastest;
  for (const std::vector<SavedPoint> *all : pointsOf)
    fastest.push_back(&all->front());
  return fastest;
}

} // namespace fsdpc

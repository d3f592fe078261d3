// The ranges of the options of optimizers and losses: the values for which torch.optim's formulas are meaningful.
#include "frontend/options/resolve.h"

#include <cmath>

namespace fsdpc {

namespace {

struct Range {
  llvm::StringRef name;
  double least, most;
  bool isOpen; ///< `most` itself is outside
};

constexpr double unbounded = std::numeric_limits<float>::max();

// runtime/common/scalar_ranges.h has the same ranges for scalars that a program's command line changes.
constexpr Range ranges[] = {
    {"lr", 0, unbounded, false},
    {"beta1", 0, 1, true},
    {"beta2", 0, 1, true},
    {"eps", 0, unbounded, false},
    {"weight_decay", 0, unbounded, false},
    {"momentum", 0, unbounded, false},
    {"dampening", 0, 1, false},
    {"rho", 0, 1, false},
    {"alpha", 0, 1, false},
    {"lr_decay", 0, unbounded, false},
    {"ema_decay", 0, 1, true},
    {"initial_accumulator_value", 0, unbounded, false},
    {"label_smoothing", 0, 1, false},
};

std::string textOf(const Range &range) {
  if (range.most == unbounded)
    return "a number of at least 0 that f32 has";
  return range.isOpen ? "from 0 to below 1" : "from 0 to 1";
}

} // namespace

llvm::Error checkRange(llvm::StringRef name, double value, llvm::StringRef option, llvm::StringRef text) {
  for (const Range &range : ranges)
    if (range.name == name && !(value >= range.least && (range.isOpen ? value < range.most : value <= range.most)))
      return llvm::make_error<UsageError>(("--" + option + " " + text + ": expected " + textOf(range)).str());
  return llvm::Error::success();
}

} // namespace fsdpc

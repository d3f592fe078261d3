// --early_stopping N: a run ends when N evaluations in a row were no better than the best before them.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/evaluation.h"
#include "runtime/common/options.h"

namespace fsdpc::rt {

class EarlyStopping {
public:
  /// Goes on from `resumed`. The metric is that of --save_best, by default val_loss.
  EarlyStopping(const Options &options, const EvaluationHistory &resumed)
      : patience(options.earlyStopping.value_or(0)), metric(options.saveBest), past(resumed) {}

  void note(const EvaluationResult &result) {
    const double value = result.metric(metric);
    const bool isBest = past.count == 0 || isBetter(metric, value, past.best);
    ++past.count;
    past.sinceBest = isBest ? 0 : past.sinceBest + 1;
    past.best = isBest ? value : past.best;
  }
  bool isOver() const { return patience > 0 && past.sinceBest >= patience; }
  const EvaluationHistory &history() const { return past; } ///< for a checkpoint

private:
  std::int64_t patience;   ///< 0: never ends a run
  std::string_view metric; ///< of the options, which outlive this
  EvaluationHistory past;
};

} // namespace fsdpc::rt

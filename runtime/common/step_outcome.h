// What a training step tells about itself: its loss and, where updates are guarded, what guarded this one.
#pragma once

#include "runtime/common/scalars.h"

#include <optional>

namespace fsdpc::rt {

struct StepOutcome {
  double loss = 0;
  std::optional<double> gradientNorm; ///< of all gradients together, before clipping; where updates are guarded
  bool applied = true;                ///< otherwise parameters and optimizer state are as they were
  std::optional<double> nextLossScale;
  bool lossScaleExhausted = false; ///< the loss scale should have been halved, but is as low as it gets
};

/// The outcome of the step that is under way. Where the device is not the host, fetching waits for nothing: a replayed
/// step does it by itself, and `value` waits.
class PendingOutcome {
public:
  /// Throws Failure{internal} for a program that reports no loss.
  PendingOutcome(const ProgramInfo &program, const Context &context);
  bool isGuarded() const { return applied.has_value(); }
  void fetchLoss() { loss.fetch(); } ///< behind micro_step
  void fetchUpdate();                ///< behind update
  /// Of a step whose update has not been called; nullopt where only the device knows it.
  std::optional<double> knownLoss() const { return loss.isKnown() ? std::optional(loss.value()) : std::nullopt; }
  StepOutcome value() const;

private:
  PendingResult loss;
  std::optional<PendingResult> gradientNorm, applied, nextLossScale, lossScaleExhausted;
};

} // namespace fsdpc::rt

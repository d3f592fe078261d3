// The outcome of a training step: its loss and, if updates are guarded, the results of the guard.
#pragma once

#include "runtime/common/scalars.h"

#include <optional>

namespace fsdpc::rt {

struct StepOutcome {
  double loss = 0;
  std::optional<double> gradientNorm; ///< of all gradients, before clipping; set if updates are guarded
  bool applied = true;                ///< if false, parameters and optimizer state are unchanged
  std::optional<double> nextLossScale;
  bool lossScaleExhausted = false; ///< the loss scale should have been halved, but is already at its minimum
};

/// The outcome of the current step. If the device is not the host, a fetch does not wait, and `value` does. A replayed
/// step contains the fetches.
class PendingOutcome {
public:
  /// Throws Failure{internal} for a program that reports no loss.
  PendingOutcome(const ProgramInfo &program, const Context &context);
  bool isGuarded() const { return applied.has_value(); }
  void fetchLoss() { loss.fetch(); } ///< call after micro_step
  void fetchUpdate();                ///< call after update
  /// The loss before the update is called; nullopt if only the device knows it.
  std::optional<double> knownLoss() const { return loss.isKnown() ? std::optional(loss.value()) : std::nullopt; }
  StepOutcome value() const;

private:
  PendingResult loss;
  std::optional<PendingResult> gradientNorm, applied, nextLossScale, lossScaleExhausted;
};

} // namespace fsdpc::rt

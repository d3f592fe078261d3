#include "runtime/common/step_outcome.h"

#include "runtime/common/failure.h"

namespace fsdpc::rt {
namespace {

const ResultInfo &requiredResult(const ProgramInfo &program, std::string_view name) {
  const ResultInfo *result = findResult(program.stepResults, name);
  if (!result)
    throw Failure(ExitCode::internal, "the training loop drives programs that report a loss");
  return *result;
}

} // namespace

PendingOutcome::PendingOutcome(const ProgramInfo &program, const Context &context)
    : loss(context, requiredResult(program, "loss")) {
  std::size_t which = 0;
  const auto find = [&](std::optional<PendingResult> &pending, std::string_view name) {
    if (const ResultInfo *result = findResult(program.stepResults, name))
      pending.emplace(context, *result, ++which);
  };
  find(gradientNorm, "grad_norm");
  find(applied, "applied");
  find(nextLossScale, "next_loss_scale");
  find(lossScaleExhausted, "loss_scale_exhausted");
}

void PendingOutcome::fetchUpdate() {
  for (std::optional<PendingResult> *pending : {&gradientNorm, &applied, &nextLossScale, &lossScaleExhausted})
    if (*pending)
      (*pending)->fetch();
}

StepOutcome PendingOutcome::value() const {
  const auto read = [](const std::optional<PendingResult> &pending) {
    return pending ? std::optional(pending->value()) : std::nullopt;
  };
  return {loss.value(), read(gradientNorm), read(applied).value_or(1) != 0, read(nextLossScale),
          read(lossScaleExhausted).value_or(0) != 0};
}

} // namespace fsdpc::rt

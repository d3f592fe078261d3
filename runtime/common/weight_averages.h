// Moving averages of the weights (--ema_decay of the compiler): optimizer state that is called "ema".
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

inline constexpr const char *averageField = "ema";

bool keepsAverages(const ProgramInfo &program);

/// Makes every average the weight itself, so that an evaluation before the first step is one of the model. Requires:
/// the weights have their initial values.
void startAverages(const ProgramInfo &program, const Context &context);

} // namespace fsdpc::rt

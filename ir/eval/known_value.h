// Values that depend on constants alone, evaluated where somebody wants to know them.
#pragma once

#include "ir/eval/evaluate.h"

#include <optional>

namespace fsdpc {

/// All elements of a value that is computed from constants alone; nullopt for anything else, for null, and if the value
/// or one that it is made from has more than `maxElements`.
std::optional<HostTensor> knownValue(const Value *value, int64_t maxElements = int64_t(1) << 24);

} // namespace fsdpc

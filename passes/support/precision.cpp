#include "passes/support/precision.h"

namespace fsdpc {

DType paramDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options) {
  return (unit < 0 ? std::nullopt : module.units[unit].choices.paramDType).value_or(options.paramDType);
}

DType reduceDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options) {
  if (options.worldSize == 1)
    return DType::f32;
  return (unit < 0 ? std::nullopt : module.units[unit].choices.reduceDType).value_or(options.reduceDType);
}

} // namespace fsdpc

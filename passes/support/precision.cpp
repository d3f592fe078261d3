#include "passes/support/precision.h"

namespace fsdpc {

DType dtypeOfOption(llvm::StringRef text) {
  return text == "bf16" ? DType::bf16 : text == "fp16" ? DType::f16 : DType::f32;
}

DType paramDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options) {
  llvm::StringRef own = unit < 0 ? llvm::StringRef() : llvm::StringRef(module.units[unit].paramDType);
  return own.empty() ? options.paramDType : dtypeOfOption(own);
}

DType reduceDTypeOf(const Module &module, int32_t unit, const PipelineOptions &options) {
  if (options.worldSize == 1)
    return DType::f32;
  llvm::StringRef own = unit < 0 ? llvm::StringRef() : llvm::StringRef(module.units[unit].reduceDType);
  return own.empty() ? options.reduceDType : dtypeOfOption(own);
}

bool hasSixteenBits(DType dtype) { return isFloat(dtype) && byteSize(dtype) == 2; }

} // namespace fsdpc

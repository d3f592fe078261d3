#include "codegen/cpu/dialect.h"
#include "codegen/cuda/dialect.h"
#include "codegen/emit.h"

namespace fsdpc {

const Dialect &dialectOf(llvm::StringRef target) {
  const Dialect *const dialects[] = {&cpuDialect(), &cudaDialect()};
  for (const Dialect *dialect : dialects)
    if (dialect->name() == target)
      return *dialect;
  llvm_unreachable("targets have a dialect each");
}

} // namespace fsdpc

// A pass: a name, the stages before and after it, and a function. The runner (runner.h) does everything else.
#pragma once

#include "ir/module.h"
#include "ir/target.h"
#include "passes/options.h"
#include "llvm/Support/Error.h"
#include <array>

namespace fsdpc {

struct PassContext {
  const PipelineOptions &options;
  const Target &target;
  std::vector<std::string> &remarks; ///< messages for the user; the driver prints them
};

/// A set of functions of a module.
class FunctionSet {
public:
  template <class... Kinds>
    requires(std::is_same_v<Kinds, FunctionKind> && ...)
  constexpr FunctionSet(Kinds... kinds)
      : bits(static_cast<uint16_t>(((1u << static_cast<unsigned>(kinds)) | ... | 0u))) {}
  constexpr bool contains(FunctionKind kind) const { return bits >> static_cast<unsigned>(kind) & 1; }

private:
  uint16_t bits;
};

struct Pass {
  llvm::StringRef name; ///< snake_case: --passes=insert_gathers
  Stage from;
  Stage to;
  bool optional; ///< the program is still correct if this pass alone is skipped
  llvm::Error (*run)(Module &module, const PassContext &context);
  FunctionSet functions = {};                  ///< functions that `run` requires; the runner checks them
  std::array<llvm::StringRef, 2> results = {}; ///< results of micro_step that it requires; "": none
  FunctionSet added = {};                      ///< functions that it adds; the module must not have them yet
};

} // namespace fsdpc

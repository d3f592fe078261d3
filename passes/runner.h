// Runs passes: verification after each, dumps, timing, skipping, and a reproducer when a pass breaks the module.
#pragma once

#include "passes/pass.h"
#include <functional>

namespace fsdpc {

struct RunnerOptions {
  std::optional<Stage> stopAfter;       ///< --compile_to
  const Pass *stopBefore = nullptr;     ///< a later call with the module continues with this pass
  std::vector<std::string> only;        ///< --passes: exactly these, in this order
  std::vector<std::string> skip;        ///< --skip
  std::vector<std::string> printBefore; ///< --print_ir_before
  std::vector<std::string> printAfter;  ///< --print_ir_after
  bool printAfterAll = false;
  std::string dumpDirectory;  ///< --dump_dir: NN-<pass>.fsir where the text changed, plus index.json
  std::string reproducerPath; ///< where the text before a failing pass is written
  /// Called with a copy of the module before each pass, so that even a crashing pass leaves a reproducer. The copy
  /// lives until the next call or the end of the run. Only with a reproducerPath.
  std::function<void(llvm::StringRef pass, const Module &before)> beforePass;
};

struct PassTime {
  std::string pass;
  double milliseconds;
};

/// Called with the module at the end of each stage: before a pass that changes the stage, and at the end (for
/// OUT/stages).
using StageObserver = std::function<void(Stage, const Module &)>;

/// Runs the pipeline (or `only`) on the module, starting at the module's stage. User errors are returned unchanged. A
/// module that fails verification after a pass is an internal error: InternalError, with a reproducer written.
llvm::Error runPasses(Module &module, const PassContext &context, const RunnerOptions &options,
                      std::vector<PassTime> &times, const StageObserver &observer = nullptr);

/// A bug in fsdpc: exit 70.
class InternalError : public llvm::ErrorInfo<InternalError> {
public:
  static char ID;
  InternalError(std::string message, std::string reproducer)
      : message(std::move(message)), reproducer(std::move(reproducer)) {}
  void log(llvm::raw_ostream &out) const override;
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

private:
  std::string message, reproducer;
};

} // namespace fsdpc

// Modules written by hand may lack what a pass needs. Each pass then ends with an error that names it, never with a
// crash.
#include "ir/text/text.h"
#include "passes/pipeline.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"
#include "llvm/Support/MemoryBufferRef.h"
#include <gmock/gmock.h>
#include <vector>

namespace fsdpc {
namespace {

using testing::HasSubstr;

/// The error of one pass alone on the module, "" if it succeeds.
std::string errorOf(const Pass &pass, const std::string &text) {
  llvm::Expected<std::unique_ptr<Module>> module = parse(llvm::MemoryBufferRef(text, "text"));
  if (!module)
    return "cannot read: " + toString(module.takeError());
  PipelineOptions options;
  options.optimizer.scalars = {{"lr", 0.1}, {"weight_decay", 0}, {"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-3}};
  PlainTarget target;
  std::vector<std::string> remarks;
  RunnerOptions runner;
  runner.only = {pass.name.str()};
  std::vector<PassTime> times;
  return toString(runPasses(**module, PassContext{options, target, remarks}, runner, times));
}

std::string moduleOf(const Pass &pass, llvm::ArrayRef<FunctionKind> functions) {
  std::string text = "module @m stage(" + nameOf(pass.from).str() + ")\n";
  for (FunctionKind kind : functions)
    text += "func @" + nameOf(kind).str() + "() {\n  return\n}\n";
  return text;
}

TEST(PassNeeds, FunctionsThatAreMissingAreNamed) {
  for (const Pass *pass : pipeline()) {
    const bool needsSome =
        llvm::any_of(allFunctionKinds, [&](FunctionKind kind) { return pass->functions.contains(kind); });
    const std::string error = errorOf(*pass, moduleOf(*pass, {}));
    if (needsSome)
      EXPECT_THAT(error, HasSubstr("pass " + pass->name.str() + " needs the function "));
    else
      EXPECT_EQ(error, "") << pass->name.str();
  }
}

TEST(PassNeeds, EmptyFunctionsDoNotCrash) {
  for (const Pass *pass : pipeline()) {
    std::vector<FunctionKind> functions;
    for (FunctionKind kind : allFunctionKinds)
      if ((pass->from == Stage::graph) == (kind == FunctionKind::forward) && !pass->added.contains(kind))
        functions.push_back(kind);
    EXPECT_THAT(errorOf(*pass, moduleOf(*pass, functions)), testing::Not(HasSubstr("cannot read"))) << pass->name.str();
  }
}

TEST(PassNeeds, FunctionsThatThePassAddsAreNamed) {
  EXPECT_THAT(errorOf(*findPass("append_optimizer"),
                      moduleOf(*findPass("append_optimizer"), {FunctionKind::microStep, FunctionKind::tapGradients})),
              HasSubstr("pass append_optimizer adds the function tap_gradients, which the module already has"));
}

} // namespace
} // namespace fsdpc

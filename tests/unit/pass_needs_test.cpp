// Modules written by hand may lack what a pass needs. Each pass then ends with an error that names it, never with a
// crash.
#include "ir/text/text.h"
#include "passes/pipeline.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"
#include "llvm/Support/MemoryBufferRef.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::AnyOf;
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
    const bool needsNone =
        llvm::none_of(allFunctionKinds, [&](FunctionKind kind) { return pass->functions.contains(kind); });
    EXPECT_THAT(errorOf(*pass, moduleOf(*pass, {})),
                needsNone ? testing::Eq("") : HasSubstr("pass " + pass->name.str() + " needs the function "))
        << pass->name.str();
  }
}

TEST(PassNeeds, EmptyFunctionsDoNotCrash) {
  for (const Pass *pass : pipeline()) {
    llvm::SmallVector<FunctionKind, 8> functions(allFunctionKinds);
    llvm::erase_if(functions,
                   [&](FunctionKind kind) { return (pass->from == Stage::graph) != (kind == FunctionKind::forward); });
    EXPECT_THAT(errorOf(*pass, moduleOf(*pass, functions)), testing::Not(HasSubstr("cannot read"))) << pass->name.str();
  }
}

TEST(PassNeeds, AGradientWithoutItsParameterIsNamed) {
  EXPECT_THAT(errorOf(*findPass("append_optimizer"), "module @m stage(train)\nfunc @micro_step(%x: f32[2] input) {\n"
                                                     "  return %x results(\"grad.w\")\n}\n"),
              HasSubstr("micro_step returns 'grad.w', but there is no parameter 'w'"));
}

} // namespace
} // namespace fsdpc

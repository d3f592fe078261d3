// A clone prints like its original at every stage, and changes to the clone do not affect the original.
#include "frontend/driver/compile.h"
#include "ir/builder.h"
#include "ir/clone.h"
#include "ir/text/text.h"

#include <gtest/gtest.h>

namespace fsdpc {
namespace {

class Clone : public testing::TestWithParam<const char *> {
protected:
  std::map<Stage, std::unique_ptr<Module>> stages() {
    std::vector<std::string> words = {FSDPC_SOURCE_DIR "/tests/fixtures/mlp/model.onnx",
                                      "--world_size",
                                      "4",
                                      "--loss",
                                      "mse",
                                      "--micro_batch_size",
                                      "1"};
    for (llvm::StringRef word : llvm::split(GetParam(), ' '))
      words.push_back(word.str());
    llvm::ExitOnError orExit;
    OptionValues values = orExit(OptionValues::parse(words));
    std::map<Stage, std::unique_ptr<Module>> modules;
    for (const auto &[stage, text] : orExit(compileModule(words[0], values)).stageText)
      modules[stage] = orExit(parse(llvm::MemoryBufferRef(text, "stage")));
    return modules;
  }
};

TEST_P(Clone, PrintsAsItsOriginal) {
  for (const auto &[stage, module] : stages())
    EXPECT_EQ(toText(*clone(*module)), toText(*module)) << nameOf(stage).str();
}

TEST_P(Clone, IsChangedAlone) {
  for (const auto &[stage, module] : stages()) {
    const std::string before = toText(*module);
    std::unique_ptr<Module> copy = clone(*module);
    copy->states.front().onHost = true;
    copy->parameters.front().name = "other";
    for (const std::unique_ptr<Function> &function : copy->functions)
      for (Node *node : *function)
        if (node->op() == Op::ret)
          node->erase();
        else
          node->source = "other";
    EXPECT_EQ(toText(*module), before) << nameOf(stage).str();
    copy.reset();
    EXPECT_EQ(toText(*module), before) << nameOf(stage).str();
  }
}

INSTANTIATE_TEST_SUITE_P(Options, Clone,
                         testing::Values("--target cpu",
                                         "--target cuda --strategy hybrid_shard --data_parallel_shard_degree 2 "
                                         "--activation_checkpointing full --reduce_communicator own",
                                         "--target cuda --offload_params --offload_activations --mixed_precision bf16 "
                                         "--gradient_accumulation_steps 2",
                                         "--target cpu --strategy shard_optimizer --mixed_precision fp16"));

} // namespace
} // namespace fsdpc

// The schedule checker on gradient norms. In a planned update that is otherwise right, every gradient must count once
// in the norm and be summed over exactly the ranks that it is split over.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "passes/check/check_schedule.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"
#include "tests/unit/small_net.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::HasSubstr;

struct Program {
  std::unique_ptr<Module> train, planned;

  Node *first(Op op) const {
    for (Node *node : *planned->function(FunctionKind::update))
      if (node->op() == op)
        return node;
    return nullptr;
  }
  std::string fault() const {
    llvm::Error error = checkAgainstTrain(*train, *planned);
    return error ? toString(std::move(error)) : "";
  }
};

/// Hybrid: 2 replicas of 2 ranks. The first unit is unsharded on every rank.
Program program() {
  PipelineOptions options;
  options.worldSize = 4;
  options.microBatchSize = 3;
  options.loss.kind = LossKind::crossEntropy;
  options.optimizer.kind = OptimizerKind::sgd;
  options.optimizer.scalars = {{"lr", 0.1}};
  options.optimizer.maxNorm = 1;
  options.choices.strategy = Strategy::hybridShard;
  options.shardDegree = 2;
  options.replicateDegree = 2;
  Program program;
  program.planned = SmallNet::make(options.microBatchSize);
  for (Unit &unit : program.planned->units)
    unit.choices.strategy = unit.name == "first" ? Strategy::noShard : Strategy::hybridShard;
  PlainTarget target;
  std::vector<std::string> remarks;
  PassContext context{options, target, remarks};
  std::vector<PassTime> times;
  std::string train;
  llvm::Error error = runPasses(*program.planned, context, {}, times, [&](Stage stage, const Module &module) {
    if (stage == Stage::train)
      train = toText(module);
  });
  EXPECT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
  program.train = llvm::cantFail(parse(llvm::MemoryBufferRef(train, "train")));
  return program;
}

/// The sum of squares of the shards. The sum of the unsharded unit precedes it.
Node *sumOfShards(const Program &program) {
  Node *start = program.first(Op::allReduceStart);
  return start ? start->operand(0)->definer() : nullptr;
}

TEST(CheckGuard, TheRightNormPasses) { EXPECT_EQ(program().fault(), ""); }

TEST(CheckGuard, AGradientThatCountsTwiceIsRejected) {
  Program wrong = program();
  Node *sum = sumOfShards(wrong);
  sum->appendOperand(sum->operand(0));
  EXPECT_THAT(wrong.fault(), HasSubstr("(S3)"));
}

TEST(CheckGuard, AGradientThatIsLeftOutIsRejected) {
  Program wrong = program();
  Node *clip = wrong.first(Op::clipNorm), *sum = sumOfShards(wrong), *whole = clip->operand(0)->definer();
  if (whole->op() != Op::squareSum)
    whole = clip->operand(1)->definer();
  ASSERT_EQ(whole->op(), Op::squareSum);
  whole->setOperand(0, sum->operand(0));
  EXPECT_NE(wrong.fault(), "");
}

TEST(CheckGuard, APartOfTheSumIsRejected) {
  Program wrong = program();
  Node *clip = wrong.first(Op::clipNorm), *sum = sumOfShards(wrong);
  for (unsigned i = 0; i < 2; ++i)
    if (clip->operand(i)->definer()->op() == Op::wait)
      clip->setOperand(i, sum->result());
  EXPECT_THAT(wrong.fault(), HasSubstr("(S3)"));
}

TEST(CheckGuard, ASumOverOtherRanksIsRejected) {
  for (const char *axis : {"replicate", "world"}) {
    Program wrong = program();
    auto &attributes = wrong.first(Op::allReduceStart)->get<CollectiveAttributes>();
    attributes.over.name = axis;
    attributes.ranks = wrong.planned->axis(axis)->size;
    EXPECT_THAT(wrong.fault(), testing::AnyOf(HasSubstr("result 'grad_norm' differs from the train module's"),
                                              HasSubstr("the parts do not belong together")))
        << axis;
  }
}

TEST(CheckGuard, ASumOfWhatIsWholeOnEveryRankIsRejected) {
  Program wrong = program();
  Node *clip = wrong.first(Op::clipNorm);
  for (unsigned i = 0; i < 2; ++i)
    if (clip->operand(i)->definer()->op() == Op::squareSum) {
      Builder builder(*wrong.planned->function(FunctionKind::update), clip);
      CollectiveAttributes over{{"world"}, 4, 99};
      Node *start = builder.create(Op::allReduceStart, {clip->operand(i)}, over);
      clip->setOperand(i, builder.create(Op::wait, {start->result()})->result());
    }
  EXPECT_THAT(wrong.fault(), HasSubstr("result 'grad_norm' differs from the train module's"));
}

TEST(CheckGuard, AnUnscaledOptimizerIsRejected) {
  Program wrong = program();
  Node *clip = wrong.first(Op::clipNorm), *optimizer = wrong.first(Op::sgd);
  optimizer->setOperand(optimizer->operandCount() - 2, clip->result(0));
  EXPECT_NE(wrong.fault(), "");
}

} // namespace
} // namespace fsdpc

// State, memory and the ends of a function: read, write, tap, view, pack, copy, free, return.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <limits>

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

State parameterState(llvm::StringRef name, Type type) {
  State state;
  state.name = name.str();
  state.role = StateRole::parameter;
  state.type = std::move(type);
  return state;
}

/// update: w = -w, returns the old w as `old` and the value read after the write as `new`.
void buildNegation(Module &module) {
  module.stage = Stage::train;
  State &w = module.addState(parameterState("w", f32({3})));
  Builder builder(*module.addFunction(FunctionKind::update));
  Value *old = builder.readState(w);
  builder.writeState(w, builder.unary(Op::neg, old));
  builder.ret({old, builder.readState(w)}, {"old", "new"});
}

struct StateRun {
  RankResults results;
  std::map<std::string, HostTensor> parameters, taps;
};

StateRun runOnOneRank(const Module &module, llvm::ArrayRef<FunctionKind> kinds,
                      const std::map<std::string, HostTensor> &parameters) {
  recordExercisedOps(module);
  StateRun run;
  EvaluationState state = makeEvaluationState(module, parameters);
  llvm::Expected<RankResults> results = evaluate(module, kinds, {{}}, state, &run.taps);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return run;
  }
  run.results = std::move(*results);
  run.parameters = fullParameters(module, state);
  return run;
}

OP_TEST(read, SeesTheVersionOfItsPlaceInTheOrder) {
  Module module;
  buildNegation(module);
  StateRun run = runOnOneRank(module, {FunctionKind::update}, {{"w", tensorOf(f32({3}), {1, 2, 3})}});
  EXPECT_THAT(run.results[0]["old"].values, ElementsAre(1, 2, 3));
  EXPECT_THAT(run.results[0]["new"].values, ElementsAre(-1, -2, -3));
}

OP_TEST(write, OutlivesTheFunction) {
  Module module;
  buildNegation(module);
  std::map<std::string, HostTensor> start = {{"w", tensorOf(f32({3}), {1, 2, 3})}};
  EXPECT_THAT(runOnOneRank(module, {FunctionKind::update}, start).parameters["w"].values, ElementsAre(-1, -2, -3));
  StateRun twice = runOnOneRank(module, {FunctionKind::update, FunctionKind::update}, start);
  EXPECT_THAT(twice.parameters["w"].values, ElementsAre(1, 2, 3));
}

OP_TEST(tap, HandsTheTensorOutUnderTheParametersName) {
  Module module;
  State &w = module.addState(parameterState("w", f32({3})));
  Builder builder(*module.addFunction(FunctionKind::exportWeights));
  builder.create(Op::tap, {builder.readState(w)}, TapAttributes{{"layers.0.w"}});
  builder.ret({}, {});
  StateRun run = runOnOneRank(module, {FunctionKind::exportWeights}, {{"w", tensorOf(f32({3}), {1, 2, 3})}});
  EXPECT_THAT(run.taps["layers.0.w"].values, ElementsAre(1, 2, 3));
}

/// One function that stashes a weight, and one that unstashes it.
std::unique_ptr<Module> stashingModule() {
  auto module = std::make_unique<Module>();
  module->stage = Stage::async;
  const State &weight = module->addState(parameterState("w", f32({2})));
  Function &step = *module->addFunction(FunctionKind::microStep);
  Builder first(step);
  first.create(Op::stash, {first.readState(weight)}, StateAttributes{{"w"}, {}, DType::f32});
  first.ret({}, {});
  Function &tap = *module->addFunction(FunctionKind::tapGradients);
  Builder second(tap);
  second.ret({second.create(Op::unstash, {}, StateAttributes{{"w"}, {2}, DType::f32})->result()}, {"back"});
  recordExercisedOps(*module);
  return module;
}

OP_TEST(stash, KeepsAValueForALaterFunctionOfTheStep) {
  std::unique_ptr<Module> module = stashingModule();
  EvaluationState state{{{{"w", HostTensor(f32({2}), 3)}}}};
  llvm::Expected<RankResults> results =
      evaluate(*module, {FunctionKind::microStep, FunctionKind::tapGradients}, {{}}, state);
  ASSERT_TRUE(bool(results)) << toString(results.takeError());
  EXPECT_THAT((*results)[0].at("back").values, ElementsAre(3, 3));
  EXPECT_THAT((*results)[0].at("grad.w").values, ElementsAre(3, 3));
  EXPECT_THAT(inferMessage(Op::stash, {f32({2})}, StateAttributes{}), HasSubstr("(C1)"));
}

OP_TEST(unstash, IsAFaultWhereNothingWasStashed) {
  std::unique_ptr<Module> module = stashingModule();
  EvaluationState state{{{{"w", HostTensor(f32({2}), 3)}}}};
  llvm::Expected<RankResults> results = evaluate(*module, {FunctionKind::tapGradients}, {{}}, state);
  ASSERT_FALSE(bool(results));
  EXPECT_THAT(toString(results.takeError()), HasSubstr("nothing of this type was stashed for @w"));
  EXPECT_THAT(inferMessage(Op::unstash, {}, StateAttributes{}), HasSubstr("(C1)"));
}

OP_TEST(ret, NamesTheResultsOfAFunction) {
  Module module;
  Function *function = module.addFunction(FunctionKind::forward);
  Value *x = function->addArgument(ArgumentKind::input, "x", f32({}));
  Builder(*function).ret({x, x}, {"first", "second"});
  recordExercisedOps(module);
  EvaluationState state;
  state.states.resize(1);
  llvm::Expected<RankResults> results =
      evaluate(module, {FunctionKind::forward}, {{{"x", tensorOf(f32({}), {4})}}}, state);
  ASSERT_TRUE(static_cast<bool>(results)) << llvm::toString(results.takeError());
  EXPECT_THAT((*results)[0]["first"].values, ElementsAre(4));
  EXPECT_THAT((*results)[0]["second"].values, ElementsAre(4));
}

TEST(StateConstraints, AreReportedByLabel) {
  auto attributes = [](std::string name, Shape shape) { return StateAttributes{{std::move(name)}, shape, DType::f32}; };
  EXPECT_EQ(inferMessage(Op::read, {}, attributes("w", {2})), "");
  EXPECT_THAT(inferMessage(Op::read, {}, attributes("", {2})), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::read, {}, attributes("w", {2, -1})), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(Op::read, {}, attributes("w", {int64_t(1) << 40, int64_t(1) << 40})), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(Op::read, {f32({2})}, attributes("w", {2})), HasSubstr("(C0)"));
  EXPECT_EQ(inferMessage(Op::write, {f32({2})}, attributes("w", {})), "");
  EXPECT_THAT(inferMessage(Op::write, {f32({2})}, attributes("", {})), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::tap, {f32({2})}, TapAttributes{}), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::ret, {f32({2})}, ReturnAttributes{}), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::ret, {f32({2}), f32({2})}, ReturnAttributes{{"a", "a"}}), HasSubstr("(C2)"));
  EXPECT_EQ(inferMessage(Op::ret, {Type::future(f32({2}))}, ReturnAttributes{{"gathered"}}), "");
}

BuildFunction viewOf(int64_t offset, Shape shape) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::view, inputs, ViewAttributes{offset, shape})->result()};
  };
}

OP_TEST(view, IsAWindowOfAFlatBuffer) {
  HostTensor flat = tensorOf(f32({7}), {0, 1, 2, 3, 4, 5, 6});
  HostTensor view = valuesOf({flat}, viewOf(1, {2, 3}))[0];
  EXPECT_EQ(view.type, f32({2, 3}));
  EXPECT_THAT(view.values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(valuesOf({flat}, viewOf(6, {}))[0].values, ElementsAre(6));
  EXPECT_TRUE(valuesOf({flat}, viewOf(7, {0}))[0].values.empty());
  EXPECT_TRUE(infoOf(Op::view).has(aliasesOperand));
}

TEST(ViewConstraints, AreReportedByLabel) {
  auto message = [](Type flat, int64_t offset, Shape shape) {
    return inferMessage(Op::view, {std::move(flat)}, ViewAttributes{offset, std::move(shape)});
  };
  EXPECT_THAT(message(f32({2, 2}), 0, {2}), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({4}), 0, {-2}), HasSubstr("(C2)"));
  EXPECT_THAT(message(f32({4}), 0, {int64_t(1) << 40, int64_t(1) << 40}), HasSubstr("(C2)"));
  EXPECT_THAT(message(f32({4}), 3, {2}), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({4}), -1, {2}), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({4}), std::numeric_limits<int64_t>::max(), {2}), HasSubstr("(C3)"));
}

OP_TEST(pack, LaysPartsAtTheirOffsetsAndZerosBetween) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::pack, inputs, PackAttributes{{1, 6}, 8})->result()};
  };
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {1, 2, 3, 4}), tensorOf(f32({}), {9})};
  HostTensor packed = valuesOf(inputs, build)[0];
  EXPECT_EQ(packed.type, f32({8}));
  EXPECT_THAT(packed.values, ElementsAre(0, 1, 2, 3, 4, 0, 9, 0));
}

TEST(PackConstraints, AreReportedByLabel) {
  auto message = [](std::vector<Type> parts, Shape offsets, int64_t elements) {
    return inferMessage(Op::pack, parts, PackAttributes{std::move(offsets), elements});
  };
  EXPECT_EQ(message({f32({2}), f32({3})}, {0, 2}, 5), "");
  EXPECT_THAT(message({}, {}, 5), HasSubstr("(C1)"));
  EXPECT_THAT(message({f32({2})}, {0, 2}, 5), HasSubstr("(C1)"));
  EXPECT_THAT(message({f32({2}), Type(DType::f64, {3})}, {0, 2}, 5), HasSubstr("(C2)"));
  EXPECT_THAT(message({f32({2}), f32({3})}, {0, 1}, 5), HasSubstr("(C3)"));
  EXPECT_THAT(message({f32({2}), f32({2})}, {2, 0}, 5), HasSubstr("(C3)"));
  EXPECT_THAT(message({f32({2})}, {-1}, 5), HasSubstr("(C3)"));
  EXPECT_THAT(message({f32({2}), f32({3})}, {0, 3}, 5), HasSubstr("(C4)"));
  EXPECT_THAT(message({f32({2})}, {std::numeric_limits<int64_t>::max()}, 5), HasSubstr("(C4)"));
  EXPECT_THAT(message({f32({0})}, {0}, std::numeric_limits<int64_t>::max()), HasSubstr("(C5)"));
}

OP_TEST(copy, HasTheOperandsValue) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.unary(Op::copy, inputs[0])};
  };
  HostTensor copied = valuesOf({tensorOf(Type(DType::i64, {2}), {5, 6})}, build)[0];
  EXPECT_EQ(copied.type, Type(DType::i64, {2}));
  EXPECT_THAT(copied.values, ElementsAre(5, 6));
}

OP_TEST(free, GivesATokenAndLeavesOtherMemoryAlone) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *negated = builder.unary(Op::neg, inputs[0]);
    Value *copied = builder.unary(Op::copy, negated);
    EXPECT_EQ(builder.create(Op::free, {negated})->result()->type(), Type::token());
    return {copied};
  };
  EXPECT_THAT(valuesOf({tensorOf(f32({2}), {5, 6})}, build)[0].values, ElementsAre(-5, -6));
}

TEST(FreeConstraints, RefuseWhatIsNoTensor) {
  EXPECT_THAT(inferMessage(Op::free, {Type::token()}), HasSubstr("(C0)"));
  EXPECT_THAT(inferMessage(Op::copy, {Type::future(f32({2}))}), HasSubstr("(C0)"));
}

} // namespace
} // namespace fsdpc

// The reference evaluator: functions and carried values, states and shards, ranks, and the errors that it finds at run
// time.
#include "tests/unit/gradient_check.h"

#include <limits>

namespace fsdpc {
namespace {

using Values = std::vector<double>;

HostTensor vectorOf(Values values, DType dtype = DType::f32) {
  auto size = static_cast<int64_t>(values.size());
  return tensorOf(Type(dtype, {size}), std::move(values));
}

/// A module of hand-made functions on `ranks` ranks.
struct Program {
  Module module;
  explicit Program(int64_t ranks = 1, Stage stage = Stage::train) {
    module.stage = stage;
    module.mesh.push_back({"shard", ranks});
  }
  Function &add(FunctionKind kind) { return *module.addFunction(kind); }
  State &addState(llvm::StringRef name, StateRole role, Type type) {
    State state;
    state.name = name.str();
    state.role = role;
    state.type = std::move(type);
    return module.addState(std::move(state));
  }
  void addParameter(llvm::StringRef name, Type type) {
    module.parameters.emplace_back();
    module.parameters.back().name = name.str();
    module.parameters.back().type = std::move(type);
  }
  CollectiveAttributes over(int64_t id = -1) { return {{"shard"}, module.worldSize(), id}; }

  using Inputs = std::vector<std::map<std::string, HostTensor>>;
  llvm::Expected<RankResults> run(llvm::ArrayRef<FunctionKind> kinds, Inputs inputs, EvaluationState &state) {
    return evaluate(module, kinds, inputs, state);
  }
  /// The error message of a run without inputs, which must fail.
  std::string fault(llvm::ArrayRef<FunctionKind> kinds) {
    EvaluationState state = makeEvaluationState(module, {});
    llvm::Expected<RankResults> results = run(kinds, Inputs(module.worldSize()), state);
    return results ? "" : toString(results.takeError());
  }
};

Value *named(Value *value, llvm::StringRef name) {
  value->setName(name);
  return value;
}

Value *ones(Builder &builder, int64_t size = 4) { return named(builder.constant(Type(DType::f32, {size}), 1), "x"); }

Value *gatherStart(Builder &builder, Program &program, Value *shard, llvm::StringRef name = "future") {
  return named(builder.create(Op::allGatherStart, {shard}, program.over(0))->result(), name);
}

// ---- functions, states, ranks

TEST(Evaluate, CarriesResultsIntoLaterFunctionsByName) {
  Program program;
  Function &prologue = program.add(FunctionKind::prologue);
  Value *labels = prologue.addArgument(ArgumentKind::input, "labels", Type(DType::f32, {2}));
  Builder first(prologue);
  first.ret({first.reduceSum(labels, {0}, false)}, {"count"});
  Function &step = program.add(FunctionKind::microStep);
  Value *count = step.addArgument(ArgumentKind::carry, "count", Type(DType::f32, {}));
  Builder second(step);
  second.ret({second.mul(count, count)}, {"loss"});
  EvaluationState state = makeEvaluationState(program.module, {});
  llvm::Expected<RankResults> results =
      program.run({FunctionKind::prologue, FunctionKind::microStep}, {{{"labels", vectorOf({3, 4})}}}, state);
  ASSERT_TRUE(static_cast<bool>(results)) << toString(results.takeError());
  EXPECT_EQ((*results)[0].at("count").values, Values{7});
  EXPECT_EQ((*results)[0].at("loss").values, Values{49});
  EXPECT_EQ(program.fault({FunctionKind::microStep}), "rank 0: micro_step: carried value count is missing");
  EXPECT_EQ(program.fault({FunctionKind::prologue}), "rank 0: prologue: input labels is missing");
  EXPECT_EQ(program.fault({FunctionKind::update}), "the module has no function update");
}

TEST(Evaluate, RefusesAnInputOfAnotherShape) {
  Program program;
  Function &function = program.add(FunctionKind::evalStep);
  Value *x = function.addArgument(ArgumentKind::input, "x", Type(DType::f32, {2}));
  Builder(function).ret({x}, {"y"});
  EvaluationState state = makeEvaluationState(program.module, {});
  llvm::Expected<RankResults> results = program.run({FunctionKind::evalStep}, {{{"x", vectorOf({1, 2, 3})}}}, state);
  EXPECT_EQ(toString(results.takeError()), "rank 0: eval_step: input x is f32[3], wanted f32[2]");
}

TEST(Evaluate, WritesStatesAndKeepsThemForTheNextRun) {
  Program program;
  State &weight = program.addState("w", StateRole::parameter, Type(DType::f32, {2}));
  Function &update = program.add(FunctionKind::update);
  Builder builder(update);
  Value *w = builder.readState(weight);
  builder.writeState(weight, builder.add(w, w));
  builder.create(Op::tap, {builder.readState(weight)}, TapAttributes{{"w"}});
  builder.ret({}, {});
  EvaluationState state = makeEvaluationState(program.module, {{"w", vectorOf({1, 5})}});
  std::map<std::string, HostTensor> taps;
  for (int run = 0; run < 2; ++run)
    ASSERT_TRUE(static_cast<bool>(evaluate(program.module, {FunctionKind::update}, {{}}, state, &taps)));
  EXPECT_EQ(fullParameters(program.module, state).at("w").values, (Values{4, 20}));
  EXPECT_EQ(taps.at("w").values, (Values{4, 20}));
}

TEST(Evaluate, CutsParametersIntoShardsAndPutsThemTogetherAgain) {
  Program program(3, Stage::sharded);
  program.addParameter("a", Type(DType::f32, {2, 2}));
  program.addParameter("b", Type(DType::f32, {3}));
  State &segment = program.addState("unit.p", StateRole::segment, Type(DType::f32, {4}));
  segment.over = "shard";
  segment.paddedElements = 12;
  segment.slots = {{"a", 0, 4}, {"b", 6, 3}};
  program.addState("unit.p.exp_avg", StateRole::optimizer, Type(DType::f32, {4})).initialValue = 0.5;
  program.addState("lr", StateRole::scalar, Type(DType::f64, {})).initialValue = 0.1;
  program.addState("eps", StateRole::scalar, Type(DType::f64, {})).initialValue = 0.2;
  std::map<std::string, HostTensor> parameters = {{"a", tensorOf(Type(DType::f32, {2, 2}), {1, 2, 3, 4})},
                                                  {"b", vectorOf({5, 6, 7})}};
  EvaluationState state = makeEvaluationState(program.module, parameters, {{"lr", 3}});
  EXPECT_EQ(state.states[0].at("unit.p").values, (Values{1, 2, 3, 4}));
  EXPECT_EQ(state.states[1].at("unit.p").values, (Values{0, 0, 5, 6}));
  EXPECT_EQ(state.states[2].at("unit.p").values, (Values{7, 0, 0, 0}));
  EXPECT_EQ(state.states[2].at("unit.p.exp_avg").values, Values(4, 0.5));
  EXPECT_EQ(state.states[1].at("lr").values, Values{3});
  EXPECT_EQ(state.states[1].at("eps").values, Values{0.2});
  std::map<std::string, HostTensor> full = fullParameters(program.module, state);
  EXPECT_EQ(full.at("a").type, Type(DType::f32, {2, 2}));
  EXPECT_EQ(full.at("a").values, parameters.at("a").values);
  EXPECT_EQ(full.at("b").values, parameters.at("b").values);
}

TEST(Evaluate, RanksMeetInCollectives) {
  Program program(3, Stage::sharded);
  Function &function = program.add(FunctionKind::microStep);
  Value *x = function.addArgument(ArgumentKind::input, "x", Type(DType::f32, {1}));
  Builder builder(function);
  Value *all = builder.create(Op::allGather, {x}, program.over())->result();
  Value *mine = builder.create(Op::reduceScatter, {builder.mul(all, all)}, program.over())->result();
  builder.ret({all, mine, builder.create(Op::batchSum, {x})->result()}, {"all", "mine", "sum"});
  EvaluationState state = makeEvaluationState(program.module, {});
  llvm::Expected<RankResults> results = program.run(
      {FunctionKind::microStep}, {{{"x", vectorOf({1})}}, {{"x", vectorOf({2})}}, {{"x", vectorOf({4})}}}, state);
  ASSERT_TRUE(static_cast<bool>(results)) << toString(results.takeError());
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ((*results)[rank].at("all").values, (Values{1, 2, 4}));
    EXPECT_EQ((*results)[rank].at("sum").values, Values{7});
  }
  EXPECT_EQ((*results)[2].at("mine").values, Values{48});
}

TEST(Evaluate, RefusesACollectiveOverAnotherNumberOfRanks) {
  Program program(2, Stage::sharded);
  Builder builder(program.add(FunctionKind::microStep));
  builder.ret({builder.create(Op::allReduce, {ones(builder)}, CollectiveAttributes{{"shard"}, 3, 0})->result()}, {"y"});
  EXPECT_EQ(program.fault({FunctionKind::microStep}),
            "micro_step: all_reduce is over 3 ranks of axis @shard, which the mesh does not have");
}

TEST(Evaluate, AChainOfAHundredThousandNodesNeedsNoDeepStack) {
  Program program;
  Builder builder(program.add(FunctionKind::microStep));
  Value *x = builder.constant(Type(DType::f32, {}), 1);
  Value *one = x;
  for (int i = 0; i < 100000; ++i)
    x = builder.add(x, one);
  builder.ret({x}, {"y"});
  EvaluationState state = makeEvaluationState(program.module, {});
  llvm::Expected<RankResults> results = program.run({FunctionKind::microStep}, {{}}, state);
  ASSERT_TRUE(static_cast<bool>(results));
  EXPECT_EQ((*results)[0].at("y").values, Values{100001});
}

// ---- errors at run time

TEST(Evaluate, FindsAUseAfterFree) {
  Program program(1, Stage::async);
  Builder builder(program.add(FunctionKind::microStep));
  Value *x = ones(builder);
  Value *view = named(builder.reshape(x, {2, 2}), "v");
  named(builder.create(Op::free, {x})->result(), "gone");
  builder.ret({builder.unary(Op::neg, view)}, {"y"});
  EXPECT_EQ(program.fault({FunctionKind::microStep}), "rank 0: micro_step: %v is used by neg after free %gone");
}

TEST(Evaluate, FindsASecondFree) {
  Program program(1, Stage::async);
  Builder builder(program.add(FunctionKind::microStep));
  Value *x = ones(builder);
  builder.create(Op::free, {x});
  builder.create(Op::free, {x});
  builder.ret({}, {});
  EXPECT_EQ(program.fault({FunctionKind::microStep}), "rank 0: micro_step: %x is used by free after free");
}

TEST(Evaluate, FindsACarriedValueThatAnEarlierFunctionFreed) {
  Program program(1, Stage::async);
  Builder first(program.add(FunctionKind::microStep));
  first.ret({ones(first)}, {"grad"});
  Function &taps = program.add(FunctionKind::tapGradients);
  Builder second(taps);
  second.create(Op::free, {taps.addArgument(ArgumentKind::carry, "grad", Type(DType::f32, {4}))});
  second.ret({}, {});
  Function &update = program.add(FunctionKind::update);
  update.addArgument(ArgumentKind::carry, "grad", Type(DType::f32, {4}));
  Builder(update).ret({}, {});
  EXPECT_EQ(program.fault({FunctionKind::microStep, FunctionKind::tapGradients, FunctionKind::update}),
            "rank 0: update: carried value grad was freed in tap_gradients");
  EXPECT_EQ(program.fault({FunctionKind::microStep, FunctionKind::update}), "");
}

TEST(Evaluate, AFutureIsSeenOnlyThroughItsWait) {
  Program program(2, Stage::async);
  Function &function = program.add(FunctionKind::microStep);
  Builder builder(function);
  Value *future = gatherStart(builder, program, ones(builder));
  Node *use = builder.createWithTypes(Op::neg, {future}, nullptr, {Type(DType::f32, {8})});
  builder.ret({use->result()}, {"y"});
  EXPECT_NE(program.fault({FunctionKind::microStep}).find("the future %future is used by neg without a wait"),
            std::string::npos);
}

TEST(Evaluate, FindsAStartWithoutItsWaitAndAWaitTooMany) {
  Program lost(2, Stage::async);
  Builder builder(lost.add(FunctionKind::microStep));
  gatherStart(builder, lost, ones(builder));
  builder.ret({}, {});
  EXPECT_NE(lost.fault({FunctionKind::microStep}).find("all_gather.start %future is neither waited for nor returned"),
            std::string::npos);

  Program twice(2, Stage::async);
  Builder again(twice.add(FunctionKind::microStep));
  Value *future = gatherStart(again, twice, ones(again));
  again.create(Op::wait, {future});
  again.ret({again.create(Op::wait, {future})->result()}, {"y"});
  EXPECT_NE(twice.fault({FunctionKind::microStep}).find("waits for %future, which has been waited for"),
            std::string::npos);
}

TEST(Evaluate, FindsMemoryThatGoesBeforeOtherRanksHaveReadIt) {
  Program program(2, Stage::async);
  Builder builder(program.add(FunctionKind::microStep));
  Value *x = ones(builder);
  Value *future = gatherStart(builder, program, x);
  builder.create(Op::free, {x});
  builder.ret({builder.create(Op::wait, {future})->result()}, {"y"});
  EXPECT_NE(program.fault({FunctionKind::microStep}).find("frees %x before the wait for all_gather.start %future"),
            std::string::npos);
}

TEST(Evaluate, FindsAStateThatIsWrittenBeforeOtherRanksHaveReadIt) {
  Program program(2, Stage::async);
  State &shard = program.addState("p", StateRole::optimizer, Type(DType::f32, {4}));
  Builder builder(program.add(FunctionKind::microStep));
  Value *future = gatherStart(builder, program, builder.readState(shard));
  builder.writeState(shard, ones(builder));
  builder.ret({builder.create(Op::wait, {future})->result()}, {"y"});
  EXPECT_NE(program.fault({FunctionKind::microStep}).find("state @p is written before the wait for all_gather.start"),
            std::string::npos);
}

TEST(Evaluate, AFutureMayBeWaitedForInALaterFunction) {
  Program program(2, Stage::async);
  Builder first(program.add(FunctionKind::prologue));
  first.ret({gatherStart(first, program, ones(first))}, {"weights"});
  Function &step = program.add(FunctionKind::microStep);
  Value *future = step.addArgument(ArgumentKind::carry, "weights", Type::future(Type(DType::f32, {8})));
  Builder second(step);
  second.ret({second.create(Op::wait, {future})->result()}, {"y"});
  EXPECT_EQ(program.fault({FunctionKind::prologue, FunctionKind::microStep}), "");
}

TEST(Evaluate, NamesAStateThatIsMissingOrOfAnotherType) {
  Program program;
  State absent;
  absent.name = "nowhere";
  absent.type = Type(DType::f32, {2});
  Builder builder(program.add(FunctionKind::update));
  builder.ret({builder.readState(absent)}, {"y"});
  EXPECT_EQ(program.fault({FunctionKind::update}), "rank 0: update: there is no state @nowhere");
  program.addState("nowhere", StateRole::parameter, Type(DType::f32, {3}));
  EXPECT_EQ(program.fault({FunctionKind::update}), "rank 0: update: state @nowhere is f32[3], read as f32[2]");
}

// ---- constants

TEST(EvaluatePure, EvaluatesOneOpOnKnownTensors) {
  HostTensor a = vectorOf({1, 2}), b = vectorOf({3, 4});
  std::vector<HostTensor> found = evaluatePure(Op::add, nullptr, {&a, &b}, {a.type});
  EXPECT_EQ(found[0].values, (Values{4, 6}));
}

TEST(EvaluatePure, TensorsAndConstantsConvertBothWays) {
  EXPECT_TRUE(denseOf(vectorOf({2, 2, 2})).isSplat());
  EXPECT_FALSE(denseOf(vectorOf({0.0, -0.0})).isSplat()) << "the two zeros differ";
  EXPECT_FALSE(denseOf(vectorOf({})).isSplat());
  HostTensor x = vectorOf({1.5, -2, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(hostTensorOf(denseOf(x), x.type).values, x.values);
  EXPECT_EQ(hostTensorOf(Dense::splat(DType::i64, 7), Type(DType::i64, {2})).values, (Values{7, 7}));
}

} // namespace
} // namespace fsdpc

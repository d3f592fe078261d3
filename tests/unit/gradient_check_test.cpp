// The tools of gradient_check.h, and tests that they find the errors they are for.
#include "tests/compare/compare.h"
#include "tests/unit/gradient_check.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "gtest/gtest-spi.h"
#include <cmath>
#include <random>
#include <set>

namespace fsdpc {

namespace {

std::set<Op> &testedOps() {
  static std::set<Op> ops;
  return ops;
}
std::set<Op> &exercisedOps() {
  static std::set<Op> ops;
  return ops;
}

struct BuiltFunction {
  Module module;
  Function *function = nullptr;
  llvm::SmallVector<Value *, 4> results;
};

std::unique_ptr<BuiltFunction> buildFunction(llvm::ArrayRef<Type> inputTypes, const BuildFunction &build) {
  auto built = std::make_unique<BuiltFunction>();
  built->function = built->module.addFunction(FunctionKind::forward);
  llvm::SmallVector<Value *, 4> inputs;
  for (size_t i = 0; i < inputTypes.size(); ++i)
    inputs.push_back(built->function->addArgument(ArgumentKind::input, "x" + std::to_string(i), inputTypes[i]));
  Builder builder(*built->function);
  built->results = build(builder, inputs);
  return built;
}

void endFunction(BuiltFunction &built, llvm::ArrayRef<Value *> results) {
  std::vector<std::string> names;
  for (size_t i = 0; i < results.size(); ++i)
    names.push_back("y" + std::to_string(i));
  Builder(*built.function).ret(results, names);
  recordExercisedOps(built.module);
}

using RankTensors = std::vector<std::vector<HostTensor>>;

/// [rank][result] of the function's results y0, y1, ...
RankTensors runOnRanks(const BuiltFunction &built, const RankTensors &inputs) {
  std::vector<std::map<std::string, HostTensor>> named(inputs.size());
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    for (size_t i = 0; i < inputs[rank].size(); ++i)
      named[rank]["x" + std::to_string(i)] = inputs[rank][i];
  EvaluationState state;
  state.states.resize(inputs.size());
  RankTensors results(inputs.size());
  llvm::Expected<RankResults> evaluated = evaluate(built.module, {FunctionKind::forward}, named, state);
  if (!evaluated) {
    ADD_FAILURE() << toString(evaluated.takeError());
    return results;
  }
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    for (size_t i = 0; i < (*evaluated)[rank].size(); ++i)
      results[rank].push_back((*evaluated)[rank].at("y" + std::to_string(i)));
  return results;
}

// ---- reverse mode

class ReverseSweep {
public:
  ReverseSweep(Function &function, llvm::ArrayRef<Value *> wanted) : function(function), builder(function) {
    active.insert(wanted.begin(), wanted.end());
    for (Node *node : function)
      for (Value *operand : node->operands())
        if (active.contains(operand)) {
          nodes.push_back(node);
          for (unsigned i = 0; i < node->resultCount(); ++i)
            active.insert(node->result(i));
          break;
        }
  }

  void seed(Value *value, Value *cotangent) { accumulate(value, cotangent); }

  void run() {
    for (Node *node : llvm::reverse(nodes))
      visit(*node);
  }

  Value *cotangentOf(Value *value) const { return cotangents.lookup(value); }

private:
  void visit(Node &node) {
    llvm::SmallVector<Value *, 4> ofResults, ofOperands(node.operandCount(), nullptr);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      ofResults.push_back(cotangents.lookup(node.result(i)));
    if (llvm::all_of(ofResults, [](Value *cotangent) { return !cotangent; }))
      return;
    llvm::SmallVector<bool, 4> needed;
    for (Value *operand : node.operands())
      needed.push_back(active.contains(operand) && isFloat(operand->type().dtype()));
    VjpContext context{builder, node, ofResults, ofOperands, needed};
    infoOf(node).vjp(context);
    for (unsigned i = 0; i < node.operandCount(); ++i)
      if (ofOperands[i])
        accumulate(node.operand(i), ofOperands[i]);
  }

  void accumulate(Value *value, Value *cotangent) {
    EXPECT_EQ(toString(value->type()), toString(cotangent->type())) << "a cotangent has its value's type";
    Value *&sum = cotangents[value];
    sum = sum ? builder.add(sum, cotangent) : cotangent;
  }

  Function &function;
  Builder builder;
  llvm::DenseSet<Value *> active; ///< depends on a wanted input
  std::vector<Node *> nodes;      ///< active ones, in order
  llvm::DenseMap<Value *, Value *> cotangents;
};

/// Appends the reverse sweep and a return of the cotangents. `present` receives which inputs have one.
void appendGradients(BuiltFunction &built, llvm::ArrayRef<HostTensor> seeds, llvm::ArrayRef<bool> differentiate,
                     std::vector<bool> &present) {
  llvm::SmallVector<Value *, 4> wanted;
  for (size_t i = 0; i < differentiate.size(); ++i)
    if (differentiate[i])
      wanted.push_back(built.function->arguments()[i].value.get());
  ReverseSweep sweep(*built.function, wanted);
  Builder builder(*built.function);
  for (size_t i = 0; i < built.results.size(); ++i)
    if (isFloat(built.results[i]->type().dtype()))
      sweep.seed(built.results[i], builder.constant(built.results[i]->type(), denseOf(seeds[i])));
  sweep.run();
  llvm::SmallVector<Value *, 4> gradients;
  for (const Argument &argument : built.function->arguments()) {
    Value *cotangent = sweep.cotangentOf(argument.value.get());
    present.push_back(cotangent != nullptr);
    if (cotangent)
      gradients.push_back(cotangent);
  }
  endFunction(built, gradients);
}

/// Per rank, per input; an empty tensor where there is no cotangent.
RankTensors gradientsOnRanks(const RankTensors &inputs, const BuildFunction &build, llvm::ArrayRef<HostTensor> seeds,
                             llvm::ArrayRef<bool> differentiate) {
  llvm::SmallVector<Type, 4> types;
  for (const HostTensor &input : inputs[0])
    types.push_back(input.type);
  std::unique_ptr<BuiltFunction> built = buildFunction(types, build);
  std::vector<bool> present;
  appendGradients(*built, seeds, differentiate, present);
  RankTensors found = runOnRanks(*built, inputs), gradients(inputs.size());
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    size_t next = 0;
    for (bool has : present)
      gradients[rank].push_back(has && next < found[rank].size() ? found[rank][next++] : HostTensor());
  }
  for (auto &perInput : gradients)
    for (size_t i = 0; i < perInput.size(); ++i)
      if (!present[i])
        perInput[i].values.clear();
  return gradients;
}

// ---- random values and the comparison

HostTensor randomTensor(const Type &type, double low, double high, std::mt19937_64 &random) {
  HostTensor tensor(type);
  std::uniform_real_distribution<double> uniform(low, high);
  for (double &value : tensor.values)
    value = isFloat(type.dtype()) ? uniform(random) : std::floor(uniform(random));
  return tensor;
}

class Checker {
public:
  explicit Checker(const GradientCase &gradientCase) : given(gradientCase), random(20240607) {
    llvm::SmallVector<Type, 4> types;
    for (const GradientInput &input : given.inputs) {
      types.push_back(input.type);
      differentiate.push_back(input.differentiate && isFloat(input.type.dtype()));
    }
    inputs.resize(given.ranks);
    for (auto &perRank : inputs)
      for (const GradientInput &input : given.inputs)
        perRank.push_back(input.values.empty() ? randomTensor(input.type, input.low, input.high, random)
                                               : tensorOf(input.type, input.values));
    built = buildFunction(types, given.build);
    for (Value *result : built->results)
      weights.push_back(randomTensor(result->type(), -1, 1, random));
    endFunction(*built, built->results);
  }

  std::string mismatch() {
    RankTensors gradients = gradientsOnRanks(inputs, given.build, weights, differentiate);
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      for (size_t i = 0; i < differentiate.size(); ++i)
        for (size_t k = 0; differentiate[i] && k < inputs[rank][i].values.size(); ++k) {
          const std::vector<double> &found = gradients[rank][i].values;
          double derivative = found.empty() ? 0 : found[k], difference = centralDifference(inputs[rank][i].values[k]);
          double scale = 1 + std::max(std::fabs(derivative), std::fabs(difference));
          if (!std::isfinite(scale) || !(errorOf(derivative, difference) <= given.tolerance * scale))
            return "rank " + std::to_string(rank) + ", input " + std::to_string(i) + ", element " + std::to_string(k) +
                   ": derivative " + std::to_string(derivative) + ", finite difference " + std::to_string(difference);
        }
    return "";
  }

private:
  double loss() const {
    double sum = 0;
    for (const auto &results : runOnRanks(*built, inputs))
      for (size_t i = 0; i < results.size(); ++i)
        for (size_t k = 0; isFloat(results[i].type.dtype()) && k < results[i].values.size(); ++k)
          sum += results[i].values[k] * weights[i].values[k];
    return sum;
  }

  double centralDifference(double &element) {
    double middle = element;
    element = middle + given.step;
    double above = loss();
    element = middle - given.step;
    double below = loss();
    element = middle;
    return (above - below) / (2 * given.step);
  }

  const GradientCase &given;
  std::mt19937_64 random;
  llvm::SmallVector<bool, 4> differentiate;
  RankTensors inputs;
  std::unique_ptr<BuiltFunction> built;
  std::vector<HostTensor> weights; ///< per result, the same on every rank
};

} // namespace

std::string gradientMismatch(const GradientCase &gradientCase) { return Checker(gradientCase).mismatch(); }

void checkGradients(const GradientCase &gradientCase) { EXPECT_EQ(gradientMismatch(gradientCase), ""); }

std::vector<HostTensor> gradientsOf(const std::vector<HostTensor> &inputs, const BuildFunction &build,
                                    const std::vector<HostTensor> &seeds) {
  llvm::SmallVector<Type, 4> types;
  llvm::SmallVector<bool, 4> differentiate;
  for (const HostTensor &input : inputs) {
    types.push_back(input.type);
    differentiate.push_back(isFloat(input.type.dtype()));
  }
  std::vector<HostTensor> allSeeds = seeds;
  std::unique_ptr<BuiltFunction> built = buildFunction(types, build);
  for (size_t i = seeds.size(); i < built->results.size(); ++i)
    allSeeds.push_back(HostTensor(built->results[i]->type(), 1));
  return gradientsOnRanks({inputs}, build, allSeeds, differentiate)[0];
}

std::vector<HostTensor> valuesOf(const std::vector<HostTensor> &inputs, const BuildFunction &build) {
  return valuesOnRanks({inputs}, build)[0];
}

std::vector<std::vector<HostTensor>> valuesOnRanks(const std::vector<std::vector<HostTensor>> &inputs,
                                                   const BuildFunction &build, const std::vector<MeshAxis> &mesh) {
  llvm::SmallVector<Type, 4> types;
  for (const HostTensor &input : inputs[0])
    types.push_back(input.type);
  std::unique_ptr<BuiltFunction> built = buildFunction(types, build);
  endFunction(*built, built->results);
  built->module.mesh = mesh.empty() ? std::vector<MeshAxis>{{"shard", static_cast<int64_t>(inputs.size())}} : mesh;
  return runOnRanks(*built, inputs);
}

HostTensor tensorOf(Type type, std::vector<double> values) {
  EXPECT_EQ(type.elements(), static_cast<int64_t>(values.size())) << "as many values as the type has elements";
  HostTensor tensor(std::move(type));
  tensor.values = std::move(values);
  return tensor;
}

std::string inferMessage(Op op, llvm::ArrayRef<Type> operands, std::unique_ptr<AttributesBase> attributes) {
  if (!attributes && infoOf(op).makeAttributes)
    attributes = infoOf(op).makeAttributes();
  llvm::SmallVector<Type, 4> results;
  if (llvm::Error error = infoOf(op).infer(operands, attributes.get(), results))
    return toString(std::move(error));
  return "";
}

llvm::SmallVector<Type, 4> inferredTypes(Op op, llvm::ArrayRef<Type> operands,
                                         std::unique_ptr<AttributesBase> attributes) {
  if (!attributes && infoOf(op).makeAttributes)
    attributes = infoOf(op).makeAttributes();
  llvm::SmallVector<Type, 4> results;
  if (llvm::Error error = infoOf(op).infer(operands, attributes.get(), results))
    ADD_FAILURE() << toString(std::move(error));
  return results;
}

void recordExercisedOps(const Module &module) {
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Node *node : *function)
      exercisedOps().insert(node->op());
}

bool registerOpTest(Op op) { return testedOps().insert(op).second; }
bool hasOpTest(Op op) { return testedOps().contains(op); }

OpTestScope::OpTestScope(Op op) : op(op) { exercisedOps().clear(); }
OpTestScope::~OpTestScope() {
  EXPECT_TRUE(exercisedOps().contains(op)) << infoOf(op).name.str() << " was not part of anything this test ran";
}

// ---- tests of the checker itself

namespace {

const Type row(DType::f32, {3});

TEST(GradientCheck, AcceptsARightDerivative) {
  checkGradients({.inputs = {{row}, {row}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    return llvm::SmallVector<Value *, 4>{b.mul(b.mul(x[0], x[1]), x[0])};
                  }});
}

TEST(GradientCheck, NoticesADerivativeThatIsMissing) {
  // No cotangent flows through an integer, but the values still change.
  GradientCase stopped{.inputs = {{row, 1, 2}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                         Value *whole = b.cast(b.mul(x[0], b.constantLike(x[0], 1e9)), DType::i64);
                         return llvm::SmallVector<Value *, 4>{b.cast(whole, DType::f32)};
                       }};
  EXPECT_NE(gradientMismatch(stopped), "");
}

TEST(GradientCheck, CountsWhatOneRanksInputDoesToTheLossOfAllRanks) {
  checkGradients({.inputs = {{row}},
                  .build =
                      [](Builder &b, llvm::ArrayRef<Value *> x) {
                        Value *total = b.create(Op::batchSum, {x[0]})->result();
                        return llvm::SmallVector<Value *, 4>{b.mul(total, total)};
                      },
                  .ranks = 3});
}

TEST(GradientCheck, NoticesAnOpThatATestNamesButDoesNotRun) {
  EXPECT_NONFATAL_FAILURE(OpTestScope scope(Op::softmax), "softmax was not part of anything this test ran");
}

} // namespace

} // namespace fsdpc

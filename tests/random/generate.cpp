#include "tests/random/generate.h"

#include "codegen/cpu/target.h"
#include "codegen/cuda/target.h"
#include "tests/random/productions.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc {

namespace {

const std::vector<Production> &allProductions() {
  static const std::vector<Production> all = [] {
    std::vector<Production> rows;
    for (llvm::ArrayRef<Production> family : {elementwiseProductions(), shapeProductions(), indexProductions(),
                                              matmulProductions(), rowProductions(), patternProductions()})
      llvm::append_range(rows, family);
    return rows;
  }();
  return all;
}

/// Inputs that all blocks of a graph may read.
struct Inputs {
  std::vector<Tensor> floats, integers;
};

class GraphWriter {
public:
  GraphWriter(Module &module, const Choices &choices, const GenerateOptions &options, uint64_t seed)
      : random(seed, "graph"),
        maker(module, {choices.options.graphSamples(), options.emittable, choices.options.splitSamples}, random),
        scopes(random.chance(0.5)) {}

  void addInputs();
  /// One graph: a sequence of blocks. Its result is [B, columns].
  Tensor addGraph(const std::string &name);
  void addUnusedParameters();
  void finish(const Choices &choices, llvm::ArrayRef<Tensor> results);

private:
  Tensor addBlock(const std::string &name, Tensor x, Random dice, int64_t columns);
  Tensor gathered(size_t firstNew, int64_t columns);
  void returnModelLoss(const Tensor &output);
  Tensor scores(const Tensor &columns, bool classesFirst);

  Random random;
  GraphMaker maker;
  bool scopes; ///< nodes name the module they are from, so that blocks are found by their names
  Inputs inputs;
};

void GraphWriter::addInputs() {
  for (int64_t i = random.between(1, 3); i > 0; --i)
    inputs.floats.push_back(
        maker.input("x" + std::to_string(i), DType::f32, maker.smallShape(random.between(i == 1 ? 1 : 0, 3))));
  for (int64_t i = random.between(1, 2); i > 0; --i) {
    int64_t limit = random.between(2, 9);
    // The range of the data is part of the name. The generator of the data reads it there.
    std::string name = "index" + std::to_string(i) + "_below_" + std::to_string(limit);
    DType dtype = random.pick({DType::i64, DType::i64, DType::i32});
    inputs.integers.push_back(maker.input(name, dtype, maker.smallShape(random.between(0, 2), 8), limit));
  }
  if (random.chance(0.2))
    maker.input("unused", DType::f32, {3});
}

/// Joins all values made since `firstNew`, the operand, into one tensor, so that nearly every node affects the loss.
/// The value right after it, the matmul with the weight, is always included.
Tensor GraphWriter::gathered(size_t firstNew, int64_t columns) {
  std::optional<Tensor> total;
  for (size_t i = firstNew; i < maker.floats.size(); ++i) {
    const Tensor &x = maker.floats[i];
    if (i != firstNew + 1 && x.value->hasUses() && !maker.random->chance(0.2))
      continue;
    Tensor part = maker.scaledTo(maker.perSample(x, {columns}), 2);
    total = total ? maker.binary(Op::add, *total, part, total->scale + part.scale) : part;
  }
  return maker.scaledTo(total ? *total : maker.perSample(maker.floats.back(), {columns}), 2);
}

/// Equal `dice` yield equal blocks.
Tensor GraphWriter::addBlock(const std::string &name, Tensor x, Random dice, int64_t columns) {
  maker.random = &dice;
  maker.beginBlock(name + ".");
  if (scopes)
    maker.builder.setSource(name + "|node");
  maker.floats = inputs.floats;
  maker.integers = inputs.integers;
  maker.floats.push_back(x);
  size_t firstNew = maker.floats.size() - 1;
  // A trainable parameter on the path from the block's operand to its result.
  Tensor weight = maker.newParameter({columns, columns}, true);
  Tensor product =
      maker.make(Op::matmul, {maker.perSample(x, {columns}), weight}, MatmulAttributes{}, {0, x.scale * 2});
  maker.keep(product);
  if (dice.chance(0.3))
    maker.keep(maker.parameter(maker.smallShape(dice.between(0, 2))));
  for (int64_t left = dice.between(4, 16); left > 0; --left) {
    const Production &production = dice.pick(allProductions());
    if (std::optional<Tensor> made = production.apply(maker, production.op))
      maker.keep(*made);
  }
  Tensor result = gathered(firstNew, columns);
  maker.random = &random;
  maker.builder.setSource("");
  return result;
}

Tensor GraphWriter::addGraph(const std::string &name) {
  int64_t columns = random.pick({1, 2, 3, 5, 7});
  Tensor x = maker.perSample(random.pick(inputs.floats), {columns});
  uint64_t seed = random.next();
  for (int64_t block = 0, blocks = random.between(1, 4); block < blocks; ++block) {
    x = addBlock(name + std::to_string(block), x, Random(seed), columns);
    if (random.chance(0.5))
      seed = random.next();
  }
  return x;
}

void GraphWriter::addUnusedParameters() {
  maker.beginBlock("unused.");
  if (random.chance(0.3))
    maker.parameter(maker.smallShape(random.between(0, 2)));
}

void GraphWriter::returnModelLoss(const Tensor &output) {
  Tensor terms = maker.binary(Op::mul, output, output, 4);
  Tensor counts = maker.broadcast(maker.constant(DType::f32, {}, 1), output.shape(), 0);
  maker.builder.ret({output.value, terms.value, counts.value}, {"output", "loss_terms", "loss_counts"});
}

/// Scores of classes, perhaps of several positions on an axis after or before the classes. Every column affects each.
Tensor GraphWriter::scores(const Tensor &columns, bool classesFirst) {
  int64_t classes = random.between(2, 7);
  Shape shape = {classes};
  if (random.chance(0.5))
    shape.insert(classesFirst ? shape.end() : shape.begin(), random.between(1, 3));
  Tensor weight = maker.newParameter({columns.type().dim(1), *checkedElements(shape)}, true);
  return maker.perSample(maker.make(Op::matmul, {columns, weight}, MatmulAttributes{}, {0, 2}), shape);
}

void GraphWriter::finish(const Choices &choices, llvm::ArrayRef<Tensor> results) {
  Tensor output = results[0];
  if (results.size() > 1) {
    int64_t columns = 0;
    for (const Tensor &result : results)
      columns += result.type().dim(1);
    output = maker.make(Op::concat, results, AxisAttributes{1}, {0, 2});
  }
  const LossOptions &loss = choices.options.loss;
  if (loss.kind == LossKind::crossEntropy || loss.kind == LossKind::nll)
    output = scores(output, loss.classAxis == 1);
  if (loss.kind == LossKind::nll)
    output = maker.make(Op::logSoftmax, {output}, AxisAttributes{loss.classAxis == 1 ? 1 : output.rank() - 1}, {0, 4});
  output.value->setName(tensorName(999999, 0));
  if (loss.kind == LossKind::model)
    return returnModelLoss(output);
  Tensor side = maker.floats.back();
  // With separate samples, a result with rows that depends on no sample is refused (passes/analysis/samples_apart.h).
  const bool isRefused = choices.options.splitSamples && !readsInput(side.value);
  if (random.chance(0.3) && side.batch == 0 && side.value != output.value && !isRefused)
    maker.builder.ret({output.value, side.value}, {"output", "side"});
  else
    maker.builder.ret({output.value}, {"output"});
}

OptimizerOptions chooseOptimizer(Random &random) {
  using Kind = OptimizerKind;
  OptimizerOptions optimizer;
  optimizer.kind = random.pick({Kind::adamw, Kind::adam, Kind::sgd, Kind::adadelta, Kind::adagrad, Kind::rmsprop});
  // A large eps keeps the update small where a gradient consists of rounding errors only.
  optimizer.scalars = {{"lr", 0.125}, {"weight_decay", random.pick({0.0, 0.0625})}};
  const Kind kind = optimizer.kind;
  auto &scalars = optimizer.scalars;
  if (kind != Kind::sgd)
    scalars["eps"] = 0x1p-8;
  if (kind == Kind::adam || kind == Kind::adamw)
    scalars.insert({{"beta1", 0.875}, {"beta2", 0.9375}});
  if (kind == Kind::adadelta)
    scalars["rho"] = 0.875;
  if (kind == Kind::adagrad)
    scalars["lr_decay"] = 0.0625;
  if (kind == Kind::rmsprop)
    scalars["alpha"] = 0.9375;
  if (kind == Kind::sgd || kind == Kind::rmsprop)
    scalars["momentum"] = random.pick({0.0, 0.875});
  if (kind == Kind::sgd)
    scalars["dampening"] = 0;
  optimizer.nesterov = kind == Kind::sgd && scalars["momentum"] > 0 && random.chance(0.5);
  optimizer.centered = kind == Kind::rmsprop && random.chance(0.5);
  if (random.chance(0.25))
    optimizer.noDecay = "norms_biases";
  if (random.chance(0.25)) {
    optimizer.averagesWeights = true;
    scalars["ema_decay"] = 0.75;
    optimizer.evaluatesAverages = random.chance(0.5);
  }
  return optimizer;
}

LossOptions chooseLoss(Random &random) {
  LossOptions loss;
  loss.kind = random.pick({LossKind::mse, LossKind::mse, LossKind::l1, LossKind::bceWithLogits, LossKind::crossEntropy,
                           LossKind::crossEntropy, LossKind::nll, LossKind::model});
  loss.reduction = random.pick({LossReduction::mean, LossReduction::mean, LossReduction::sum});
  if (loss.kind == LossKind::crossEntropy || loss.kind == LossKind::nll) {
    loss.classAxis = random.pick({-1, 1});
    loss.ignoreIndex = random.pick({-100, 1});
  }
  if (loss.kind == LossKind::crossEntropy)
    loss.labelSmoothing = random.pick({0.0, 0.125});
  return loss;
}

/// Chooses micro-steps or separate samples. They determine the order of sums over the batch.
void chooseSums(Random &random, Choices &choices, const GenerateOptions &options) {
  PipelineOptions &pipeline = choices.options;
  pipeline.microSteps = random.pick({1, 1, 1, 2, 3});
  const bool isBatchPowerOf2 = llvm::isPowerOf2_64(static_cast<uint64_t>(choices.ranks * pipeline.microBatchSize));
  pipeline.splitSamples = !options.emittable && pipeline.microSteps == 1 && isBatchPowerOf2 && random.chance(0.25);
  choices.ordersSums |= pipeline.splitSamples;
}

} // namespace

bool readsInput(const Value *value) {
  llvm::DenseSet<const Value *> seen;
  llvm::SmallVector<const Value *, 16> open = {value};
  while (!open.empty()) {
    const Value *next = open.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (!next->definer())
      return true;
    llvm::append_range(open, next->definer()->operands());
  }
  return false;
}

std::unique_ptr<Target> targetOf(const Choices &choices) {
  return choices.ordersSums ? makeCudaTarget({.treeSums = true}) : makeCpuTarget({});
}

Choices choose(uint64_t seed, const GenerateOptions &options) {
  Random random(seed, "choices");
  Choices choices;
  choices.ranks = random.pick({1, 2, 2, 3, 4, 4});
  PipelineOptions &pipeline = choices.options;
  pipeline.worldSize = choices.ranks;
  pipeline.microBatchSize = random.pick({1, 2, 2, 3});
  choices.ordersSums = random.chance(0.5);
  chooseSums(random, choices, options);
  pipeline.loss = chooseLoss(random);
  pipeline.optimizer = chooseOptimizer(random);
  if (random.chance(0.3))
    pipeline.optimizer.maxNorm = random.pick({0.05, 1.0, 50.0});
  // Programs use a loss scale in fp16 only.
  if (!options.emittable && random.chance(0.2))
    pipeline.optimizer.lossScale = LossScaleOptions{.initial = 16, .window = 1};
  pipeline.autoWrapPolicy =
      random.pick({WrapPolicy::automatic, WrapPolicy::automatic, WrapPolicy::sizeBased, WrapPolicy::none});
  if (pipeline.autoWrapPolicy == WrapPolicy::sizeBased)
    pipeline.minNumParams = random.pick({1, 20, 60});
  using Prefetch = BackwardPrefetch;
  using Recompute = ActivationCheckpointing;
  pipeline.decisions.forwardPrefetch = random.chance(0.7);
  pipeline.decisions.backwardPrefetch = random.pick({Prefetch::pre, Prefetch::pre, Prefetch::post, Prefetch::none});
  const Recompute mode =
      random.pick({Recompute::none, Recompute::none, Recompute::full, Recompute::selective, Recompute::budget});
  pipeline.choices.activationCheckpointing = mode;
  pipeline.activationMemoryBudget = mode == Recompute::budget ? random.pick({0.0, 0.3, 0.6}) : 1;
  pipeline.decisions.maxInflightAllGathers = random.pick({2, 2, 1, 3});
  pipeline.choices.offload = random.pick({Offload::none, Offload::none, Offload::optimizer, Offload::params});
  pipeline.offloadsActivations = random.chance(0.3);
  pipeline.choices.rows = random.pick({RowLookup::on, RowLookup::on, RowLookup::automatic});
  pipeline.minTableBytes = random.pick({1, 1, 16, 4096});
  return choices;
}

std::unique_ptr<Module> generate(uint64_t seed, const Choices &choices, const GenerateOptions &options) {
  auto module = std::make_unique<Module>();
  module->name = "random";
  module->addFunction(FunctionKind::forward);
  if (choices.options.loss.kind == LossKind::model)
    module->facts.modelLoss = choices.options.loss.reduction;
  GraphWriter writer(*module, choices, options, seed);
  writer.addInputs();
  std::vector<Tensor> results;
  for (int64_t graph = 0; graph < options.graphs; ++graph)
    results.push_back(writer.addGraph("graph" + std::to_string(graph) + ".layers."));
  writer.addUnusedParameters();
  writer.finish(choices, results);
  return module;
}

} // namespace fsdpc

// fused: a chain of elementwise ops as one node. Also random_uniform, which a chain may contain.
#include "ir/ops/elementwise.h"
#include "ir/ops/philox.h"

namespace fsdpc {

namespace {

/// Maps an element of a tensor to its random number (philox.h).
class RandomCounter {
public:
  RandomCounter(const RandomUniformAttributes &random, int64_t rank)
      : batchAxis(random.batchAxis), firstSample(random.firstSampleOf(rank)), within(random.shape) {
    if (batchAxis >= 0)
      within[batchAxis] = 1;
    strides = rowMajorStrides(within);
    if (batchAxis >= 0)
      strides[batchAxis] = 0;
  }
  double value(uint64_t key, llvm::ArrayRef<int64_t> coordinates) const {
    int64_t sample = firstSample + (batchAxis < 0 ? 0 : coordinates[batchAxis]);
    return randomUniformAt(key, sample, flatIndex(coordinates, strides));
  }

private:
  int64_t batchAxis;
  int64_t firstSample;
  Shape within, strides;
};

uint64_t keyOf(double seed, double step, int64_t instance) {
  return randomKey(static_cast<uint64_t>(static_cast<int64_t>(seed)), static_cast<uint64_t>(static_cast<int64_t>(step)),
                   static_cast<uint64_t>(instance));
}

int64_t rankOf(const EvaluateContext &context) { return context.environment ? context.environment->batchRank() : 0; }

llvm::Error checkBatchAxis(const OpInfo &info, llvm::StringRef constraint, int64_t batchAxis, size_t rank) {
  if (batchAxis >= -1 && batchAxis < static_cast<int64_t>(rank))
    return llvm::Error::success();
  return constraintError(info.name, constraint,
                         "batch_axis " + llvm::Twine(batchAxis) + " is outside rank " + llvm::Twine(rank));
}

llvm::Error inferRandomUniform(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                               llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(randomUniformInfo, operands))
    return error;
  for (const Type &operand : operands)
    if (!(operand == Type(DType::i64, {})))
      return constraintError("random_uniform", "C1", "seed and step are i64[], not " + toString(operand));
  const auto &own = attributesOf<RandomUniformAttributes>(attributes);
  if (llvm::Error error = checkBatchAxis(randomUniformInfo, "C2", own.batchAxis, own.shape.size()))
    return error;
  constexpr int64_t maxSamples = int64_t(1) << 31;
  if (own.firstSample < 0 || own.rankSamples < 0 || std::max(own.firstSample, own.rankSamples) > maxSamples)
    return constraintError("random_uniform", "C4", "first_sample and rank_samples are from 0 to 2^31");
  return addResult(randomUniformInfo, "C3", DType::f32, own.shape, results);
}

void evaluateRandomUniform(EvaluateContext &context) {
  const auto &own = context.get<RandomUniformAttributes>();
  uint64_t key = keyOf(context.operands[0]->values[0], context.operands[1]->values[0], own.instance);
  RandomCounter counter(own, rankOf(context));
  forEachIndex(own.shape, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    context.results[0].values[flat] = counter.value(key, coordinates);
  });
}

// ---- fused

/// The type that one step computes for one element, from the step op's own shape rule on scalars.
llvm::Expected<DType> stepDType(const Expression::Step &step, llvm::ArrayRef<DType> known,
                                llvm::ArrayRef<int64_t> shape) {
  if (step.op == Op::constant)
    return step.dtype;
  if (!infoOf(step.op).has(elementwise) && step.op != Op::randomUniform)
    return constraintError("fused", "C3", "a step cannot be " + infoOf(step.op).name);
  llvm::SmallVector<Type, 3> operands;
  for (int32_t argument : step.arguments) {
    if (argument < 0 || argument >= static_cast<int32_t>(known.size()))
      return constraintError("fused", "C3", "a step uses value " + llvm::Twine(argument) + " before it exists");
    operands.push_back(Type(known[argument], {}));
  }
  std::unique_ptr<AttributesBase> attributes;
  if (step.op == Op::cast)
    attributes = std::make_unique<Attributes<CastAttributes>>(CastAttributes{step.dtype});
  if (step.op == Op::randomUniform) {
    if (step.immediates.size() != 2 && step.immediates.size() != 4)
      return constraintError("fused", "C3", "random_uniform needs its instance and batch_axis");
    attributes = std::make_unique<Attributes<RandomUniformAttributes>>(randomUniformOf(step, shape));
  }
  llvm::SmallVector<Type, 1> results;
  if (llvm::Error error = infoOf(step.op).infer(operands, attributes.get(), results))
    return error;
  return results[0].dtype();
}

llvm::Error inferFused(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                       llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(fusedInfo, operands))
    return error;
  const auto &own = attributesOf<FusedAttributes>(attributes);
  if (own.body.operandCount != static_cast<int32_t>(operands.size()))
    return constraintError("fused", "C1",
                           "the body takes " + llvm::Twine(own.body.operandCount) + " operands, got " +
                               llvm::Twine(operands.size()));
  llvm::SmallVector<DType, 16> known;
  for (const Type &operand : operands) {
    if (!broadcastsTo(operand.shape(), own.shape))
      return constraintError("fused", "C2", toString(operand) + " does not broadcast to " + shapeText(own.shape));
    known.push_back(operand.dtype());
  }
  for (const Expression::Step &step : own.body.steps) {
    llvm::Expected<DType> dtype = stepDType(step, known, own.shape);
    if (!dtype)
      return dtype.takeError();
    if (*dtype != step.dtype)
      return constraintError("fused", "C3",
                             "a step of " + infoOf(step.op).name + " has " + nameOf(*dtype) + ", not " +
                                 nameOf(step.dtype));
    known.push_back(step.dtype);
  }
  for (int32_t yielded : own.body.yields) {
    if (yielded < 0 || yielded >= static_cast<int32_t>(known.size()))
      return constraintError("fused", "C4", "value " + llvm::Twine(yielded) + " is yielded but does not exist");
    if (llvm::Error error = addResult(fusedInfo, "C4", known[yielded], own.shape, results))
      return error;
  }
  return llvm::Error::success();
}

double stepValue(const Expression::Step &step, llvm::ArrayRef<double> known, llvm::ArrayRef<int64_t> coordinates,
                 llvm::ArrayRef<int64_t> shape, int64_t rank) {
  if (step.op == Op::constant)
    return step.literal;
  llvm::SmallVector<double, 3> arguments;
  for (int32_t argument : step.arguments)
    arguments.push_back(known[argument]);
  if (step.op != Op::randomUniform)
    return infoOf(step.op).scalar(arguments.data(), step.dtype);
  return RandomCounter(randomUniformOf(step, shape), rank)
      .value(keyOf(arguments[0], arguments[1], step.immediates[0]), coordinates);
}

void evaluateFused(EvaluateContext &context) {
  const auto &own = context.get<FusedAttributes>();
  llvm::SmallVector<Shape, 4> strides;
  for (const HostTensor *operand : context.operands)
    strides.push_back(broadcastStrides(operand->type.shape(), own.shape));
  std::vector<double> known;
  forEachIndex(own.shape, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    known.clear();
    for (size_t i = 0; i < context.operands.size(); ++i)
      known.push_back(context.operands[i]->values[flatIndex(coordinates, strides[i])]);
    for (const Expression::Step &step : own.body.steps)
      known.push_back(roundedTo(step.dtype, stepValue(step, known, coordinates, own.shape, rankOf(context))));
    for (size_t i = 0; i < own.body.yields.size(); ++i)
      context.results[i].values[flat] = known[own.body.yields[i]];
  });
}

Cost fusedCost(const Node &node) {
  const auto &own = node.get<FusedAttributes>();
  double elements = static_cast<double>(checkedElements(own.shape).value_or(0));
  return costWithFlops(node, elements * static_cast<double>(own.body.steps.size()));
}

constexpr llvm::StringRef namesSeedStep[] = {"seed", "step"};
constexpr llvm::StringRef namesMany[] = {"x..."};

/// Random numbers have no batch of their own and adopt that of the other operands of their users.
BatchFact belongsToReader(const Node &, llvm::ArrayRef<BatchFact>, unsigned) { return {}; }

} // namespace

llvm::SmallVector<int64_t, 2> immediatesOf(const RandomUniformAttributes &random) {
  llvm::SmallVector<int64_t, 2> immediates = {random.instance, random.batchAxis};
  if (random.firstSample != 0 || random.rankSamples != 0)
    immediates.append({random.firstSample, random.rankSamples});
  return immediates;
}

RandomUniformAttributes randomUniformOf(const Expression::Step &step, llvm::ArrayRef<int64_t> shape) {
  RandomUniformAttributes random{step.immediates[0], step.immediates[1], Shape(shape)};
  if (step.immediates.size() == 4) {
    random.firstSample = step.immediates[2];
    random.rankSamples = step.immediates[3];
  }
  return random;
}

// Not `elementwise`: it has no scalar function of its operands only. The fuse pass and `fused` handle it explicitly.
constinit const OpInfo randomUniformInfo = {
    .name = "random_uniform",
    .doc = "Philox numbers in [0, 1), a function of seed, step, instance, global sample and element (ir/ops/philox.h). "
           "(C1) "
           "seed and step are i64[]. (C2) batch_axis is -1 or an axis of `shape`. (C3) `shape` has no negative dim. "
           "(C4) first_sample and rank_samples are from 0 to 2^31.",
    .operandNames = namesSeedStep,
    .traits = pure | usesEnvironment,
    .makeAttributes = makeAttributes<RandomUniformAttributes>,
    .infer = inferRandomUniform,
    .evaluate = evaluateRandomUniform,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = belongsToReader,
    .element = {.operations = 40},
};

// Made after autodiff, so it needs no derivative.
constinit const OpInfo fusedInfo = {
    .name = "fused",
    .doc = "The body's yields, per element of `shape`, over operands broadcast to it. "
           "(C1) The body takes as many operands as "
           "given. (C2) Each broadcasts to `shape`. (C3) Steps are elementwise ops, "
           "constants or random_uniform over earlier "
           "values, of the dtype their op gives. (C4) Yields name existing values.",
    .operandNames = namesMany,
    .traits = pure,
    .makeAttributes = makeAttributes<FusedAttributes>,
    .infer = inferFused,
    .evaluate = evaluateFused,
    .vjp = notDifferentiable,
    .cost = fusedCost,
    .computeClass = ComputeClass::loop,
    .stages = fromSharded,
};

} // namespace fsdpc

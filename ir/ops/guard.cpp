// Ops between gradients and their optimizers: the global norm, the factor that clips it, whether the step applies, and
// the next loss scale. None of them depends on how gradients are split or in which order they are summed (see guard.h).
#include "ir/ops/guard.h"
#include "ir/ops/helpers.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace fsdpc {

namespace {

constexpr int digitBits = 32;
constexpr uint64_t digitMask = 0xffffffff;

/// The value that an accumulator represents.
class ExactSum {
public:
  void addSquareOf(float value) {
    if (std::isnan(value))
      ++nans;
    else if (std::isinf(value))
      ++infinities;
    else
      addFinite(std::bit_cast<uint32_t>(value));
  }
  void add(const HostTensor &accumulator) {
    for (int64_t i = 0; i < squareSumDigits; ++i)
      addAt(i, static_cast<uint64_t>(accumulator.values[i]));
    nans += accumulator.values[squareSumNaNs];
    infinities += accumulator.values[squareSumInfinities];
  }
  void store(HostTensor &accumulator) const {
    std::copy(digits.begin(), digits.end(), accumulator.values.begin());
    accumulator.values[squareSumNaNs] = nans;
    accumulator.values[squareSumInfinities] = infinities;
  }
  /// The square root in f64 precision.
  double root() const {
    if (nans > 0)
      return std::numeric_limits<double>::quiet_NaN();
    if (infinities > 0)
      return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (int64_t i = squareSumDigits; i-- > 0;)
      sum += std::ldexp(static_cast<double>(digits[i]), static_cast<int>(digitBits * i) + squareSumExponent);
    return std::sqrt(sum);
  }

private:
  /// (mantissa * 2^(exponent - 150))^2, in units of 2^-298.
  void addFinite(uint32_t bits) {
    const uint32_t field = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    const uint64_t mantissa = field == 0 ? fraction : fraction | 0x800000;
    const uint32_t shift = 2 * (std::max(field, 1U) - 1), within = shift % digitBits;
    const uint64_t square = mantissa * mantissa;
    addAt(shift / digitBits, (square << within) & digitMask);
    addAt(shift / digitBits + 1, (square >> (digitBits - within)) & digitMask);
    addAt(shift / digitBits + 2, within == 0 ? 0 : square >> (2 * digitBits - within));
  }
  void addAt(size_t digit, uint64_t value) {
    for (uint64_t carry = value; carry != 0; ++digit) {
      assert(digit < digits.size() && "an accumulator holds the sum of any tensors that there are");
      carry += digits[digit];
      digits[digit] = carry & digitMask;
      carry >>= digitBits;
    }
  }

  std::array<uint64_t, squareSumDigits> digits = {};
  double nans = 0, infinities = 0;
};

const Type accumulatorType(DType::i64, {squareSumWords});

llvm::Error requireType(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands, size_t operand,
                        const Type &wanted) {
  if (operands[operand] == wanted)
    return llvm::Error::success();
  return constraintError(info.name, constraint,
                         "operand " + llvm::Twine(operand) + " is " + toString(wanted) + " but is " +
                             toString(operands[operand]));
}

// ---- square_sum

llvm::Error inferSquareSum(llvm::ArrayRef<Type> operands, const AttributesBase *,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(squareSumInfo, operands))
    return error;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!isFloat(operands[i].dtype()) || operands[i].dtype() == DType::f64)
      return constraintError(squareSumInfo.name, "C1",
                             "operand " + llvm::Twine(i) + " is f32, bf16 or f16 but is " + toString(operands[i]));
  results.push_back(accumulatorType);
  return llvm::Error::success();
}

void evaluateSquareSum(EvaluateContext &context) {
  ExactSum sum;
  for (const HostTensor *x : context.operands)
    for (double value : x->values)
      sum.addSquareOf(static_cast<float>(value));
  sum.store(context.results[0]);
}

Cost costOfSquareSum(const Node &node) { return costWithFlops(node, 2 * costOfTypes(node).bytesRead / 4); }

// ---- clip_norm

/// The index of the first operand after the accumulators.
size_t accumulatorsOf(const ClipNormAttributes &attributes, size_t operands) {
  size_t others = size_t{1} + attributes.bounded + attributes.scaled;
  return operands > others ? operands - others : 0;
}

llvm::Error inferClipNorm(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(clipNormInfo, operands))
    return error;
  const auto &a = attributesOf<ClipNormAttributes>(attributes);
  const size_t accumulators = accumulatorsOf(a, operands.size());
  if (accumulators == 0)
    return constraintError(clipNormInfo.name, "C1", "these attributes need more operands");
  for (size_t i = 0; i < accumulators; ++i)
    if (llvm::Error error = requireType(clipNormInfo, "C2", operands, i, accumulatorType))
      return error;
  if (llvm::Error error = requireType(clipNormInfo, "C3", operands, accumulators, Type(DType::f32, {})))
    return error;
  for (size_t i = accumulators + 1; i < operands.size(); ++i)
    if (llvm::Error error = requireType(clipNormInfo, "C4", operands, i, Type(DType::f64, {})))
      return error;
  for (DType dtype : {DType::f32, DType::f32, DType::boolean})
    results.push_back(Type(dtype, {}));
  return llvm::Error::success();
}

void evaluateClipNorm(EvaluateContext &context) {
  const auto &attributes = context.get<ClipNormAttributes>();
  const size_t accumulators = accumulatorsOf(attributes, context.operands.size());
  auto number = [&](size_t behind) { return context.operands[accumulators + behind]->values[0]; };
  ExactSum sum;
  for (const HostTensor *accumulator : context.operands.take_front(accumulators))
    sum.add(*accumulator);
  const double unscale = attributes.scaled ? 1 / number(size_t{1} + attributes.bounded) : 1;
  const double norm = static_cast<float>(sum.root() * unscale);
  const double clip = attributes.bounded ? std::min(1.0, number(1) / (norm + 1e-6)) : 1;
  const bool applies = std::isfinite(norm) && std::isfinite(static_cast<float>(number(0)));
  context.results[0].values[0] = norm;
  context.results[1].values[0] = applies ? clip * unscale : 0;
  context.results[2].values[0] = applies;
}

// ---- spike_guard

llvm::Error inferSpikeGuard(llvm::ArrayRef<Type> operands, const AttributesBase *,
                            llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(spikeGuardInfo, operands))
    return error;
  const DType dtypes[] = {DType::f32, DType::boolean, DType::f64, DType::f64, DType::f64, DType::i64};
  for (size_t i = 0; i < operands.size(); ++i)
    if (llvm::Error error = requireType(spikeGuardInfo, "C1", operands, i, Type(dtypes[i], {})))
      return error;
  for (size_t i : {1, 3, 4, 5})
    results.push_back(operands[i]);
  return llvm::Error::success();
}

void evaluateSpikeGuard(EvaluateContext &context) {
  auto number = [&](size_t operand) { return context.operands[operand]->values[0]; };
  const double limit = number(2), norm = number(0);
  double mean = number(3), variance = number(4), count = number(5);
  bool applies = number(1) != 0;
  if (applies && limit > 0) {
    const double distance = norm - mean;
    applies = count < spikeGuardFirst || distance <= limit * std::sqrt(variance);
    if (applies) {
      const double weight = 1 / std::min(++count, double(spikeGuardMemory));
      mean += weight * distance;
      variance = (1 - weight) * (variance + weight * distance * distance);
    }
  }
  const double results[] = {double(applies), mean, variance, count};
  for (size_t i = 0; i < 4; ++i)
    context.results[i].values[0] = results[i];
}

// ---- adjust_loss_scale

llvm::Error inferAdjustLossScale(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                 llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(adjustLossScaleInfo, operands))
    return error;
  const DType dtypes[] = {DType::f64, DType::i64, DType::i64, DType::boolean};
  for (size_t i = 0; i < operands.size(); ++i)
    if (llvm::Error error = requireType(adjustLossScaleInfo, "C1", operands, i, Type(dtypes[i], {})))
      return error;
  const auto &a = attributesOf<LossScaleAttributes>(attributes);
  if (a.window < 1 || a.hysteresis < 1 || !(a.minimum >= 0))
    return constraintError(adjustLossScaleInfo.name, "C2", "window and hysteresis are 1 or more, minimum is 0 or more");
  results.append(operands.begin(), operands.begin() + 4);
  return llvm::Error::success();
}

void evaluateAdjustLossScale(EvaluateContext &context) {
  const auto &attributes = context.get<LossScaleAttributes>();
  bool exhausted = false;
  double scale = context.operands[0]->values[0], good = context.operands[1]->values[0],
         left = context.operands[2]->values[0];
  if (context.operands[3]->values[0] == 0) {
    good = static_cast<double>(goodStepsAtFirst(attributes.minimum));
    if (left > 1)
      --left;
    else {
      exhausted = scale <= attributes.minimum;
      scale = std::max(scale / 2, attributes.minimum);
    }
  } else if (++good >= static_cast<double>(attributes.window)) {
    good = 0;
    left = static_cast<double>(attributes.hysteresis);
    if (2 * scale <= std::numeric_limits<float>::max())
      scale *= 2;
  }
  context.results[0].values[0] = scale;
  context.results[1].values[0] = good;
  context.results[2].values[0] = left;
  context.results[3].values[0] = exhausted;
}

constexpr llvm::StringRef squareSumNames[] = {"x..."};
constexpr llvm::StringRef clipNormNames[] = {"sum", "sums_and_numbers..."};
constexpr llvm::StringRef spikeGuardNames[] = {"norm", "applies", "limit", "mean", "variance", "count"};
constexpr llvm::StringRef adjustLossScaleNames[] = {"scale", "good_steps", "hysteresis", "applies"};

} // namespace

const OpInfo squareSumInfo = {
    .name = "square_sum",
    .doc =
        "The exact sum of the squares of all elements of all operands, as an accumulator (ir/ops/guard.h). (C1) Every "
        "operand is f32, bf16 or f16.",
    .operandNames = squareSumNames,
    .traits = pure,
    .infer = inferSquareSum,
    .evaluate = evaluateSquareSum,
    .vjp = notDifferentiable,
    .cost = costOfSquareSum,
    .computeClass = ComputeClass::move,
    .stages = fromTrain,
};

const OpInfo clipNormInfo = {
    .name = "clip_norm",
    .doc =
        "norm = the square root of what the accumulators sum up to, scale = min(1, max_norm / (norm + 1e-6)), as "
        "torch's clip_grad_norm_ has it, and applies = are norm and loss finite; scale is 0 where they are not. "
        "Operands accumulators, loss [, max_norm] [, loss_scale], those in brackets with bounded and scaled: without "
        "a bound scale is 1, and with a loss scale norm and scale are divided by it. (C1) as many operands as the "
        "attributes say. (C2) accumulators are those of square_sum. (C3) loss is f32[]. (C4) numbers are f64[].",
    .operandNames = clipNormNames,
    .traits = pure,
    .makeAttributes = makeAttributes<ClipNormAttributes>,
    .infer = inferClipNorm,
    .evaluate = evaluateClipNorm,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromTrain,
};

const OpInfo spikeGuardInfo = {
    .name = "spike_guard",
    .doc =
        "Does the step still apply? Not if its norm is more than `limit` standard deviations above the mean of those "
        "of "
        "the steps before, of which there must be 20; a limit of 0 is none, and then nothing is kept. Mean and "
        "variance "
        "are running ones, with the weight of one in `count`, at most 100, and know only steps that applied. Results "
        "applies', mean', variance', count'. (C1) norm is f32[], applies bool[], limit, mean and variance are f64[], "
        "count is i64[].",
    .operandNames = spikeGuardNames,
    .traits = pure,
    .infer = inferSpikeGuard,
    .evaluate = evaluateSpikeGuard,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromTrain,
};

const OpInfo adjustLossScaleInfo = {
    .name = "adjust_loss_scale",
    .doc =
        "The dynamic loss scale of the next step. After `window` steps that applied, since the last that did not or "
        "since it grew, the scale doubles, unless f32 ends there, and hysteresis is full again. A step that does not "
        "apply takes one of hysteresis; where only one is left it halves the scale instead, down to `minimum`. With "
        "hysteresis 1 and minimum 0 that is torch.amp.GradScaler, otherwise DeepSpeed's DynamicLossScaler, which wants "
        "one step more behind one that did not apply, and at first: good_steps is -1 then. Results are the three, and "
        "whether the scale should have been halved but is as low as it gets. (C1) "
        "scale is f64[], good_steps and hysteresis are i64[], applies is bool[]. (C2) window and hysteresis are 1 or "
        "more, minimum is 0 or more.",
    .operandNames = adjustLossScaleNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LossScaleAttributes>,
    .infer = inferAdjustLossScale,
    .evaluate = evaluateAdjustLossScale,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromTrain,
};

} // namespace fsdpc

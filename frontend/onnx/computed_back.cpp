#include "frontend/onnx/computed_back.h"

#include "frontend/onnx/source_line.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>

namespace fsdpc {

namespace {

bool isScalarTensor(llvm::StringRef operation) { return operation.starts_with("scalar_tensor"); }

std::string whyNoInverse(llvm::StringRef operation) {
  return operation == "getitem" ? "a getitem may be of any operation (batch_norm standardizes weights)"
                                : (operation + " has no inverse").str();
}

std::string forLine(llvm::StringRef line) {
  return line.empty() ? "" : ("; the number is from the source line '" + line + "'").str();
}

} // namespace

/// The scalars of a chain's steps.
struct InvertedParameters::Numbers {
  std::vector<float> values;
  std::optional<bool> areFirst; ///< unknown: either
  std::string line;             ///< the source line that has the number
};

namespace {

/// The chains of all possible orders of the steps and of their scalars.
std::vector<ComputedChain> chainsWith(llvm::ArrayRef<ChainStep> steps, std::vector<float> numbers,
                                      llvm::ArrayRef<bool> areFirst, bool isLastKnown) {
  std::vector<ComputedChain> chains;
  llvm::sort(numbers);
  do {
    for (bool isFirst : areFirst) {
      std::vector<ChainStep> filled = steps.vec();
      size_t next = 0;
      for (ChainStep &step : filled) {
        if (!takesScalar(step.op))
          continue;
        step.scalar = numbers[next++];
        step.isScalarFirst = isFirst && (step.op == "Sub" || step.op == "Div");
      }
      for (ComputedChain &chain : ordersOf(filled, isLastKnown))
        if (!llvm::is_contained(chains, chain))
          chains.push_back(std::move(chain));
    }
  } while (std::next_permutation(numbers.begin(), numbers.end()));
  return chains;
}

} // namespace

llvm::Expected<RestoredOrWhy> InvertedParameters::restore(const onnx::TensorProto &tensor, const Folding &folding) {
  constexpr size_t maxSteps = 4;
  std::vector<ChainStep> steps;
  for (const std::string &operation : folding.computing) {
    if (invertibleOp(operation).empty())
      return RestoredOrWhy{false, whyNoInverse(operation)};
    steps.push_back({invertibleOp(operation).str(), std::nullopt, false});
  }
  if (folding.repeats || folding.readsRows || steps.size() > maxSteps)
    return RestoredOrWhy();
  if (std::string reader = values.foreignReader(tensor, folding.parameter); !reader.empty())
    return RestoredOrWhy{false, "'" + reader + "' reads it for another parameter of equal values"};
  for (const std::string &operation : folding.moving)
    if (!keepsOrder(operation))
      return RestoredOrWhy{false, operation + " is among the steps"};
  const size_t needed = llvm::count_if(steps, [](const ChainStep &step) { return takesScalar(step.op); });
  std::optional<Numbers> numbers = numbersOf(tensor, folding, needed);
  if (!numbers)
    return RestoredOrWhy{false, needed ? "the file does not hold the number of '" + folding.computing.back() + "'"
                                       : "operands of it are not in the file"};
  llvm::SmallVector<bool, 2> areFirst = {numbers->areFirst.value_or(false)};
  if (!numbers->areFirst || (values.parameter(folding.parameter) && numbers->line.empty()))
    areFirst = {false, true};
  return choose(tensor, folding, chainsWith(steps, numbers->values, areFirst, folding.last == Moves::computed),
                numbers->line);
}

/// Finds `needed` scalars, one for each step that has one. Other operands are shapes and axes of operations that move
/// elements.
std::optional<InvertedParameters::Numbers> InvertedParameters::numbersOf(const onnx::TensorProto &tensor,
                                                                         const Folding &folding, size_t needed) const {
  const bool hasScalarTensor = llvm::any_of(folding.moving, isScalarTensor);
  const bool hasShapes = llvm::any_of(folding.moving, [](llvm::StringRef name) { return !isScalarTensor(name); });
  Numbers numbers;
  size_t absent = 0;
  for (const std::string &operand : folding.operands) {
    const onnx::TensorProto *scalar = values.index.initializer(operand);
    std::optional<DType> dtype = scalar ? dtypeOf(scalar->data_type()) : std::nullopt;
    absent += scalar ? 0 : 1;
    const bool isNumber = dtype && elementsOf(*scalar) == 1 && (hasScalarTensor || isFloat(*dtype));
    if (!isNumber)
      continue;
    llvm::Expected<Dense> value = readDense(values.repair.model, *scalar);
    if (value)
      numbers.values.push_back(static_cast<float>(value->at(0)));
    else
      llvm::consumeError(value.takeError());
  }
  if (numbers.values.empty() && needed == 1)
    return numbersOfLine(tensor, folding);
  if (numbers.values.size() != needed || (absent > 0 && !hasShapes))
    return std::nullopt;
  // `1 - w` is traced as a one-element tensor minus w, `w - 1` with the number after w.
  numbers.areFirst = hasScalarTensor;
  if (hasScalarTensor && needed > 1)
    numbers.areFirst.reset();
  return numbers;
}

std::optional<InvertedParameters::Numbers> InvertedParameters::numbersOfLine(const onnx::TensorProto &tensor,
                                                                             const Folding &folding) const {
  constexpr size_t maxReaders = 16;
  for (const Read &read : values.index.consumers(tensor.name()).take_front(maxReaders)) {
    if (withoutCallCount(values.index.scopes[read.node]) != moduleOf(folding.parameter))
      continue;
    llvm::StringRef line = sourceLine(values.index.graph.node(read.node));
    std::optional<ScalarOperand> beside = findScalarOperand(line, leafOf(folding.parameter));
    if (!beside)
      continue;
    const llvm::StringRef op = beside->operation == '+'   ? "Add"
                               : beside->operation == '-' ? "Sub"
                               : beside->operation == '*' ? "Mul"
                                                          : "Div";
    const bool isOfStep =
        llvm::any_of(folding.computing, [&](llvm::StringRef operation) { return invertibleOp(operation) == op; });
    if (isOfStep)
      return Numbers{{beside->number}, beside->isNumberFirst, line.str()};
  }
  return std::nullopt;
}

llvm::Expected<RestoredOrWhy> InvertedParameters::choose(const onnx::TensorProto &tensor, const Folding &folding,
                                                         llvm::ArrayRef<ComputedChain> chains, llvm::StringRef line) {
  llvm::Expected<std::optional<std::vector<float>>> stored = values.floats(tensor);
  if (!stored)
    return stored.takeError();
  if (!*stored || (*stored)->empty())
    return RestoredOrWhy{false, "its values are absent or not f32"};
  const onnx::TensorProto *source = values.parameter(folding.parameter);
  if (const onnx::TensorProto *moved = values.moved(folding.parameter); !source && moved)
    return RestoredOrWhy{false, "it is stored as '" + moved->name() + "' too"};
  llvm::Expected<std::optional<std::vector<float>>> known = std::nullopt;
  if (source)
    known = values.floats(*source);
  if (!known)
    return known.takeError();
  if (source && !*known)
    return RestoredOrWhy{false, "the parameter's values are absent or not f32"};
  std::vector<const ComputedChain *> fitting;
  std::vector<float> found;
  for (const ComputedChain &chain : chains) {
    std::optional<std::vector<float>> back = source ? std::nullopt : computeBack(chain, **stored);
    if (source ? !gives(chain, **known, **stored) : !back)
      continue;
    fitting.push_back(&chain);
    if (back)
      found = std::move(*back);
  }
  if (fitting.size() != 1)
    return RestoredOrWhy{false, fitting.empty() ? "no order of the steps reproduces its values"
                                                : "several orders of the steps fit"};
  note(tensor, folding.parameter, *fitting.front(), found, line);
  evaluateChain(tensor, folding.parameter, *fitting.front());
  return RestoredOrWhy{true, ""};
}

/// Makes an initializer of the values found if the file does not have the parameter, and adds a remark.
void InvertedParameters::note(const onnx::TensorProto &tensor, const std::string &parameter, const ComputedChain &chain,
                              llvm::ArrayRef<float> found, llvm::StringRef line) {
  const std::string steps = "'" + tensor.name() + "' (" + toString(chain) + ")";
  std::vector<std::string> &remarks = values.repair.remarks;
  if (values.parameter(parameter)) {
    remarks.push_back("'" + parameter + "' was also computed into " + steps + ", which is computed from it again");
    return;
  }
  Shape own;
  for (int64_t dim : shapeOf(tensor))
    if (dim != 1 || operationOfFolded(tensor.name()) != "unsqueeze")
      own.push_back(dim);
  const std::string text = "was computed into " + steps + " and is computed back, up to a rounding" + forLine(line);
  llvm::ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t *>(found.data()), found.size() * sizeof(float));
  values.make(parameter, tensor.data_type(), own, bytes, text);
  remarks.push_back("'" + parameter + "' " + text);
}

void InvertedParameters::evaluateChain(const onnx::TensorProto &tensor, const std::string &parameter,
                                       const ComputedChain &chain) {
  std::string value = parameter;
  for (const ChainStep &step : chain)
    value = step.scalar ? values.edit.addScalar(step.op, value, *step.scalar, step.isScalarFirst)
                        : values.edit.addUnary(step.op, value);
  const Shape target = shapeOf(tensor);
  if (shapeOf(*values.parameter(parameter)) != target)
    value = values.edit.addReshape(value, target);
  values.edit.replaceInitializer(tensor.name(), value, {});
}

} // namespace fsdpc

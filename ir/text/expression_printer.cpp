// The body of a fused node: `s0 = add a0, a1; s1 = mul s0, 1.5; yield s1`.
//
// a0, a1, ... are the node's operands. A literal that is used once, and whose step directly precedes its user, is
// printed inside the user. Every other constant is a separate step. This preserves the order of the steps.
#include "ir/text/literals.h"
#include "ir/text/node_printer.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc::text {

namespace {

using Step = Expression::Step;

class ExpressionPrinter {
public:
  ExpressionPrinter(const Expression &expression, llvm::ArrayRef<DType> operands)
      : expression(expression), operands(operands), inlined(expression.steps.size()), names(expression.steps.size()) {}
  std::string run();

private:
  /// Index of the step that an argument index refers to. -1 for operands and for indices outside the body.
  int64_t stepIndex(int32_t argument) const {
    int64_t index = static_cast<int64_t>(argument) - expression.operandCount;
    return index < static_cast<int64_t>(expression.steps.size()) ? std::max<int64_t>(index, -1) : -1;
  }
  void findInlined();
  void writeStep(size_t index);
  std::string argumentText(int32_t argument) const;
  DType dtypeOf(int32_t argument) const;

  const Expression &expression;
  llvm::ArrayRef<DType> operands;
  std::vector<bool> inlined;
  std::vector<std::string> names;
  std::string text;
  llvm::raw_string_ostream out{text};
};

void ExpressionPrinter::findInlined() {
  std::vector<uint32_t> uses(expression.steps.size());
  auto count = [&](int32_t argument) {
    if (int64_t index = stepIndex(argument); index >= 0)
      ++uses[index];
  };
  for (const Step &step : expression.steps)
    llvm::for_each(step.arguments, count);
  llvm::for_each(expression.yields, count);

  for (size_t i = 0; i < expression.steps.size(); ++i) {
    llvm::SmallVector<int64_t, 3> literals;
    for (int32_t argument : expression.steps[i].arguments)
      if (int64_t index = stepIndex(argument);
          index >= 0 && expression.steps[index].op == Op::constant && uses[index] == 1)
        literals.push_back(index);
    bool rightBefore = expression.steps[i].op != Op::constant;
    for (size_t k = 0; k < literals.size(); ++k)
      rightBefore &= literals[k] == static_cast<int64_t>(i - literals.size() + k);
    for (int64_t index : literals)
      inlined[index] = rightBefore;
  }
}

DType ExpressionPrinter::dtypeOf(int32_t argument) const {
  if (int64_t index = stepIndex(argument); index >= 0)
    return expression.steps[index].dtype;
  return argument >= 0 && static_cast<size_t>(argument) < operands.size() ? operands[argument] : DType::f32;
}

std::string ExpressionPrinter::argumentText(int32_t argument) const {
  int64_t index = stepIndex(argument);
  return index >= 0 ? names[index] : "a" + llvm::itostr(argument);
}

void ExpressionPrinter::writeStep(size_t index) {
  const Step &step = expression.steps[index];
  auto suffix = [](DType dtype) { return (" : " + nameOf(dtype)).str(); };
  out << names[index] << " = ";
  if (step.op == Op::constant) {
    out << scalarText(step.dtype, step.literal) << (step.dtype == DType::f32 ? "" : suffix(step.dtype)) << "; ";
    return;
  }
  out << infoOf(step.op).name;
  for (size_t i = 0; i < step.immediates.size(); ++i)
    out << (i == 0 ? "[" : ", ") << step.immediates[i];
  out << (step.immediates.empty() ? "" : "]");

  llvm::SmallVector<DType, 3> types;
  llvm::SmallVector<std::optional<DType>, 3> typesWithoutLiterals;
  for (int32_t argument : step.arguments) {
    int64_t from = stepIndex(argument);
    types.push_back(dtypeOf(argument));
    typesWithoutLiterals.push_back(from >= 0 && inlined[from] ? std::nullopt : std::optional<DType>(types.back()));
  }
  DType literalType = literalDType(step.op, typesWithoutLiterals);
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    out << (i == 0 ? " " : ", ");
    if (typesWithoutLiterals[i]) {
      out << argumentText(step.arguments[i]);
      continue;
    }
    std::string literal = scalarText(types[i], expression.steps[stepIndex(step.arguments[i])].literal);
    out << (types[i] == literalType ? literal : (nameOf(types[i]) + "(" + literal + ")").str());
  }
  out << (stepDType(step.op, types) == step.dtype ? "" : suffix(step.dtype)) << "; ";
}

std::string ExpressionPrinter::run() {
  findInlined();
  int64_t number = 0;
  for (size_t i = 0; i < expression.steps.size(); ++i)
    if (!inlined[i])
      names[i] = "s" + llvm::itostr(number++);
  for (size_t i = 0; i < expression.steps.size(); ++i)
    if (!inlined[i])
      writeStep(i);
  out << "yield";
  for (size_t i = 0; i < expression.yields.size(); ++i)
    out << (i == 0 ? " " : ", ") << argumentText(expression.yields[i]);
  return std::move(text);
}

} // namespace

std::string expressionText(const Expression &expression, llvm::ArrayRef<DType> operands) {
  return ExpressionPrinter(expression, operands).run();
}

} // namespace fsdpc::text

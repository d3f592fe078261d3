// Attributes: fields of any kind, the elements of a constant, the body of a fused node.
#include "ir/text/literals.h"
#include "ir/text/reader.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc::text {

/// Reads one body(...): `s0 = add a0, 1.5; yield s0`. See expression_printer.cpp for the syntax.
class ExpressionReader {
public:
  ExpressionReader(Reader &reader, const NodeText &node, Expression &expression)
      : reader(reader), node(node), expression(expression) {}
  bool read();

private:
  struct Argument {
    Token at;
    int32_t index = -1;
    std::optional<DType> dtype; ///< nullopt: a literal whose dtype follows from the step
    llvm::StringRef literal;    ///< empty unless it is one
  };
  bool readStep();
  bool readImmediates(Expression::Step &step);
  bool readArgument(Argument &argument);
  bool readArguments(llvm::SmallVectorImpl<Argument> &arguments);
  bool readReference(Argument &argument);
  bool readOperation(Expression::Step &step);
  bool appendLiteral(const Token &at, llvm::StringRef literal, DType dtype, int32_t &index);
  DType dtypeOf(int32_t index) const;

  Reader &reader;
  const NodeText &node;
  Expression &expression;
  llvm::StringMap<int32_t> steps; ///< by name
};

bool ExpressionReader::read() {
  expression = Expression();
  expression.operandCount = static_cast<int32_t>(node.operands.size());
  while (!reader.acceptWord("yield"))
    if (!readStep() || !reader.expect(';'))
      return false;
  return reader.token.isPunctuation(')') || reader.commaSeparated([&] {
    Argument argument;
    if (!readReference(argument))
      return false;
    expression.yields.push_back(argument.index);
    return true;
  });
}

DType ExpressionReader::dtypeOf(int32_t index) const {
  size_t position = index;
  return position < node.operands.size() ? node.operands[position]->type().dtype()
                                         : expression.steps[position - node.operands.size()].dtype;
}

bool ExpressionReader::readStep() {
  Token name = reader.token;
  if (name.kind != Token::Kind::word)
    return reader.failHere("expected `name = op arguments`, or yield");
  reader.advance();
  if (!reader.expect('='))
    return false;
  int32_t index;
  bool isLiteral = reader.token.kind == Token::Kind::number || reader.token.isWord("inf") || reader.token.isWord("nan");
  if (isLiteral) {
    Token at = reader.token;
    llvm::StringRef literal;
    DType dtype = DType::f32;
    if (!reader.readNumberText(literal) || (reader.accept(':') && !reader.readDType(dtype)) ||
        !appendLiteral(at, literal, dtype, index))
      return false;
  } else {
    Expression::Step step{Op::constant, DType::f32, {}, {}, 0};
    if (!readOperation(step))
      return false;
    expression.steps.push_back(std::move(step));
    index = expression.operandCount + static_cast<int32_t>(expression.steps.size()) - 1;
  }
  return steps.try_emplace(name.text, index).second ||
         reader.fail(name, "step " + name.text.take_front(60) + " is defined twice");
}

bool ExpressionReader::readOperation(Expression::Step &step) {
  Token at = reader.token;
  std::optional<Op> op = at.kind == Token::Kind::word ? opFromName(at.text) : std::nullopt;
  if (!op || *op == Op::constant)
    return reader.failHere("expected an elementwise op or a number");
  step.op = *op;
  reader.advance();
  llvm::SmallVector<Argument, 3> arguments;
  if (!readImmediates(step) || !readArguments(arguments))
    return false;

  llvm::SmallVector<std::optional<DType>, 3> known;
  for (const Argument &argument : arguments)
    known.push_back(argument.literal.empty() ? argument.dtype : std::nullopt);
  DType literalType = literalDType(step.op, known);
  llvm::SmallVector<DType, 3> types;
  for (Argument &argument : arguments) {
    types.push_back(argument.dtype.value_or(literalType));
    if (!argument.literal.empty() && !appendLiteral(argument.at, argument.literal, types.back(), argument.index))
      return false;
    step.arguments.push_back(argument.index);
  }
  std::optional<DType> dtype = stepDType(step.op, types);
  step.dtype = dtype.value_or(DType::f32);
  if (reader.accept(':'))
    return reader.readDType(step.dtype);
  return dtype || reader.failHere(at.text + " needs its element type: `: f32`");
}

bool ExpressionReader::readImmediates(Expression::Step &step) {
  if (!reader.accept('['))
    return true;
  return reader.commaSeparated([&] { return reader.readInteger(step.immediates.emplace_back()); }) &&
         reader.expect(']');
}

bool ExpressionReader::readArguments(llvm::SmallVectorImpl<Argument> &arguments) {
  bool none = reader.token.isPunctuation(';') || reader.token.isPunctuation(':');
  return none || reader.commaSeparated([&] { return readArgument(arguments.emplace_back()); });
}

bool ExpressionReader::readArgument(Argument &argument) {
  argument.at = reader.token;
  bool isNumber = reader.token.kind == Token::Kind::number || reader.token.isWord("inf") || reader.token.isWord("nan");
  if (isNumber)
    return reader.readNumberText(argument.literal);
  if (reader.token.kind == Token::Kind::word && dtypeFromName(reader.token.text)) {
    DType dtype;
    bool read =
        reader.readDType(dtype) && reader.parenthesized([&] { return reader.readNumberText(argument.literal); });
    argument.dtype = dtype;
    return read;
  }
  return readReference(argument);
}

bool ExpressionReader::readReference(Argument &argument) {
  llvm::StringRef text = reader.token.kind == Token::Kind::word ? reader.token.text : "";
  uint64_t operand;
  if (auto found = steps.find(text); found != steps.end())
    argument.index = found->second;
  else if (text.starts_with("a") && !text.drop_front().getAsInteger(10, operand) && operand < node.operands.size())
    argument.index = static_cast<int32_t>(operand);
  else
    return reader.failHere("expected an operand (a0, a1, ...) or a step above");
  argument.dtype = dtypeOf(argument.index);
  reader.advance();
  return true;
}

bool ExpressionReader::appendLiteral(const Token &at, llvm::StringRef literal, DType dtype, int32_t &index) {
  std::optional<double> value = parseScalar(dtype, literal);
  if (!value)
    return reader.fail(at, "'" + literal.take_front(60) + "' is not a number that an f64 can hold");
  expression.steps.push_back({Op::constant, dtype, {}, {}, *value});
  index = expression.operandCount + static_cast<int32_t>(expression.steps.size()) - 1;
  return true;
}

bool Reader::readPositionalSymbols(NodeText &node) {
  for (const Field &field : node.fields)
    if (isPositional(field) && token.kind == Token::Kind::global && !token.startsLine &&
        !readSymbol(field.as<Symbol>()->name))
      return false;
  return true;
}

bool Reader::readField(NodeText &node, const Field &field) {
  if (bool *flag = field.as<bool>()) {
    *flag = token.text == field.name;
    advance();
    return true;
  }
  advance();
  return parenthesized([&] {
    if (int64_t *value = field.as<int64_t>())
      return readInteger(*value);
    if (double *value = field.as<double>())
      return readDouble(*value);
    if (std::string *value = field.as<std::string>())
      return readString(*value);
    if (DType *value = field.as<DType>())
      return readDType(*value);
    if (Symbol *value = field.as<Symbol>())
      return readSymbol(value->name);
    if (Shape *value = field.as<Shape>())
      return readDims(*value);
    if (Dense *value = field.as<Dense>())
      return readElements(node, *value);
    if (Expression *value = field.as<Expression>())
      return ExpressionReader(*this, node, *value).read();
    std::vector<std::string> &strings = *field.as<std::vector<std::string>>();
    return token.isPunctuation(')') || commaSeparated([&] { return readString(strings.emplace_back()); });
  });
}

bool Reader::readElements(NodeText &node, Dense &target) {
  NodeText::Elements &elements = node.elements;
  elements.target = &target;
  if (token.kind == Token::Kind::word && dtypeFromName(token.text)) {
    DType dtype;
    if (!readDType(dtype))
      return false;
    elements.dtype = dtype;
  }
  elements.first = token;
  if (acceptWord("hex")) {
    if (token.kind != Token::Kind::string)
      return failHere("expected the bytes as hexadecimal digits in quotes");
    if (!llvm::tryGetFromHex(token.text.drop_front().drop_back(), elements.bytes.emplace()))
      return failHere("the bytes are not hexadecimal digits");
    advance();
    return true;
  }
  if (acceptWord("stored"))
    return readStored(elements);
  auto readOne = [&] { return readNumberText(elements.texts.emplace_back()); };
  elements.splat = !accept('[');
  if (elements.splat)
    return readOne();
  return accept(']') || (commaSeparated(readOne) && expect(']'));
}

bool Reader::readStored(NodeText::Elements &elements) {
  std::string name;
  const Token at = token;
  if (!readString(name))
    return false;
  if (!constants)
    return fail(at, "constants are in files beside the text, which this text has none of");
  llvm::Expected<Dense> dense = constants->find(name);
  if (!dense)
    return fail(at, toString(dense.takeError()));
  elements.stored = std::move(*dense);
  return true;
}

bool Reader::finishElements(NodeText &node) {
  NodeText::Elements &elements = node.elements;
  if (!elements.target)
    return true;
  std::optional<Type> implied = impliedType(node.types);
  DType dtype = elements.dtype.value_or(implied ? implied->dtype() : DType::f32);
  if (elements.stored) {
    if (elements.stored->dtype() != dtype)
      return fail(elements.first, "the constant is of " + nameOf(elements.stored->dtype()) + ", not " + nameOf(dtype));
    *elements.target = std::move(*elements.stored);
    return true;
  }
  if (elements.bytes) {
    if (elements.bytes->size() % byteSize(dtype) != 0)
      return fail(elements.first, "the bytes are not a multiple of the element size");
    *elements.target = Dense(dtype, std::vector<uint8_t>(elements.bytes->begin(), elements.bytes->end()));
    return true;
  }
  std::optional<Dense> dense = denseFromTexts(dtype, elements.texts, elements.splat);
  if (!dense)
    return fail(elements.first, "an element is not a number that " + nameOf(dtype) + " can hold");
  *elements.target = *dense;
  return true;
}

bool Reader::finishFields(NodeText &node) {
  std::optional<Type> implied = impliedType(node.types);
  if (implied)
    for (const Field &field : node.fields)
      if (isImplied(node.op, field) && !llvm::is_contained(node.seen, field.name))
        restore(field, *implied);
  return true;
}

} // namespace fsdpc::text

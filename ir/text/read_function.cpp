// Functions, sections and nodes. A node ends with its line. A following line that starts with `word(` continues it.
#include "ir/text/reader.h"
#include "llvm/ADT/StringExtras.h"
#include <limits>

namespace fsdpc::text {

namespace {
llvm::SmallVector<llvm::StringRef> opNames() {
  llvm::SmallVector<llvm::StringRef> names;
  for (Op op : allOps())
    names.push_back(infoOf(op).name);
  return names;
}
} // namespace

bool Reader::readFunction() {
  const auto *kind = llvm::find_if(allFunctionKinds, [&](FunctionKind kind) {
    return token.kind == Token::Kind::global && token.text.drop_front() == nameOf(kind);
  });
  if (kind == std::end(allFunctionKinds))
    return failHere(
        "expected @forward, @prologue, @micro_step, @tap_gradients, @update, @eval_step, @predict or @export");
  if (module->function(*kind))
    return failHere("function " + token.text + " is defined twice");
  advance();
  function = module->addFunction(*kind);
  named.clear();
  numbered.clear();
  if (!expect('('))
    return false;
  if (!token.isPunctuation(')') && !commaSeparated([&] { return readArgument(); }))
    return false;
  return expect(')') && expect('{') && readBody();
}

bool Reader::readArgument() {
  Token name = token;
  if (name.kind != Token::Kind::local)
    return failHere("expected an argument: %name: type input, or carry");
  advance();
  Type type;
  if (!expect(':') || !readType(type))
    return false;
  bool isInput = token.isWord("input");
  if (!isInput && !token.isWord("carry"))
    return failHere("expected input or carry");
  Token kind = token;
  advance();
  std::string argumentName = name.isNumbered() ? "" : name.name();
  if (accept('(')) {
    if (!readString(argumentName) || !expect(')'))
      return false;
  } else if (name.isNumbered()) {
    return fail(kind, "an argument without a name says which one it is: " + kind.text + "(\"name\")");
  }
  Value *value =
      function->addArgument(isInput ? ArgumentKind::input : ArgumentKind::carry, argumentName, std::move(type));
  value->setName(name.isNumbered() ? "" : name.name());
  if (acceptWord("at") && !parenthesized([&] { return readPlace(value->place); }))
    return false;
  return define(name, value);
}

bool Reader::readBody() {
  bool inSection = false;
  Section section;
  int32_t outline = -1;
  while (true) {
    if (accept('}')) {
      if (!inSection)
        return true;
      inSection = false;
      section = Section();
      outline = -1;
    } else if (token.isWord("unit") || token.isWord("section")) {
      if (inSection)
        return failHere("sections do not nest");
      inSection = true;
      if (!readSectionHeader(section, outline))
        return false;
    } else if (!readNode(section, outline)) {
      return false;
    }
  }
}

bool Reader::readSectionHeader(Section &section, int32_t &outline) {
  bool ofUnit = token.isWord("unit");
  advance();
  if (ofUnit && !readUnitReference(section.unit))
    return false;
  for (Phase phase : {Phase::forward, Phase::recompute, Phase::backward, Phase::update})
    if (section.phase == Phase::none && acceptWord(nameOf(phase)))
      section.phase = phase;
  if (!acceptWord("as"))
    return expect('{');
  return parenthesized([&] {
           Token at = token;
           std::string name;
           if (!readSymbol(name))
             return false;
           auto found = outlines.find(name);
           if (found == outlines.end())
             return fail(at, "outline " + at.text + " is not declared");
           outline = found->second;
           return true;
         }) &&
         expect('{');
}

bool Reader::readUnitReference(int32_t &unit) {
  Token at = token;
  std::string name;
  if (!readSymbol(name))
    return false;
  auto found = units.find(name);
  if (found == units.end())
    return fail(at, "unit " + at.text.take_front(60) + " is not declared" + didYouMean(name, units.keys()));
  unit = found->second;
  return true;
}

Value *Reader::lookUp(const Token &name) {
  return name.isNumbered() ? numbered.lookup(name.text.drop_front()) : named.lookup(name.name());
}

bool Reader::define(const Token &name, Value *value) {
  bool isNew = name.isNumbered() ? numbered.try_emplace(name.text.drop_front(), value).second
                                 : named.try_emplace(name.name(), value).second;
  return isNew || fail(name, name.text.take_front(60) + " is defined twice");
}

bool Reader::readNode(Section section, int32_t outline) {
  NodeText node;
  if (!readResultNames(node))
    return false;
  node.opToken = token;
  std::optional<Op> op = token.kind == Token::Kind::word ? opFromName(token.text) : std::nullopt;
  if (!op)
    return failHere(token.kind == Token::Kind::word
                        ? "unknown op '" + token.text.take_front(60).str() + "'" + didYouMean(token.text, opNames())
                        : "expected an op, a section or '}'");
  advance();
  node.op = *op;
  if (infoOf(node.op).makeAttributes) {
    node.attributes = infoOf(node.op).makeAttributes();
    node.fields = fieldsOf(*node.attributes);
  }
  if (!readPositionalSymbols(node) || !readOperands(node))
    return false;
  while (clauseFollows())
    if (!readClause(node))
      return false;
  if (!readTypes(node))
    return false;
  while (clauseFollows())
    if (!readClause(node))
      return false;
  if (!token.startsLine && !token.isPunctuation('}') && token.kind != Token::Kind::end)
    return failHere("expected an attribute, ':' or the end of the line");
  return checkCounts(node) && finishElements(node) && finishFields(node) && finishNode(node, section, outline);
}

bool Reader::readResultNames(NodeText &node) {
  if (token.kind != Token::Kind::local)
    return true;
  bool read = commaSeparated([&] {
    if (token.kind != Token::Kind::local)
      return failHere("expected the name of a result");
    node.results.push_back(token);
    advance();
    return true;
  });
  return read && expect('=');
}

bool Reader::readOperands(NodeText &node) {
  if (token.kind != Token::Kind::local || token.startsLine)
    return true;
  return commaSeparated([&] {
    Value *value = token.kind == Token::Kind::local ? lookUp(token) : nullptr;
    if (!value)
      return failHere(token.kind == Token::Kind::local ? token.text.take_front(60) + " is not defined above"
                                                       : llvm::Twine("expected an operand such as %x"));
    node.operands.push_back(value);
    advance();
    return true;
  });
}

bool Reader::readTypes(NodeText &node) {
  if (!accept(':'))
    return true;
  return commaSeparated([&] { return readType(node.types.emplace_back()); });
}

bool Reader::readClause(NodeText &node) {
  if (!once(node.seen))
    return false;
  const Field *field = llvm::find_if(node.fields, [&](const Field &field) {
    bool negated = field.as<bool>() && token.text.starts_with("no_") && token.text.drop_front(3) == field.name;
    return !isPositional(field) && (negated || token.text == field.name);
  });
  if (field != node.fields.end())
    return readField(node, *field);
  Token clause = token;
  advance();
  if (clause.isWord("after"))
    return parenthesized([&] {
      return commaSeparated([&] {
        Value *value = token.kind == Token::Kind::local ? lookUp(token) : nullptr;
        if (!value || !value->type().isToken())
          return failHere("after(...) names tokens defined above");
        node.after.push_back(value);
        advance();
        return true;
      });
    });
  if (clause.isWord("unit"))
    return parenthesized([&] {
      node.unit = -1;
      return acceptWord("none") || readUnitReference(*node.unit);
    });
  if (clause.isWord("on"))
    return parenthesized([&] {
      for (Stream stream : {Stream::compute, Stream::comm, Stream::reduce, Stream::copy, Stream::host})
        if (acceptWord(nameOf(stream))) {
          node.schedule.stream = stream;
          return true;
        }
      return failHere("expected compute, comm, reduce, copy or host");
    });
  if (clause.isWord("at"))
    return parenthesized([&] { return commaSeparated([&] { return readPlace(node.places.emplace_back()); }); });
  if (clause.isWord("work"))
    return parenthesized([&] {
      return readInteger(node.schedule.workspaceBytes) &&
             (token.isPunctuation(')') || readPlace(node.schedule.workspace));
    });
  if (clause.isWord("save"))
    return parenthesized([&] {
      node.schedule.saving = Saving::recompute;
      return acceptWord(nameOf(Saving::recompute)) || failHere("expected recompute");
    });
  if (clause.isWord("implied"))
    return node.schedule.implied = true;
  if (clause.isWord("record"))
    return parenthesized([&] { return readEvent(node.schedule.records); });
  if (clause.isWord("await"))
    return parenthesized([&] { return readEvent(node.schedule.awaits); });
  if (clause.isWord("from"))
    return parenthesized([&] { return readString(node.source); });
  llvm::SmallVector<llvm::StringRef> names = {"after",  "unit",  "on",      "at",   "work",
                                              "record", "await", "implied", "from", "save"};
  for (const Field &field : node.fields)
    names.push_back(field.name);
  return fail(clause, infoOf(node.op).name + llvm::Twine(" has no attribute '") + clause.text.take_front(60) + "'" +
                          didYouMean(clause.text, names));
}

bool Reader::readEvent(int32_t &event) {
  const Token number = token;
  int64_t value = 0;
  if (!readInteger(value))
    return false;
  if (value < 0 || value > std::numeric_limits<int32_t>::max())
    return fail(number, "events are numbered from 0");
  event = static_cast<int32_t>(value);
  return true;
}

bool Reader::checkCounts(NodeText &node) {
  // `free %x` without a result has a token that nothing uses.
  bool hidden = node.op == Op::free && node.results.empty() && node.types.empty();
  if (hidden)
    node.types.push_back(Type::token());
  else if (node.results.size() != node.types.size())
    return fail(node.opToken,
                llvm::Twine(node.results.size()) + " results, but " + llvm::Twine(node.types.size()) + " types");
  const OpInfo &info = infoOf(node.op);
  if (node.operands.size() < info.minOperands() || node.operands.size() > info.maxOperands()) {
    std::string wants = llvm::join(info.operandNames, ", ");
    return fail(node.opToken, info.name + llvm::Twine(" takes (") + wants + "), not " +
                                  llvm::Twine(node.operands.size()) + " operands");
  }
  if (!node.places.empty() && node.places.size() != node.types.size())
    return fail(node.opToken,
                llvm::Twine(node.places.size()) + " places for " + llvm::Twine(node.types.size()) + " results");
  return true;
}

bool Reader::finishNode(NodeText &node, Section section, int32_t outline) {
  Node *made = Builder(*function).createWithTypes(node.op, node.operands, std::move(node.attributes), node.types);
  made->section = section;
  made->unit = node.unit.value_or(section.unit);
  made->schedule = node.schedule;
  made->schedule.outline = outline;
  made->source = std::move(node.source);
  for (Value *token : node.after)
    made->addAfter(token);
  for (size_t i = 0; i < node.places.size(); ++i)
    made->result(i)->place = node.places[i];
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (!node.results[i].isNumbered())
      made->result(i)->setName(node.results[i].name());
    if (!define(node.results[i], made->result(i)))
      return false;
  }
  return true;
}

} // namespace fsdpc::text

#include "ir/text/node_printer.h"

#include "ir/text/literals.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace fsdpc {

ValueNames::ValueNames(const Function &function) {
  for (const Argument &argument : function.arguments())
    add(argument.value.get());
  for (Node *node : function)
    for (unsigned i = 0; i < node->resultCount(); ++i)
      add(node->result(i));
}

void ValueNames::add(const Value *value) {
  Entry &entry = entries[value];
  if (value->name().empty()) {
    // The token of a free is printed only if something refers to it.
    bool shown =
        !value->type().isToken() || value->hasUses() || !value->definer() || value->definer()->op() != Op::free;
    entry.number = shown ? unnamed++ : 0;
    return;
  }
  auto [found, isNew] = taken.try_emplace(value->name(), 1);
  while (!isNew) {
    std::string candidate = (value->name() + "." + llvm::Twine(found->second++)).str();
    auto [other, otherIsNew] = taken.try_emplace(candidate, 1);
    if (!otherIsNew)
      continue;
    entry.name = other->first();
    return;
  }
  entry.name = found->first();
}

std::string ValueNames::of(const Value *value) const {
  auto found = entries.find(value);
  if (found == entries.end())
    return "%?";
  const Entry &entry = found->second;
  if (entry.name.empty())
    return "%" + llvm::utostr(entry.number);
  bool digits = llvm::all_of(entry.name, [](char c) { return llvm::isDigit(c); });
  return digits ? "%\"" + entry.name.str() + "\"" : symbolText('%', entry.name);
}

static void settleName(Value &value, const ValueNames &names) {
  if (llvm::StringRef name = names.plain(&value); name != value.name())
    value.setName(name);
}

void assignPrintedNames(Module &module) {
  for (const std::unique_ptr<Function> &function : module.functions) {
    ValueNames names(*function);
    for (const Argument &argument : function->arguments())
      settleName(*argument.value, names);
    for (Node *node : *function)
      for (unsigned i = 0; i < node->resultCount(); ++i)
        settleName(*node->result(i), names);
  }
}

std::string toText(const Node &node) { return toText(node, ValueNames(*node.function())); }

std::string toText(const Node &node, const ValueNames &names) {
  text::NodeColumns columns = text::NodePrinter(*node.function()->module()).columns(node, names);
  std::string text = std::move(columns.code);
  if (!columns.types.empty())
    text += " : " + columns.types;
  if (!columns.plan.empty())
    text += " " + columns.plan;
  return text;
}

namespace text {

std::string quoted(llvm::StringRef value) {
  std::string text = "\"";
  llvm::raw_string_ostream out(text);
  llvm::printEscapedString(value, out);
  out << '"';
  return text;
}

std::string wordOrString(llvm::StringRef value) {
  auto isWordCharacter = [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; };
  bool word = !value.empty() && !llvm::isDigit(value[0]) && value[0] != '.' && llvm::all_of(value, isWordCharacter);
  return word ? value.str() : quoted(value);
}

std::string placeText(const Place &place) {
  if (!place.isPlaced())
    return "none";
  return (nameOf(place.space) + "+0x" + llvm::Twine::utohexstr(static_cast<uint64_t>(place.offsetBytes))).str();
}

namespace {

template <class Range, class Text>
std::string list(const Range &range, Text text) {
  std::string joined;
  for (const auto &element : range)
    joined += (joined.empty() ? "" : ", ") + text(element);
  return joined;
}

/// True for a free whose result has no use and no name. It is printed without `%12 = ... : token`.
bool hidesResult(const Node &node) {
  return node.op() == Op::free && node.resultCount() == 1 && node.result()->type().isToken() &&
         !node.result()->hasUses() && node.result()->name().empty();
}

/// name(...) of one field; bools are bare words.
class FieldWriter {
public:
  FieldWriter(const Node &node, const Field &field, const std::optional<Type> &implied, ConstantStore *constants,
              llvm::raw_ostream &out)
      : node(node), field(field), implied(implied), constants(constants), out(out) {}
  void operator()(const int64_t *value) { named(llvm::itostr(*value)); }
  void operator()(const double *value) { named(doubleText(*value)); }
  void operator()(const bool *value) { out << ' ' << (*value ? "" : "no_") << field.name; }
  void operator()(const std::string *value) { named(quoted(*value)); }
  void operator()(const DType *value) { named(nameOf(*value)); }
  void operator()(const Symbol *value) { named(symbolText('@', value->name)); }
  void operator()(const Shape *value) {
    named(list(*value, [](int64_t dim) { return llvm::itostr(dim); }));
  }
  void operator()(const std::vector<std::string> *value) { named(list(*value, quoted)); }
  void operator()(const Dense *value) {
    bool saysDType = !implied || implied->dtype() != value->dtype();
    named((saysDType ? nameOf(value->dtype()).str() + " " : "") + denseText(*value, constants));
  }
  void operator()(const Expression *value) {
    llvm::SmallVector<DType, 8> operands;
    for (unsigned i = 0; i < node.operandCount(); ++i)
      operands.push_back(node.operand(i) ? node.operand(i)->type().dtype() : DType::f32);
    named(expressionText(*value, operands));
  }

private:
  void named(llvm::StringRef value) { out << ' ' << field.name << '(' << value << ')'; }
  const Node &node;
  const Field &field;
  const std::optional<Type> &implied;
  ConstantStore *const constants;
  llvm::raw_ostream &out;
};

std::string planText(const Node &node) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::ListSeparator space(" ");
  bool placed = false;
  llvm::SmallVector<Place, 2> places;
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    places.push_back(node.result(i)->place);
    placed |= places.back().isPlaced();
  }
  if (node.schedule.stream != Stream::none)
    out << space << "on(" << nameOf(node.schedule.stream) << ')';
  // Places are aligned in one column for all streams.
  if (node.schedule.stream != Stream::none && placed)
    out.indent(nameOf(Stream::compute).size() - nameOf(node.schedule.stream).size());
  if (placed)
    out << space << "at(" << list(places, placeText) << ')';
  if (node.schedule.workspaceBytes != 0 || node.schedule.workspace.isPlaced())
    out << space << "work(" << node.schedule.workspaceBytes
        << (node.schedule.workspace.isPlaced() ? " " + placeText(node.schedule.workspace) : "") << ')';
  if (node.schedule.awaits >= 0)
    out << space << "await(" << node.schedule.awaits << ')';
  if (node.schedule.implied)
    out << space << "implied";
  if (node.schedule.records >= 0)
    out << space << "record(" << node.schedule.records << ')';
  if (!node.source.empty())
    out << space << "from(" << quoted(node.source) << ')';
  return text;
}

} // namespace

std::string NodePrinter::unitName(int32_t unit) const {
  if (unit == -1)
    return "none";
  bool known = unit >= 0 && static_cast<size_t>(unit) < module.units.size();
  return symbolText('@', known ? module.units[unit].name : "unit " + llvm::itostr(unit) + " does not exist");
}

const NodePrinter::Defaults &NodePrinter::defaultsOf(const Node &node) {
  Defaults &entry = defaults[node.attributes()->typeId()];
  if (!entry.attributes) {
    entry.attributes = node.attributes()->makeDefault();
    entry.fields = fieldsOf(*entry.attributes);
  }
  return entry;
}

void NodePrinter::writeAttributes(const Node &node, const ValueNames &names, llvm::raw_ostream &out) {
  auto writeOperands = [&] {
    for (unsigned i = 0; i < node.operandCount(); ++i)
      out << (i == 0 ? " " : ", ") << names.of(node.operand(i));
  };
  if (!node.attributes())
    return writeOperands();
  // fieldsOf takes a mutable reference because the reader needs one. Here the fields are only read.
  Fields fields = fieldsOf(const_cast<AttributesBase &>(*node.attributes()));
  const Fields &standard = defaultsOf(node).fields;
  for (size_t i = 0; i < fields.size(); ++i)
    if (isPositional(fields[i]) && !equalFields(fields[i], standard[i]))
      out << ' ' << symbolText('@', fields[i].as<Symbol>()->name);
  writeOperands();
  std::optional<Type> implied =
      node.resultCount() == 0 ? std::nullopt : impliedType(llvm::ArrayRef<Type>(node.result()->type()));
  for (size_t i = 0; i < fields.size(); ++i) {
    bool leftOut =
        implied && isImplied(node.op(), fields[i]) ? agrees(fields[i], *implied) : equalFields(fields[i], standard[i]);
    if (!leftOut && !isPositional(fields[i]))
      std::visit(FieldWriter(node, fields[i], implied, constants, out), fields[i].value);
  }
}

NodeColumns NodePrinter::columns(const Node &node, const ValueNames &names) {
  NodeColumns columns;
  llvm::raw_string_ostream code(columns.code);
  llvm::raw_string_ostream types(columns.types);
  bool hidden = hidesResult(node);
  for (unsigned i = 0; !hidden && i < node.resultCount(); ++i) {
    code << (i == 0 ? "" : ", ") << names.of(node.result(i));
    types << (i == 0 ? "" : ", ") << node.result(i)->type();
  }
  code << (hidden || node.resultCount() == 0 ? "" : " = ") << infoOf(node).name;
  writeAttributes(node, names, code);
  if (!node.afterTokens().empty())
    code << " after("
         << list(node.afterTokens(), [&](const std::unique_ptr<Use> &use) { return names.of(use->value()); }) << ')';
  if (node.unit != node.section.unit)
    code << " unit(" << unitName(node.unit) << ')';
  if (node.schedule.saving != Saving::keep)
    code << " save(" << nameOf(node.schedule.saving) << ')';
  columns.plan = planText(node);
  return columns;
}

} // namespace text
} // namespace fsdpc

// A module as text: header, tables, states, functions. The parameter table is at the end, so that the code comes first.
#include "ir/text/constant_store.h"
#include "ir/text/node_printer.h"
#include "ir/write_file.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace text {
namespace {

// Columns are aligned within a section, in groups of this many nodes; code wider than the limit gets no padding.
constexpr size_t alignedRun = 256;
constexpr size_t widestCode = 76;
constexpr size_t widestTypes = 24;
// More arguments or slots than this are printed one per line.
constexpr size_t maxPerLine = 2;

class ModulePrinter {
public:
  ModulePrinter(const Module &module, llvm::raw_ostream &out, ConstantStore *constants)
      : module(module), out(out), nodes(module, constants) {}
  void run();

private:
  void writeHeader();
  void writeDecisions();
  void writeUnit(const Unit &unit);
  void writeState(const State &state);
  void writeSlots(const State &state);
  void writeParameter(const Parameter &parameter);
  void writeFunction(const Function &function);
  void writeArguments(const Function &function, const ValueNames &names);
  void openSection(const Node &node);
  void flushRun(llvm::StringRef indent);

  const Module &module;
  llvm::raw_ostream &out;
  NodePrinter nodes;
  std::vector<NodeColumns> pending;
};

std::string symbol(llvm::StringRef name) { return symbolText('@', name); }

std::string dims(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  for (int64_t dim : shape)
    text += (text.empty() ? "" : ", ") + llvm::itostr(dim);
  return text;
}

void ModulePrinter::writeHeader() {
  out << "module " << symbol(module.name) << " stage(" << nameOf(module.stage) << ')';
  if (!module.mesh.empty()) {
    out << " mesh(";
    llvm::ListSeparator comma;
    for (const MeshAxis &axis : module.mesh)
      out << comma << wordOrString(axis.name) << " = " << axis.size
          << (axis.stride == 1 ? "" : " stride " + llvm::itostr(axis.stride));
    out << ')';
  }
  if (module.microSteps != 1)
    out << " micro_steps(" << module.microSteps << ')';
  out << '\n';
  for (const Fact &fact : factList())
    if (std::optional<std::string> value = fact.print(module.facts, fact.argument))
      out << "setting " << fact.name << ' ' << quoted(*value) << '\n';
  writeDecisions();
  for (const Unit &unit : module.units)
    writeUnit(unit);
  for (const std::string &outline : module.outlines)
    out << "outline " << symbol(outline) << '\n';
  for (const auto &[path, name] : module.classes)
    out << "class " << symbol(path) << ' ' << quoted(name) << '\n';
}

void ModulePrinter::writeDecisions() {
  Decisions standard;
  const Decisions &decisions = module.decisions;
  std::string text;
  if (decisions.maxInflightAllGathers != standard.maxInflightAllGathers)
    text += " max_inflight_all_gathers(" + llvm::itostr(decisions.maxInflightAllGathers) + ")";
  if (!decisions.forwardPrefetch)
    text += " no_forward_prefetch";
  if (decisions.backwardPrefetch != standard.backwardPrefetch)
    text += " backward_prefetch(" + spelled(decisions.backwardPrefetch) + ")";
  if (!decisions.overlapComm)
    text += " no_overlap_comm";
  if (decisions.ownReduceCommunicator)
    text += " own_reduce_communicator";
  if (decisions.offloadActivations != standard.offloadActivations)
    text += " offload_activations(" + doubleText(decisions.offloadActivations) + ")";
  if (!text.empty())
    out << "decisions" << text << '\n';
}

void ModulePrinter::writeUnit(const Unit &unit) {
  out << "unit " << symbol(unit.name);
  if (!unit.source.empty())
    out << " source(" << wordOrString(unit.source) << ')';
  for (const UnitChoice &choice : unitChoices())
    if (!choice.isDefault(unit.choices))
      out << ' ' << choice.name << '(' << wordOrString(choice.print(unit.choices)) << ')';
  out << '\n';
}

void ModulePrinter::writeSlots(const State &state) {
  bool lines = state.slots.size() > maxPerLine;
  out << (lines ? "\n  slots(" : " slots(");
  llvm::ListSeparator comma(lines ? ",\n        " : ", ");
  for (const SegmentSlot &slot : state.slots)
    out << comma << symbol(slot.parameter) << " at " << slot.offsetElements << " size " << slot.elements;
  out << ')';
}

void ModulePrinter::writeState(const State &state) {
  out << "state " << symbol(state.name) << ' ' << nameOf(state.role) << " : " << state.type;
  if (!state.owner.empty())
    out << " owner(" << symbol(state.owner) << ')';
  if (!state.field.empty())
    out << " field(" << wordOrString(state.field) << ')';
  // Compares bits, so that -0 is printed.
  if (llvm::bit_cast<uint64_t>(state.initialValue) != 0)
    out << " init(" << doubleText(state.initialValue) << ')';
  if (state.factor)
    out << " factor(" << doubleText(*state.factor) << ')';
  if (!state.unit.empty())
    out << " unit(" << symbol(state.unit) << ')';
  if (!state.over.empty())
    out << " over(" << symbol(state.over) << ')';
  if (state.paddedElements != 0)
    out << " padded(" << state.paddedElements << ')';
  if (!state.trainable)
    out << " frozen";
  if (state.onHost)
    out << " host";
  if (state.place.isPlaced())
    out << " at(" << placeText(state.place) << ')';
  if (!state.slots.empty())
    writeSlots(state);
  out << '\n';
}

void ModulePrinter::writeParameter(const Parameter &parameter) {
  out << "parameter " << symbol(parameter.name) << " : " << parameter.type;
  if (!parameter.trainable)
    out << " frozen";
  if (!parameter.hasValue)
    out << " no_value";
  if (const std::optional<InitialValues> &initial = parameter.initial) {
    out << " initial(" << nameOf(initial->kind) << ' ' << doubleText(initial->first);
    if (initial->kind != InitialKind::constant)
      out << ", " << doubleText(initial->second);
    if (!initial->origin.empty())
      out << ", " << quoted(initial->origin);
    out << ')';
  }
  if (parameter.isBuffer)
    out << " buffer";
  if (parameter.ignored)
    out << " ignored";
  if (parameter.initializer != parameter.name)
    out << " initializer(" << quoted(parameter.initializer) << ')';
  if (!parameter.otherNames.empty()) {
    out << " other_names(";
    llvm::ListSeparator comma;
    for (const std::string &name : parameter.otherNames)
      out << comma << quoted(name);
    out << ')';
  }
  if (parameter.fileDType)
    out << " file_dtype(" << nameOf(*parameter.fileDType) << ')';
  if (const std::optional<Adapter> &adapter = parameter.adapter)
    out << " adapter(" << symbol(adapter->down) << ", " << symbol(adapter->up) << ", " << doubleText(adapter->scale)
        << ", " << doubleText(adapter->dropout) << (adapter->inputFirst ? ", input_first)" : ")");
  if (!parameter.permutation.empty())
    out << " permutation(" << dims(parameter.permutation) << ')';
  if (!parameter.fileShape.empty())
    out << " file_shape(" << dims(parameter.fileShape) << ')';
  if (!parameter.unit.empty())
    out << " unit(" << symbol(parameter.unit) << ')';
  if (!parameter.recovered.empty())
    out << " recovered(" << quoted(parameter.recovered) << ')';
  if (!parameter.uses.empty()) {
    out << " uses(";
    llvm::ListSeparator comma;
    for (const ParameterUse &use : parameter.uses)
      out << comma << quoted(use.node) << ": " << use.input;
    out << ')';
  }
  out << '\n';
}

void ModulePrinter::writeArguments(const Function &function, const ValueNames &names) {
  bool lines = function.arguments().size() > maxPerLine;
  llvm::ListSeparator comma(lines ? ",\n    " : ", ");
  out << '(' << (lines ? "\n    " : "");
  for (const Argument &argument : function.arguments()) {
    std::string name = names.of(argument.value.get());
    out << comma << name << ": " << argument.value->type()
        << (argument.kind == ArgumentKind::input ? " input" : " carry");
    // Omitted if it equals the value's own name, unless that was changed to be unique.
    if (argument.name != argument.value->name() || name != symbolText('%', argument.name))
      out << '(' << quoted(argument.name) << ')';
    if (argument.value->place.isPlaced())
      out << " at(" << placeText(argument.value->place) << ')';
  }
  out << ')';
}

void ModulePrinter::openSection(const Node &node) {
  if (node.section.unit == -1)
    out << "  section";
  else
    out << "  unit " << nodes.unitName(node.section.unit);
  if (node.section.phase != Phase::none)
    out << ' ' << nameOf(node.section.phase);
  if (node.schedule.outline != -1) {
    bool known = node.schedule.outline >= 0 && static_cast<size_t>(node.schedule.outline) < module.outlines.size();
    out << " as(" << symbol(known ? module.outlines[node.schedule.outline] : "outline that does not exist") << ')';
  }
  out << " {\n";
}

void ModulePrinter::flushRun(llvm::StringRef indent) {
  size_t codeWidth = 0, typesWidth = 0;
  for (const NodeColumns &columns : pending) {
    if (columns.code.size() <= widestCode && !columns.types.empty())
      codeWidth = std::max(codeWidth, columns.code.size());
    if (columns.types.size() <= widestTypes)
      typesWidth = std::max(typesWidth, columns.types.size());
  }
  auto pad = [&](size_t width, size_t to) { out.indent(width < to ? to - width : 0); };
  for (const NodeColumns &columns : pending) {
    out << indent << columns.code;
    if (!columns.types.empty() || !columns.plan.empty())
      pad(columns.code.size(), codeWidth);
    if (!columns.types.empty())
      out << " : " << columns.types;
    if (!columns.plan.empty()) {
      pad(columns.types.empty() ? 0 : columns.types.size() + 3, typesWidth == 0 ? 0 : typesWidth + 3);
      out << ' ' << columns.plan;
    }
    out << '\n';
  }
  pending.clear();
}

void ModulePrinter::writeFunction(const Function &function) {
  ValueNames names(function);
  out << "\nfunc @" << nameOf(function.kind());
  writeArguments(function, names);
  out << " {\n";
  bool inSection = false;
  for (Node *node : function) {
    const Node *before = node->previous();
    if (!before || before->section != node->section || before->schedule.outline != node->schedule.outline) {
      flushRun(inSection ? "    " : "  ");
      out << (inSection ? "  }\n" : "");
      inSection = node->section != Section() || node->schedule.outline != -1;
      if (inSection)
        openSection(*node);
    }
    pending.push_back(nodes.columns(*node, names));
    if (pending.size() == alignedRun)
      flushRun(inSection ? "    " : "  ");
  }
  flushRun(inSection ? "    " : "  ");
  out << (inSection ? "  }\n}\n" : "}\n");
}

void ModulePrinter::run() {
  writeHeader();
  for (const State &state : module.states)
    writeState(state);
  for (const std::unique_ptr<Function> &function : module.functions)
    writeFunction(*function);
  if (!module.parameters.empty())
    out << '\n';
  for (const Parameter &parameter : module.parameters)
    writeParameter(parameter);
}

} // namespace
} // namespace text

void print(const Module &module, llvm::raw_ostream &out, ConstantStore *constants) {
  text::ModulePrinter(module, out, constants).run();
}

std::string toText(const Module &module, ConstantStore *constants) {
  std::string text;
  llvm::raw_string_ostream out(text);
  print(module, out, constants);
  return text;
}

llvm::Error writeModule(const Module &module, llvm::StringRef path) {
  ConstantStore constants;
  if (llvm::Error error = writeFile(path, toText(module, &constants)))
    return error;
  return constants.write(ConstantStore::beside(path));
}

} // namespace fsdpc

#include "codegen/common/program_writer.h"

#include "codegen/common/emitter.h"
#include "ir/carried.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

// A longer sequence of nodes outside the repeated units is split, so that the host compiler's time stays linear.
constexpr int nodesPerPiece = 400;

/// The C++ name of a function of the module.
llvm::StringRef cppName(FunctionKind kind) {
  switch (kind) {
  case FunctionKind::prologue: return "prologue";
  case FunctionKind::microStep: return "microStep";
  case FunctionKind::tapGradients: return "tapGradients";
  case FunctionKind::update: return "update";
  case FunctionKind::evalStep: return "evalStep";
  case FunctionKind::predict: return "predict";
  case FunctionKind::exportWeights: return "exportWeights";
  case FunctionKind::exportAverages: return "exportAverages";
  case FunctionKind::start: return "start";
  case FunctionKind::forward: break;
  }
  return "forward";
}

/// `Place t0, t1;`: adjacent fields of one type are declared together.
std::string rowFields(const SectionText &body, llvm::ArrayRef<bool> inRow) {
  std::string out;
  llvm::StringRef type;
  for (size_t hole = 0; hole < inRow.size(); ++hole) {
    if (!inRow[hole])
      continue;
    const Hole &field = body.holes[hole];
    out += field.type == type ? ", " : type.empty() ? "  " + field.type.str() + " " : ";\n  " + field.type.str() + " ";
    out += field.name;
    type = field.type;
  }
  return type.empty() ? out : out + ";\n";
}

/// Breaks lines of code that are too long after a comma and indents the continuation.
std::string wrapped(llvm::StringRef text) {
  constexpr size_t width = 120;
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    bool endsHere = rest.empty() && !text.ends_with("\n");
    size_t indent = line.find_first_not_of(' ');
    bool isCode = !line.trim().starts_with("//") && !line.contains('"');
    while (isCode && line.size() > width) {
      size_t comma = line.substr(0, width - 1).rfind(", ");
      if (comma == llvm::StringRef::npos || comma <= indent)
        break;
      out.append(line.data(), comma + 1);
      out += '\n';
      out.append(indent + 4, ' ');
      line = line.drop_front(comma + 2);
    }
    out += line;
    if (!endsHere)
      out += '\n';
    text = rest;
  }
  return out;
}

constexpr FunctionKind emittedKinds[] = {
    FunctionKind::start,        FunctionKind::prologue,      FunctionKind::microStep,
    FunctionKind::tapGradients, FunctionKind::update,        FunctionKind::evalStep,
    FunctionKind::predict,      FunctionKind::exportWeights, FunctionKind::exportAverages};

std::string capitalized(llvm::StringRef name) {
  std::string text = name.str();
  if (!text.empty())
    text[0] = llvm::toUpper(text[0]);
  return text;
}

} // namespace

/// unit3Forward, evalStepUnit3, microStepPart2
std::string ProgramWriter::pieceName(const Function &function, Section section) {
  std::string name;
  bool isStep = function.kind() == FunctionKind::microStep;
  if (section.unit >= 0) {
    std::string unit = "unit" + std::to_string(section.unit);
    name = isStep ? unit + capitalized(nameOf(section.phase)) : cppName(function.kind()).str() + capitalized(unit);
  } else {
    name = cppName(function.kind()).str() + "Part";
  }
  int count = ++nameCounts[name];
  return section.unit >= 0 && count == 1 ? name
         : section.unit >= 0             ? name + "Part" + std::to_string(count)
                                         : name + std::to_string(count);
}

void ProgramWriter::cutIntoPieces(const Function &function) {
  const Node *first = nullptr, *last = nullptr;
  std::unique_ptr<SectionWriter> writer;
  int nodes = 0;
  auto finish = [&] {
    if (writer && !writer->empty())
      addPiece(function, *first, *last, writer->take());
    writer.reset();
  };
  for (const Node *node : function) {
    bool continues = first && node->section == first->section && node->schedule.outline == first->schedule.outline;
    const bool isFull = node->schedule.outline < 0 && nodes >= nodesPerPiece && node->op() != Op::free;
    if (!continues || isFull) {
      finish();
      first = node;
      nodes = 0;
    }
    if (!writer)
      writer = std::make_unique<SectionWriter>(program);
    writer->write(*node);
    last = node;
    ++nodes;
  }
  finish();
}

void ProgramWriter::addPiece(const Function &function, const Node &first, const Node &last, SectionText body) {
  Piece piece;
  piece.function = &function;
  piece.section = first.section;
  piece.first = &first;
  piece.last = &last;
  piece.outline = first.schedule.outline;
  piece.body = std::move(body);
  pieces.push_back(std::move(piece));
}

/// Pieces of one outline whose texts agree (up to holes) become one function.
void ProgramWriter::groupPieces() {
  llvm::StringMap<size_t> groupOf;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Piece &piece = pieces[i];
    if (piece.outline >= 0) {
      auto [entry, isNew] = groupOf.try_emplace(std::to_string(piece.outline) + ":" + piece.body.text, groups.size());
      if (!isNew) {
        groups[entry->second].push_back(i);
        continue;
      }
    }
    groups.push_back({i});
  }
  for (const std::vector<size_t> &group : groups) {
    const Piece &first = pieces[group.front()];
    std::string name = pieceName(*first.function, first.section);
    for (size_t k = 0; k < group.size(); ++k) {
      pieces[group[k]].name = name;
      pieces[group[k]].row = group.size() > 1 ? static_cast<int>(k) : -1;
    }
  }
}

void ProgramWriter::writePiece(std::string &out, const Piece &piece) const {
  out += "void " + piece.name + "(Context &c) {\n";
  out += piece.body.filled();
  out += "}\n\n";
}

/// The body once, with a row parameter, and the table of rows.
void ProgramWriter::writeGroup(std::string &out, llvm::ArrayRef<size_t> members) const {
  const Piece &first = pieces[members.front()];
  llvm::SmallVector<bool, 64> inRow(first.body.holes.size(), false);
  for (size_t hole = 0; hole < inRow.size(); ++hole)
    for (size_t member : members.drop_front())
      if (pieces[member].body.holes[hole].value != first.body.holes[hole].value)
        inRow[hole] = true;
  std::string rowType = capitalized(first.name) + "Row", units;
  for (size_t member : members)
    units += (units.empty() ? "" : ", ") + std::to_string(pieces[member].section.unit);
  out += "/// Units " + units + ".\nstruct " + rowType + " {\n";
  out += rowFields(first.body, inRow) + "};\n\nvoid " + first.name + "(Context &c, const " + rowType + " &r) {\n" +
         first.body.filled(inRow) + "}\n\n";
  out += "constexpr " + rowType + " " + first.name + "Rows[] = {\n";
  for (size_t member : members) {
    out += "    {";
    bool isFirst = true;
    for (size_t hole = 0; hole < inRow.size(); ++hole) {
      if (!inRow[hole])
        continue;
      out += (isFirst ? "" : ", ") + pieces[member].body.holes[hole].value;
      isFirst = false;
    }
    out += "}, // unit " + std::to_string(pieces[member].section.unit) + "\n";
  }
  out += "};\n\n";
}

void ProgramWriter::writePieces(std::string &out) const {
  for (const std::vector<size_t> &group : groups) {
    if (group.size() == 1)
      writePiece(out, pieces[group.front()]);
    else
      writeGroup(out, group);
  }
}

/// Not in the table of sections: nothing is measured before the first step.
void ProgramWriter::writeStart(std::string &out, size_t &next) const {
  const Function *tables = program.module.function(FunctionKind::start);
  out += "/// Once, before the first step: creates what the library compiles for these shapes";
  out += tables ? ", and makes the tables.\n" : ".\n";
  out += "void start(Context &c) {\n";
  out += program.dialect.startText(program);
  for (const PrimitiveText &primitive : program.primitives())
    out += "  " + primitive.name + ".create(c, " + primitive.create + ");\n";
  for (; tables && next < pieces.size() && pieces[next].function == tables; ++next)
    out += "  " + pieces[next].name + "(c);\n";
  out += tables && program.dialect.hasEvents() ? "  joinStreams(c);\n}\n\n" : "}\n\n";
}

/// Discards what the previous step started for the next one, since its memory is needed.
std::string ProgramWriter::discardLeftovers() {
  std::string text;
  for (const CarriedOver &carried : carriedOverSteps(program.module))
    text += "  discard(c, tickets[" + std::to_string(program.collectiveOf(*carried.start)) + "]);\n";
  return text;
}

/// Where the state changes between two steps, what the first has started for the second is of no use.
void ProgramWriter::writeDiscardAhead(std::string &out) {
  out +=
      "/// Gives up what a step has started for the next one.\nvoid discardAhead(Context &c) {\n" + discardLeftovers();
  out += std::string(program.dialect.hasEvents() ? "  joinStreams(c);\n" : "") + "}\n\n";
}

/// Prints each call with its index in the table of sections, for --profile.
void ProgramWriter::writeFunctions(std::string &out) {
  size_t next = 0;
  writeStart(out, next);
  for (FunctionKind kind : llvm::drop_begin(emittedKinds)) {
    const Function *function = program.module.function(kind);
    std::string discards = kind > FunctionKind::update ? discardLeftovers() : "";
    bool isEmpty = (next >= pieces.size() || pieces[next].function != function) && discards.empty();
    // Functions of every step follow each other. The others may run between any two steps, and functions that are
    // called several times follow themselves.
    bool standsAlone = !runsInEveryStep(kind) || program.module.microSteps > 1;
    bool joins = !isEmpty && program.dialect.hasEvents() && standsAlone;
    out += "void " + cppName(kind).str() + (isEmpty ? "(Context &) {\n" : "(Context &c) {\n") + discards;
    if (joins)
      out += "  joinStreams(c);\n";
    for (; next < pieces.size() && pieces[next].function == function; ++next) {
      const Piece &piece = pieces[next];
      out += "  runSection(c, " + std::to_string(program.sections.size()) + ", " + piece.name +
             (piece.row < 0 ? "" : ", " + piece.name + "Rows[" + std::to_string(piece.row) + "]") + ");\n";
      program.sections.push_back({piece.first, piece.last, piece.body.named});
    }
    if (joins)
      out += "  joinStreams(c);\n";
    out += "}\n\n";
  }
  if (!carriedOverSteps(program.module).empty())
    writeDiscardAhead(out);
}

std::string ProgramWriter::header() const {
  std::string text = "// A training program for " + std::to_string(program.module.worldSize()) + " rank" +
                     (program.module.worldSize() == 1 ? "" : "s") + ", " + std::to_string(program.info.microBatchSize) +
                     " samples per rank and micro-step, written by fsdpc.\n";
  int64_t total = 0;
  for (const ArenaUse &arena : program.info.arenas)
    total += arena.bytes;
  text += "//\n// Memory per rank: " + std::to_string(total) +
          " bytes, all of it laid out below: `P + offset` is an address in the private arena,\n"
          "// " +
          program.dialect.addressComment().str() +
          " Nothing is allocated while training.\n"
          "// Values are pointers t0, t1, ... of their section; the comment beside each is its type. Equal units share "
          "one function, which\n"
          "// takes a row of addresses. Names of the model are in program_info.cpp only.\n" +
          program.dialect.includes(program) + "\n";
  return text;
}

std::string ProgramWriter::declarations() const {
  std::string text;
  const std::string prefix = program.dialect.variablePrefix().str();
  for (const PrimitiveText &primitive : program.primitives())
    text += prefix + primitive.type + " " + primitive.name + ";\n";
  if (program.dialect.hasEvents() && program.eventCount() > 0)
    text += prefix + "Event events[" + std::to_string(program.eventCount()) + "];\n";
  if (!program.collectives().empty())
    text += prefix + "Ticket tickets[" + std::to_string(program.collectives().size()) + "];\n";
  if (program.copyCount() > 0)
    text += prefix + "Copy copies[" + std::to_string(program.copyCount()) + "];\n";
  if (program.hostTaskCount() > 0 && !program.dialect.hostIsDevice())
    text += prefix + "HostTask hostTasks[" + std::to_string(program.hostTaskCount()) + "];\n";
  return text.empty() ? text : text + "\n";
}

/// The last fields of Functions, up to the last one that is not null.
std::string ProgramWriter::optionalFunctions() const {
  const std::pair<bool, llvm::StringRef> fields[] = {
      {!carriedOverSteps(program.module).empty(), "discardAhead"},
      {program.module.function(FunctionKind::predict), "predict"},
      {program.module.function(FunctionKind::exportAverages), "exportAverages"}};
  std::string text, absent;
  for (const auto &[exists, name] : fields)
    if (exists)
      text += std::exchange(absent, "") + ", " + name.str();
    else
      absent += ", nullptr";
  return text;
}

std::string ProgramWriter::write() {
  for (FunctionKind kind : emittedKinds)
    if (const Function *function = program.module.function(kind))
      cutIntoPieces(*function);
  groupPieces();
  std::string out = header() + "namespace fsdpc::rt {\n\n";
  out += program.dialect.declarations(program) + "namespace {\n\n" + declarations();
  writePieces(out);
  writeFunctions(out);
  out += "} // namespace\n\nextern const Functions programFunctions;\n"
         "const Functions programFunctions = {start, prologue, microStep, tapGradients, update, evalStep, "
         "exportWeights";
  out += optionalFunctions() + "};\n\n";
  out += "} // namespace fsdpc::rt\n";
  return wrapped(out);
}

} // namespace fsdpc

#include "codegen/common/section.h"

#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "ir/op.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

std::string SectionText::filled(llvm::ArrayRef<bool> inRow) const {
  std::string out;
  out.reserve(text.size() + holes.size() * 12);
  for (size_t position = 0; position < text.size();) {
    size_t mark = text.find('\x01', position);
    out.append(text, position, mark == std::string::npos ? mark : mark - position);
    if (mark == std::string::npos)
      break;
    size_t end = text.find('\x02', mark);
    size_t index = std::strtoull(text.c_str() + mark + 1, nullptr, 10);
    out += !inRow.empty() && inRow[index] ? "r." + holes[index].name : holes[index].value;
    position = end + 1;
  }
  return out;
}

void SectionWriter::write(const Node &node) {
  // The event is recorded after the freed memory has been poisoned, so that waiting for the node also waits for that.
  if (node.op() != Op::free || !program.info.poisonsFreed)
    flushRecord();
  int64_t copies = promotedBytes(program.dialect, node);
  current = copies > 0 ? &node : nullptr;
  copyOffsetBytes = node.schedule.workspaceBytes - copies;
  unnamed = program.info.nodeRanges ? &node : nullptr;
  emitterOf(node.op()).emit(*this, node);
  for (const std::string &statement : std::exchange(narrowings, {}))
    line(statement);
  current = nullptr;
  unnamed = nullptr;
  if (node.schedule.records >= 0 && program.dialect.hasEvents())
    unrecorded = node.schedule.records;
  if (!program.info.poisonsFreed)
    flushRecord();
}

void SectionWriter::flushRecord() {
  if (const int32_t number = std::exchange(unrecorded, -1); number >= 0)
    line("record(c, " + event(number) + ");");
}

std::string SectionWriter::event(int32_t number) { return "events[" + hole("int", "event", llvm::Twine(number)) + "]"; }

SectionText SectionWriter::take() {
  flushRecord();
  flushEnded();
  return std::move(section);
}

void SectionWriter::end(const Value *value) {
  if (auto found = names.find(value); found != names.end())
    ended += (ended.empty() ? "" : ", ") + found->second;
}

void SectionWriter::flushEnded() {
  if (!ended.empty())
    section.text += "  // free: " + std::exchange(ended, "") + "\n";
}

void SectionWriter::line(const llvm::Twine &text, int depth) {
  if (const Node *node = std::exchange(unnamed, nullptr)) {
    printLine("beginNode(c, " + llvm::Twine(section.named.size()) + ");", 1);
    section.named.push_back(node);
  }
  printLine(text, depth);
}

void SectionWriter::printLine(const llvm::Twine &text, int depth) {
  flushEnded();
  section.text.append(static_cast<size_t>(depth) * 2, ' ');
  llvm::raw_string_ostream(section.text) << text << '\n';
}

std::string SectionWriter::hole(llvm::StringRef type, llvm::StringRef name, const llvm::Twine &value) {
  std::string mark = "\x01" + std::to_string(section.holes.size()) + "\x02";
  // Names of values are unique; other holes are numbered.
  bool isValue = name.starts_with("t") && name.size() > 1 && llvm::isDigit(name[1]);
  std::string fieldName = isValue ? name.str() : name.str() + std::to_string(section.holes.size());
  section.holes.push_back({type, std::move(fieldName), value.str()});
  return mark;
}

std::string SectionWriter::placeAt(llvm::StringRef name, Place place) {
  return hole("Place", name, cppPlace(place.space, place.offsetBytes));
}

std::string SectionWriter::place(const Value *value) {
  assert((value->place.isPlaced() || value->type().bytes() == 0) && "a value of a planned module has a place");
  if (auto found = places.find(value); found != places.end())
    return found->second;
  return placeAt("place", value->place);
}

std::string SectionWriter::declare(const Value *value, llvm::StringRef comment) {
  assert((value->place.isPlaced() || value->type().bytes() == 0) && "a value of a planned module has a place");
  std::string name = "t" + std::to_string(nextName++);
  DType dtype = value->type().dtype();
  std::string where = placeAt(name, value->place);
  printLine(cppType(dtype) + " *const " + name + " = " + cppAccessor(dtype) + "(c, " + where + "); // " +
                typeComment(value->type()) + (comment.empty() ? "" : " ") + comment,
            1);
  names[value] = name;
  places[value] = where;
  return name;
}

std::string SectionWriter::use(const Value *value) {
  if (auto found = names.find(value); found != names.end())
    return found->second;
  return declare(value, "");
}

bool SectionWriter::isPromoted(const Value *value) const { return current && isHalf(value->type().dtype()); }

/// f32(c, P + 0x400): the next f32 copy.
std::string SectionWriter::copyPlace(const Value *value) {
  Place place = current->schedule.workspace;
  place.offsetBytes += copyOffsetBytes;
  copyOffsetBytes += toMultiple(value->type().withDType(DType::f32).bytes());
  return "f32(c, " + placeAt("copy", place) + ")";
}

std::string SectionWriter::operand(const Node &node, unsigned i) {
  const Value *value = node.operand(i);
  std::string name = use(value);
  if (!isPromoted(value))
    return name;
  std::string copy = "w" + std::to_string(nextName++);
  line("float *const " + copy + " = promoted(c, " + name + ", " + copyPlace(value) + ", " +
       llvm::Twine(value->type().elements()) + ");");
  return copy;
}

std::string SectionWriter::define(const Value *value, llvm::StringRef comment) {
  std::string name = declare(value, comment);
  if (!isPromoted(value))
    return name;
  std::string copy = "w" + std::to_string(nextName++);
  line("float *const " + copy + " = " + copyPlace(value) + ";");
  narrowings.push_back("narrow(c, " + copy + ", " + name + ", " + std::to_string(value->type().elements()) + ");");
  return copy;
}

std::string SectionWriter::defineAlias(const Value *value, const Value *operand, llvm::StringRef comment) {
  auto found = names.find(operand);
  if (found == names.end() || !(value->place == operand->place) || value->type().dtype() != operand->type().dtype())
    return declare(value, comment);
  std::string name = "t" + std::to_string(nextName++);
  printLine(cppType(value->type().dtype()) + " *const " + name + " = " + found->second + "; // " +
                typeComment(value->type()) + " " + comment,
            1);
  names[value] = name;
  return name;
}

std::string SectionWriter::workspace(const Node &node) {
  int64_t bytes = ownScratchBytes(program.dialect, node);
  if (bytes == 0)
    return "{}";
  return "scratch(c, " + placeAt("scratch", node.schedule.workspace) + ", " + std::to_string(bytes) + ")";
}

void SectionWriter::call(llvm::StringRef kernel, llvm::StringRef shape, llvm::ArrayRef<std::string> arguments) {
  std::string text = (kernel + "(c, " + shape).str();
  for (const std::string &argument : arguments)
    text += ", " + argument;
  line(text + ");");
}

} // namespace fsdpc

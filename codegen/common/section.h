// The text of one section of a function, with holes for values that may differ between equal sections.
//
// Writing a section twice, for two units of the same structure, gives the same text. Only the values of its holes
// (addresses, indices) differ. Such sections become one function that takes a row of a table. The others have their
// holes filled in.
#pragma once

#include "codegen/common/cpp_text.h"
#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

class ProgramText;

/// The content of a hole: a field of the row, or its value.
struct Hole {
  llvm::StringRef type; ///< of the row's field: Place, int, std::int64_t
  std::string name;
  std::string value;
};

struct SectionText {
  std::string text; ///< hole k is written \x01<k>\x02
  std::vector<Hole> holes;
  std::vector<const Node *> named; ///< the text has beginNode(c, k) before the statements of the k-th

  /// The text with every hole filled in, or `r.<name>` in holes that `inRow` marks.
  std::string filled(llvm::ArrayRef<bool> inRow = {}) const;
};

/// Writes the statements of one section, node by node. Values are pointers named t0, t1, ... in order of appearance. A
/// value of another section is declared where it is first used.
class SectionWriter {
public:
  explicit SectionWriter(ProgramText &program) : program(program) {}

  ProgramText &program;

  /// Prints the node through its emitter.
  void write(const Node &node);
  SectionText take();
  bool empty() const { return section.text.empty() && ended.empty() && unrecorded < 0; }

  // ---- for emitters ----

  /// One line, indented by `depth` levels.
  void line(const llvm::Twine &text, int depth = 1);
  /// The pointer of an operand.
  std::string use(const Value *value);
  /// The pointer of an operand, or of its f32 copy for a kernel that takes no 16-bit floats.
  std::string operand(const Node &node, unsigned i);
  /// Declares the pointer of a result, or of its f32 copy for a kernel that takes no 16-bit floats.
  std::string define(const Value *value, llvm::StringRef comment = "");
  /// A result in the memory of `operand`: declared as the operand's pointer if both start at one address.
  std::string defineAlias(const Value *value, const Value *operand, llvm::StringRef comment);
  /// Notes that the memory of a value is free from here on, if this section names the value.
  void end(const Value *value);
  /// The value's address, for functions that take a Place.
  std::string place(const Value *value);
  std::string placeAt(llvm::StringRef name, Place place);
  /// scratch(c, P + 0x400, 99072), or {} for a node without scratch.
  std::string workspace(const Node &node);
  std::string hole(llvm::StringRef type, llvm::StringRef name, const llvm::Twine &value);
  /// events[3]
  std::string event(int32_t number);
  /// kernel(c, {shape}, a, b, ...);
  void call(llvm::StringRef kernel, llvm::StringRef shape, llvm::ArrayRef<std::string> arguments);

private:
  std::string declare(const Value *value, llvm::StringRef comment);
  void printLine(const llvm::Twine &text, int depth);
  bool isPromoted(const Value *value) const;
  std::string copyPlace(const Value *value);
  void flushEnded();
  void flushRecord();
  SectionText section;
  std::string ended; ///< names of values that ended since the last line
  llvm::DenseMap<const Value *, std::string> names;
  llvm::DenseMap<const Value *, std::string> places; ///< the holes of declared values
  int32_t unrecorded = -1; ///< the event of the last node, until the frees after it are printed; -1: none
  int nextName = 0;
  const Node *unnamed = nullptr;       ///< with node ranges: the node being written, until its first statement
  const Node *current = nullptr;       ///< the node being written, if its kernel takes no 16-bit floats
  int64_t copyOffsetBytes = 0;         ///< the offset of the next f32 copy in its scratch
  std::vector<std::string> narrowings; ///< statements that follow it
};

} // namespace fsdpc

// program.cpp: the functions of the module, cut into one C++ function per section.
#pragma once

#include "codegen/common/program_text.h"
#include "codegen/common/section.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

class ProgramWriter {
public:
  explicit ProgramWriter(ProgramText &program) : program(program) {}
  std::string write();

private:
  /// One section of a function, as written.
  struct Piece {
    const Function *function = nullptr;
    Section section;
    const Node *first = nullptr, *last = nullptr;
    int32_t outline = -1;
    SectionText body;
    std::string name; ///< of its C++ function; the first piece of a group names it for all
    int row = -1;     ///< of the group's table; -1: takes no row
  };
  void cutIntoPieces(const Function &function);
  void addPiece(const Function &function, const Node &first, const Node &last, SectionText body);
  std::string pieceName(const Function &function, Section section);
  void groupPieces();
  void writePieces(std::string &out) const;
  void writePiece(std::string &out, const Piece &piece) const;
  void writeGroup(std::string &out, llvm::ArrayRef<size_t> members) const;
  std::string discardLeftovers();
  void writeDiscardAhead(std::string &out);
  void writeFunctions(std::string &out);
  void writeStart(std::string &out, size_t &next) const;
  std::string header() const;
  std::string optionalFunctions() const;
  std::string declarations() const;

  ProgramText &program;
  std::vector<Piece> pieces;
  std::vector<std::vector<size_t>>
      groups; ///< pieces that are one function, in order of their first member; singles too
  llvm::StringMap<int> nameCounts;
};

} // namespace fsdpc

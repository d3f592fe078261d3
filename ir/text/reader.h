// The reader that implements parse(): recursive descent over tokens. Its recursion does not depend on the input's
// depth, because the grammar nests only twice.
//
// Every read function returns false after it has recorded the first error. Nothing is read after that.
#pragma once

#include "ir/builder.h"
#include "ir/text/fields.h"
#include "ir/text/lexer.h"
#include "ir/text/text.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::text {

/// The right side of one node while it is being read.
struct NodeText {
  Token opToken;
  Op op = Op::ret;
  llvm::SmallVector<Token, 2> results;
  llvm::SmallVector<Value *, 4> operands;
  llvm::SmallVector<Value *, 2> after;
  llvm::SmallVector<Type, 2> types;
  llvm::SmallVector<llvm::StringRef, 8> seen; ///< attributes and clauses, each allowed once
  std::unique_ptr<AttributesBase> attributes;
  Fields fields;
  std::optional<int32_t> unit;
  llvm::SmallVector<Place, 2> places;
  NodeSchedule schedule;
  std::string source;
  /// Elements of a constant. Their dtype may be that of the result, which is read later.
  struct Elements {
    Dense *target = nullptr;
    Token first;
    std::optional<DType> dtype;
    bool splat = false;
    std::optional<std::string> bytes;
    std::optional<Dense> stored;
    llvm::SmallVector<llvm::StringRef> texts;
  } elements;
};

class Reader {
public:
  Reader(llvm::MemoryBufferRef text, const ConstantStore *constants);
  llvm::Expected<std::unique_ptr<Module>> read();

private:
  // reader.cpp: tokens and basic forms
  void advance() { token = lexer.next(); }
  bool fail(const Token &at, const llvm::Twine &message);
  bool failHere(const llvm::Twine &message) { return fail(token, message); }
  /// True if the token continues the item of the current line. On a new line only `word(` does.
  bool clauseFollows() const;
  bool accept(char c);
  bool expect(char c);
  bool acceptWord(llvm::StringRef word);
  bool once(llvm::SmallVectorImpl<llvm::StringRef> &seen);
  bool readInteger(int64_t &value);
  bool readEvent(int32_t &event);
  bool readNumberText(llvm::StringRef &text);
  bool readDouble(double &value);
  bool readString(std::string &value); ///< "..."
  bool readWordOrString(std::string &value);
  bool readSymbol(std::string &name); ///< @name
  bool readDims(Shape &dims);         ///< up to the closing parenthesis
  bool readDType(DType &dtype);
  bool readType(Type &type);
  bool readTensorType(Type &type);
  bool readPlace(Place &place);
  /// ( read ), where `read` reads the inside.
  template <class Read>
  bool parenthesized(Read read) {
    return expect('(') && read() && expect(')');
  }
  /// element {, element}
  template <class Read>
  bool commaSeparated(Read read) {
    do {
      if (!read())
        return false;
    } while (accept(','));
    return true;
  }

  // read_module.cpp
  bool readModule();
  bool readHeader();
  bool readMeshAxis();
  bool readMicroSteps();
  bool readSetting();
  bool readClass();
  bool readBackwardPrefetch(BackwardPrefetch &prefetch);
  bool readDecisions();
  bool readUnitChoice(UnitChoices &choices);
  bool readUnit();
  bool readOutline();
  bool readState();
  bool readStateClause(State &state);
  bool readSlot(State &state);
  bool readParameter();
  bool readParameterClause(Parameter &parameter);
  bool readAdapter(Adapter &adapter);
  bool readInitialValues(InitialValues &initial);
  bool readParameterUse(Parameter &parameter);

  // read_function.cpp
  bool readFunction();
  bool readArgument();
  bool readBody();
  bool readSectionHeader(Section &section, int32_t &outline);
  bool readUnitReference(int32_t &unit);
  bool readNode(Section section, int32_t outline);
  bool readResultNames(NodeText &node);
  bool readOperands(NodeText &node);
  bool readClause(NodeText &node);
  bool readTypes(NodeText &node);
  bool checkCounts(NodeText &node);
  bool finishNode(NodeText &node, Section section, int32_t outline);
  Value *lookUp(const Token &name);
  bool define(const Token &name, Value *value);

  // read_attributes.cpp
  bool readPositionalSymbols(NodeText &node);
  bool readField(NodeText &node, const Field &field);
  bool readElements(NodeText &node, Dense &target);
  bool readStored(NodeText::Elements &elements);
  bool finishElements(NodeText &node);
  bool finishFields(NodeText &node);

  llvm::MemoryBufferRef buffer;
  const ConstantStore *const constants;
  Lexer lexer;
  Token token;
  std::string error;

  std::unique_ptr<Module> module;
  llvm::StringMap<int32_t> units;
  llvm::StringMap<int32_t> outlines;
  llvm::StringSet<> parameters;
  Function *function = nullptr;
  llvm::StringMap<Value *> named;    ///< values of the current function
  llvm::StringMap<Value *> numbered; ///< those without a name, by their digits
  friend class ExpressionReader;
};

/// ", did you mean x?" for the candidate nearest to `word`, or nothing.
template <class Range>
std::string didYouMean(llvm::StringRef word, const Range &candidates) {
  unsigned best = 4;
  llvm::StringRef nearest;
  // Names are shorter than this, and edit distance is quadratic in the length.
  if (word.size() <= 40)
    for (llvm::StringRef candidate : candidates)
      if (unsigned distance = word.edit_distance(candidate, true, best); distance < best) {
        best = distance;
        nearest = candidate;
      }
  return nearest.empty() ? "" : ("; did you mean " + nearest + "?").str();
}

} // namespace fsdpc::text

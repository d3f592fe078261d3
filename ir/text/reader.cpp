#include "ir/text/reader.h"

#include "ir/text/literals.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

namespace fsdpc {

namespace text {

namespace {
// A message quotes at most this much of a line.
constexpr size_t quotedCharacters = 160;

std::string describe(const Token &token) {
  if (token.kind == Token::Kind::end)
    return "the end of the text";
  return ("'" + token.text.take_front(60) + "'").str();
}
} // namespace

Reader::Reader(llvm::MemoryBufferRef text, const ConstantStore *constants)
    : buffer(text), constants(constants), lexer(text.getBuffer()) {
  advance();
}

llvm::Expected<std::unique_ptr<Module>> Reader::read() {
  module = std::make_unique<Module>();
  if (!readModule())
    return llvm::createStringError(error);
  return std::move(module);
}

bool Reader::fail(const Token &at, const llvm::Twine &message) {
  llvm::StringRef before = buffer.getBuffer().take_front(at.text.begin() - buffer.getBufferStart());
  llvm::StringRef lineStart = before.substr(before.rfind('\n') + 1);
  llvm::StringRef line = buffer.getBuffer().substr(before.size() - lineStart.size());
  line = line.take_until([](char c) { return c == '\n' || c == '\r'; });
  int column = static_cast<int>(lineStart.size());
  // One line may be megabytes long.
  size_t shownFrom = lineStart.size() < quotedCharacters ? 0 : lineStart.size() - quotedCharacters / 2;
  std::string shown = line.substr(shownFrom, quotedCharacters).str();
  for (char &c : shown)
    c = llvm::isPrint(c) ? c : '?';

  std::string what = at.kind == Token::Kind::invalid ? at.problem : message.str();
  llvm::SMDiagnostic diagnostic(llvm::SourceMgr(), llvm::SMLoc(), buffer.getBufferIdentifier(),
                                static_cast<int>(before.count('\n')) + 1, column - static_cast<int>(shownFrom),
                                llvm::SourceMgr::DK_Error, what, shown, {});
  llvm::raw_string_ostream out(error);
  diagnostic.print(nullptr, out, false);
  error.resize(llvm::StringRef(error).rtrim('\n').size());
  return false;
}

bool Reader::clauseFollows() const {
  return token.kind == Token::Kind::word && (!token.startsLine || lexer.touches('('));
}

bool Reader::accept(char c) {
  bool found = token.isPunctuation(c);
  if (found)
    advance();
  return found;
}

bool Reader::expect(char c) {
  return accept(c) || failHere("expected '" + llvm::Twine(c) + "' before " + describe(token));
}

bool Reader::acceptWord(llvm::StringRef word) {
  bool found = token.isWord(word);
  if (found)
    advance();
  return found;
}

bool Reader::once(llvm::SmallVectorImpl<llvm::StringRef> &seen) {
  if (llvm::is_contained(seen, token.text))
    return failHere(token.text + " occurs twice");
  seen.push_back(token.text);
  return true;
}

bool Reader::readInteger(int64_t &value) {
  if (token.kind != Token::Kind::number || token.text.getAsInteger(10, value))
    return failHere("expected an integer that fits in 64 bits, not " + describe(token));
  advance();
  return true;
}

bool Reader::readNumberText(llvm::StringRef &text) {
  bool word = token.isWord("inf") || token.isWord("nan") || token.isWord("true") || token.isWord("false");
  if (token.kind != Token::Kind::number && !word)
    return failHere("expected a number, not " + describe(token));
  text = token.text;
  advance();
  return true;
}

bool Reader::readDouble(double &value) {
  Token at = token;
  llvm::StringRef text;
  if (!readNumberText(text))
    return false;
  std::optional<double> read = parseDouble(text);
  if (!read)
    return fail(at, "'" + text.take_front(60) + "' is not a number that an f64 can hold");
  value = *read;
  return true;
}

bool Reader::readString(std::string &value) {
  if (token.kind != Token::Kind::string)
    return failHere("expected a \"string\", not " + describe(token));
  value = token.name();
  advance();
  return true;
}

bool Reader::readWordOrString(std::string &value) {
  if (token.kind != Token::Kind::word)
    return readString(value);
  value = token.text.str();
  advance();
  return true;
}

bool Reader::readSymbol(std::string &name) {
  if (token.kind != Token::Kind::global)
    return failHere("expected an @name, not " + describe(token));
  name = token.name();
  advance();
  return true;
}

bool Reader::readDims(Shape &dims) {
  dims.clear();
  return token.isPunctuation(')') || commaSeparated([&] {
           dims.push_back(0);
           return readInteger(dims.back());
         });
}

bool Reader::readDType(DType &dtype) {
  std::optional<DType> known = token.kind == Token::Kind::word ? dtypeFromName(token.text) : std::nullopt;
  if (!known)
    return failHere("expected an element type (f64 f32 bf16 f16 i64 i32 u8 bool), not " + describe(token));
  dtype = *known;
  advance();
  return true;
}

bool Reader::readTensorType(Type &type) {
  Token at = token;
  DType dtype;
  Shape dims;
  if (!readDType(dtype) || !expect('['))
    return false;
  if (!token.isPunctuation(']') && !commaSeparated([&] {
        dims.push_back(0);
        return readInteger(dims.back());
      }))
    return false;
  if (!expect(']'))
    return false;
  if (llvm::any_of(dims, [](int64_t dim) { return dim < 0; }))
    return fail(at, "a dim is negative");
  if (!checkedBytes(dtype, dims))
    return fail(at, "no memory has as many bytes as the tensor");
  type = Type(dtype, dims);
  return true;
}

bool Reader::readType(Type &type) {
  if (acceptWord("token")) {
    type = Type::token();
    return true;
  }
  if (!acceptWord("future"))
    return readTensorType(type);
  if (!expect('<') || !readTensorType(type) || !expect('>'))
    return false;
  type = Type::future(type);
  return true;
}

bool Reader::readPlace(Place &place) {
  place = Place();
  if (acceptWord("none"))
    return true;
  for (Space space : allSpaces)
    if (token.isWord(nameOf(space)))
      place.space = space;
  if (!place.isPlaced())
    return failHere("expected a memory space (private, window, host, none), not " + describe(token));
  advance();
  if (!expect('+'))
    return false;
  if (token.kind != Token::Kind::number || token.text.getAsInteger(0, place.offsetBytes) || place.offsetBytes < 0)
    return failHere("expected an offset such as 0x40, not " + describe(token));
  advance();
  return true;
}

} // namespace text

llvm::Expected<std::unique_ptr<Module>> parse(llvm::MemoryBufferRef text, const ConstantStore *constants) {
  return text::Reader(text, constants).read();
}

llvm::Expected<std::unique_ptr<Module>> parseFile(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError(path + ": " + buffer.getError().message());
  const ConstantStore constants(ConstantStore::beside(path));
  return parse((*buffer)->getMemBufferRef(), &constants);
}

} // namespace fsdpc

#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc::text {

namespace {
// The characters that symbolText leaves unquoted.
bool isNameCharacter(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$'; }
bool isWordCharacter(char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; }
} // namespace

std::string Token::name() const {
  llvm::StringRef rest = kind == Kind::string ? text : text.drop_front();
  if (!quoted)
    return rest.str();
  rest = rest.drop_front().drop_back();
  std::string decoded;
  for (; !rest.empty(); rest = rest.drop_front()) {
    if (!rest.starts_with("\\")) {
      decoded += rest.front();
    } else if (rest.starts_with("\\\\")) {
      decoded += '\\';
      rest = rest.drop_front();
    } else {
      decoded += static_cast<char>(llvm::hexFromNibbles(rest[1], rest[2]));
      rest = rest.drop_front(2);
    }
  }
  return decoded;
}

bool Token::isNumbered() const {
  return kind == Kind::local && !quoted && llvm::all_of(text.drop_front(), [](char c) { return llvm::isDigit(c); });
}

bool Lexer::skipBlanks() {
  for (; position != end; ++position) {
    if (*position == '\n')
      lineStart = true;
    else if (*position == '/' && end - position > 1 && position[1] == '/')
      while (position + 1 != end && position[1] != '\n')
        ++position;
    else if (*position != ' ' && *position != '\t' && *position != '\r')
      return true;
  }
  return false;
}

Token Lexer::make(Token token, Token::Kind kind, const char *from) {
  token.kind = kind;
  token.text = llvm::StringRef(from, position - from);
  return token;
}

/// `position` is at the opening quote, token.text starts at the sigil or at the quote.
Token Lexer::lexQuoted(Token token) {
  const char *from = token.text.begin();
  Token::Kind kind = token.kind;
  token.quoted = true;
  for (++position; position != end && *position != '\n'; ++position) {
    if (*position == '"') {
      ++position;
      return make(token, kind, from);
    }
    if (*position != '\\')
      continue;
    bool backslash = end - position > 1 && position[1] == '\\';
    bool hexadecimal = end - position > 2 && llvm::isHexDigit(position[1]) && llvm::isHexDigit(position[2]);
    if (!backslash && !hexadecimal) {
      token.problem = "unknown escape: \\\\ is a backslash, \\22 the character with that hexadecimal code";
      return make(token, Token::Kind::invalid, position);
    }
    position += backslash ? 1 : 2;
  }
  token.problem = "the closing quote is missing on this line";
  return make(token, Token::Kind::invalid, from);
}

/// `position` is after the sigil.
Token Lexer::lexName(Token token, Token::Kind kind) {
  const char *from = position - 1;
  token = make(token, kind, from);
  if (position != end && *position == '"')
    return lexQuoted(token);
  while (position != end && isNameCharacter(*position))
    ++position;
  if (position - from == 1)
    token.problem = "a name must follow";
  return make(token, token.problem ? Token::Kind::invalid : kind, from);
}

/// Words, and tokens that start like a number. A number is parsed later, when its type is known.
Token Lexer::lexWord(Token token, Token::Kind kind, const char *from) {
  bool hexadecimal = llvm::StringRef(from, end - from).ltrim('-').starts_with("0x");
  auto continues = [&] {
    // An exponent may have its own sign: 1e-5, 0x1p-5.
    bool sign = kind == Token::Kind::number && (*position == '-' || *position == '+');
    return isWordCharacter(*position) || (sign && llvm::toLower(position[-1]) == (hexadecimal ? 'p' : 'e'));
  };
  while (position != end && continues())
    ++position;
  return make(token, kind, from);
}

Token Lexer::next() {
  Token token;
  bool more = skipBlanks();
  token.startsLine = std::exchange(lineStart, false);
  const char *from = position;
  if (!more)
    return make(token, Token::Kind::end, from);
  char c = *position++;
  if (c == '%' || c == '@')
    return lexName(token, c == '%' ? Token::Kind::local : Token::Kind::global);
  if (c == '"') {
    --position;
    return lexQuoted(make(token, Token::Kind::string, from));
  }
  auto startsWord = [&](const char *at) { return at != end && (llvm::isAlpha(*at) || *at == '_'); };
  bool negative = c == '-' && position != end && (llvm::isDigit(*position) || startsWord(position));
  if (llvm::isDigit(c) || negative)
    return lexWord(token, Token::Kind::number, from);
  if (startsWord(from))
    return lexWord(token, Token::Kind::word, from);
  if (llvm::StringRef("()[]{}<>=,:;+").contains(c))
    return make(token, Token::Kind::punctuation, from);
  token.problem = "no token starts with this character";
  return make(token, Token::Kind::invalid, from);
}

} // namespace fsdpc::text

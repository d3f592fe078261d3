// Turns characters into tokens. Never reads beyond the buffer's end and never fails: unreadable text becomes an
// `invalid` token.
#pragma once

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace fsdpc::text {

struct Token {
  enum class Kind : uint8_t {
    end,
    local,       ///< %name %"name" %0
    global,      ///< @name @"name"
    word,        ///< identifiers and op names: [A-Za-z_][A-Za-z0-9_.]*
    number,      ///< 12 -1.5e-3 0x40 -inf; only its start has been checked
    string,      ///< "..."
    punctuation, ///< one character
    invalid,     ///< `text` is the position, `problem` the reason
  };
  Kind kind = Kind::end;
  bool startsLine = false; ///< first token of its line
  bool quoted = false;
  llvm::StringRef text; ///< as written: sigil and quotes included
  const char *problem = nullptr;

  bool isPunctuation(char c) const { return kind == Kind::punctuation && text[0] == c; }
  bool isWord(llvm::StringRef word) const { return kind == Kind::word && text == word; }
  /// local, global, string: the name, without sigil and quotes, escapes resolved.
  std::string name() const;
  /// A local without quotes whose name is digits only: a value without a name.
  bool isNumbered() const;
};

class Lexer {
public:
  explicit Lexer(llvm::StringRef buffer) : position(buffer.begin()), end(buffer.end()) {}
  Token next();
  /// True if the character `c` immediately follows the last token.
  bool touches(char c) const { return position != end && *position == c; }

private:
  bool skipBlanks();
  Token lexQuoted(Token token);
  Token lexName(Token token, Token::Kind kind);
  Token lexWord(Token token, Token::Kind kind, const char *from);
  Token make(Token token, Token::Kind kind, const char *from);
  const char *position;
  const char *end;
  bool lineStart = true;
};

} // namespace fsdpc::text

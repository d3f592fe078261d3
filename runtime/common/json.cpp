#include "runtime/common/json.h"

#include "runtime/common/failure.h"

#include <charconv>
#include <cmath>

namespace fsdpc::rt {

std::string jsonString(std::string_view text) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string jsonNumber(double value) {
  if (!std::isfinite(value))
    return "null";
  char digits[40];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  return {digits, result.ptr};
}

JsonObject &JsonObject::addRaw(std::string_view key, std::string_view json) {
  if (!body.empty())
    body += ',';
  body += jsonString(key);
  body += ':';
  body += json;
  return *this;
}

void JsonReader::fail(const std::string &what) const {
  throw Failure(ExitCode::corrupt, where + ": byte " + std::to_string(at) + ": " + what);
}

void JsonReader::skipSpace() {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
    ++at;
}

JsonToken JsonReader::next() {
  skipSpace();
  switch (state) {
  case State::afterDocument:
    if (at != text.size())
      fail("text after the end of the JSON document");
    return JsonToken::end;
  case State::firstKeyOrEnd: return peek() == '}' ? close('}') : readKey();
  case State::firstValueOrEnd: return peek() == ']' ? close(']') : readValue();
  case State::value: return readValue();
  case State::afterValue: break;
  }
  const bool inObject = stack.back() == '{';
  if (peek() == (inObject ? '}' : ']'))
    return close(peek());
  if (peek() != ',')
    fail(inObject ? "expected ',' or '}'" : "expected ',' or ']'");
  ++at;
  skipSpace();
  return inObject ? readKey() : readValue();
}

void JsonReader::skipValue() {
  int depth = 0;
  do {
    const JsonToken token = next();
    depth += token == JsonToken::beginObject || token == JsonToken::beginArray;
    depth -= token == JsonToken::endObject || token == JsonToken::endArray;
  } while (depth > 0);
}

void JsonReader::expect(JsonToken token, const char *what) {
  if (next() != token)
    fail(std::string("expected ") + what);
}

std::int64_t JsonReader::unsignedInteger() const {
  std::int64_t number = 0;
  const auto result = std::from_chars(current.data(), current.data() + current.size(), number);
  if (result.ec != std::errc() || result.ptr != current.data() + current.size() || number < 0 || current[0] == '-')
    fail("'" + current.substr(0, 40) + "' is not a non-negative 64-bit integer");
  return number;
}

JsonToken JsonReader::readKey() {
  if (peek() != '"')
    fail("expected a key");
  readString();
  skipSpace();
  if (peek() != ':')
    fail("expected ':'");
  ++at;
  state = State::value;
  return JsonToken::key;
}

JsonToken JsonReader::readValue() {
  switch (peek()) {
  case '{':
  case '[': return open(peek());
  case '"':
    readString();
    closeValue();
    return JsonToken::string;
  case 't':
  case 'f':
  case 'n': return readLiteral();
  default: return readNumber();
  }
}

JsonToken JsonReader::open(char bracket) {
  if (stack.size() == maxDepth)
    fail("nested deeper than " + std::to_string(maxDepth));
  stack.push_back(bracket);
  ++at;
  state = bracket == '{' ? State::firstKeyOrEnd : State::firstValueOrEnd;
  return bracket == '{' ? JsonToken::beginObject : JsonToken::beginArray;
}

JsonToken JsonReader::close(char bracket) {
  stack.pop_back();
  ++at;
  closeValue();
  return bracket == '}' ? JsonToken::endObject : JsonToken::endArray;
}

void JsonReader::readString() {
  current.clear();
  ++at;
  while (true) {
    if (at >= text.size())
      fail("unterminated string");
    const char c = text[at++];
    if (c == '"')
      return;
    if (c == '\\')
      readEscape();
    else if (static_cast<unsigned char>(c) < 0x20)
      fail("control character in a string");
    else
      current += c;
  }
}

static void appendUtf8(std::string &out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int continuations = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr unsigned lead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(lead[continuations] | (code >> (6 * continuations)));
  for (int i = continuations - 1; i >= 0; --i)
    out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

void JsonReader::readEscape() {
  static constexpr std::string_view letters = "\"\\/bfnrt";
  static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  const char c = peek();
  ++at;
  if (const auto i = letters.find(c); i != std::string_view::npos) {
    current += meanings[i];
    return;
  }
  if (c != 'u')
    fail("unknown escape in a string");
  std::uint32_t code = readHex4();
  if (code >= 0xD800 && code < 0xDC00 && text.substr(at, 2) == "\\u") {
    at += 2;
    const std::uint32_t low = readHex4();
    if (low < 0xDC00 || low > 0xDFFF)
      fail("lone surrogate in a string");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xD800 && code <= 0xDFFF) {
    fail("lone surrogate in a string");
  }
  appendUtf8(current, code);
}

std::uint32_t JsonReader::readHex4() {
  std::uint32_t code = 0;
  const std::string_view digits = text.substr(std::min(at, text.size()), 4);
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || result.ec != std::errc() || result.ptr != digits.data() + 4)
    fail("expected four hexadecimal digits");
  at += 4;
  return code;
}

bool JsonReader::readDigits() {
  const std::size_t begin = at;
  while (peek() >= '0' && peek() <= '9')
    ++at;
  return at != begin;
}

JsonToken JsonReader::readNumber() {
  const std::size_t begin = at;
  if (peek() == '-')
    ++at;
  if (peek() == '0')
    ++at;
  else if (!readDigits())
    fail("expected a value");
  if (peek() == '.') {
    ++at;
    if (!readDigits())
      fail("expected digits after '.'");
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at;
    if (peek() == '+' || peek() == '-')
      ++at;
    if (!readDigits())
      fail("expected digits in the exponent");
  }
  current.assign(text.substr(begin, at - begin));
  closeValue();
  return JsonToken::number;
}

JsonToken JsonReader::readLiteral() {
  for (const std::string_view word : {"true", "false", "null"})
    if (text.substr(at, word.size()) == word) {
      at += word.size();
      current = word;
      closeValue();
      return JsonToken::literal;
    }
  fail("expected a value");
}

} // namespace fsdpc::rt

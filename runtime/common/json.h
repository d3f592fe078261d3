// The JSON support of the runtime: a writer of objects for logs and file headers, and a strict pull parser for headers
// of untrusted files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::rt {

/// `text` as a JSON string literal, quotes included.
std::string jsonString(std::string_view text);
/// The shortest digits that read back as `value`; `null` for NaN and infinities.
std::string jsonNumber(double value);

/// Builds one object. Members keep the order of the calls.
class JsonObject {
public:
  JsonObject &add(std::string_view key, double value) { return addRaw(key, jsonNumber(value)); }
  JsonObject &add(std::string_view key, std::int64_t value) { return addRaw(key, std::to_string(value)); }
  JsonObject &add(std::string_view key, int value) { return addRaw(key, std::to_string(value)); }
  JsonObject &add(std::string_view key, std::string_view value) { return addRaw(key, jsonString(value)); }
  JsonObject &add(std::string_view key, const char *value) { return addRaw(key, jsonString(value)); }
  JsonObject &add(std::string_view key, bool value) { return addRaw(key, value ? "true" : "false"); }
  /// `json` must be valid JSON.
  JsonObject &addRaw(std::string_view key, std::string_view json);
  std::string str() const { return body.empty() ? "{}" : "{" + body + "}"; }

private:
  std::string body;
};

enum class JsonToken : std::uint8_t { beginObject, endObject, beginArray, endArray, key, string, number, literal, end };

/// Reads one JSON document token by token. Accepts exactly RFC 8259, with nesting of at most `maxDepth`. Every error is
/// a Failure{corrupt} "<where>: byte <n>: <what>". Iterative: the stack does not grow with the input.
class JsonReader {
public:
  static constexpr std::size_t maxDepth = 16;

  /// `text` must outlive the reader.
  JsonReader(std::string_view text, std::string where) : text(text), where(std::move(where)) {}

  /// Returns the next token; `end` after the document, if only white space follows it.
  JsonToken next();
  /// Calls `next()`; the result must be `token`.
  void expect(JsonToken token, const char *what);

  /// Passes over a value, which is next.
  void skipValue();

  /// The decoded key or string just read, or the characters of a number or literal.
  const std::string &value() const { return current; }
  /// The number just read. Fails unless it is a non-negative integer below 2^63.
  std::int64_t unsignedInteger() const;
  [[noreturn]] void fail(const std::string &what) const;

private:
  enum class State : std::uint8_t { value, firstKeyOrEnd, firstValueOrEnd, afterValue, afterDocument };

  void skipSpace();
  char peek() const { return at < text.size() ? text[at] : '\0'; }
  JsonToken readValue();
  JsonToken readKey();
  JsonToken open(char bracket);
  JsonToken close(char bracket);
  void closeValue() { state = stack.empty() ? State::afterDocument : State::afterValue; }
  void readString();
  void readEscape();
  std::uint32_t readHex4();
  JsonToken readNumber();
  JsonToken readLiteral();
  bool readDigits();

  std::string_view text;
  std::string where;
  std::size_t at = 0;
  State state = State::value;
  std::vector<char> stack; ///< '{' or '[' per open container
  std::string current;
};

} // namespace fsdpc::rt

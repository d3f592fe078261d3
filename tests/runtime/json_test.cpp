#include "runtime/common/json.h"
#include "tests/runtime/temporary_folder.h"

#include "runtime/common/failure.h"

#include <limits>

namespace fsdpc::rt {
namespace {

/// Kinds and values of all tokens: "{ k:a n:1 }".
std::string tokensOf(const std::string &text) {
  JsonReader reader(text, "test");
  std::string out;
  while (true)
    switch (reader.next()) {
    case JsonToken::beginObject: out += "{ "; break;
    case JsonToken::endObject: out += "} "; break;
    case JsonToken::beginArray: out += "[ "; break;
    case JsonToken::endArray: out += "] "; break;
    case JsonToken::key: out += "k:" + reader.value() + " "; break;
    case JsonToken::string: out += "s:" + reader.value() + " "; break;
    case JsonToken::number:
    case JsonToken::literal: out += reader.value() + " "; break;
    case JsonToken::end: return out;
    }
}

TEST(Json, ReadsEveryKindOfToken) {
  EXPECT_EQ(tokensOf(R"( {"a" : [1, -2.5e+3, true], "b":{}, "c":"x","d":[ ] } )"),
            "{ k:a [ 1 -2.5e+3 true ] k:b { } k:c s:x k:d [ ] } ");
}

TEST(Json, DecodesEscapes) { EXPECT_EQ(tokensOf(R"("\u00e9\ud83d\ude00\n\"")"), "s:\xc3\xa9\xf0\x9f\x98\x80\n\" "); }

TEST(Json, RefusesWhatIsNotJson) {
  for (const char *text : {"", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "01", "1.", "+1", "nul", "\"a",
                           "\"\\x\"", "\"\\ud800\"", "{} {}", "[1 2]", "\"\t\"", "{\"a\":}", "]", "\"\\u12"})
    EXPECT_FAILURE(tokensOf(text), corrupt, "test: byte");
}

TEST(Json, RefusesDeepNesting) { EXPECT_FAILURE(tokensOf(std::string(100000, '[')), corrupt, "nested deeper than 16"); }

TEST(Json, IntegersAreNonNegativeAndFit) {
  for (const char *text : {"-1", "1.5", "9223372036854775808", "1e3"}) {
    JsonReader reader(text, "test");
    reader.next();
    EXPECT_FAILURE(reader.unsignedInteger(), corrupt, "not a non-negative 64-bit integer");
  }
}

TEST(Json, WrittenTextReadsBack) {
  const std::string name = "a\"\\\n\x01/\xc3\xa9";
  const std::string text = jsonString(name);
  JsonReader reader(text, "test");
  reader.next();
  EXPECT_EQ(reader.value(), name);
  EXPECT_EQ(jsonNumber(0.1), "0.1");
  EXPECT_EQ(jsonNumber(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(JsonObject().add("a", 1).add("b", "x").add("c", true).str(), R"({"a":1,"b":"x","c":true})");
}

} // namespace
} // namespace fsdpc::rt

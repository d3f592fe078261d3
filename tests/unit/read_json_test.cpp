// JSON of others is read or refused, however deep it is.
#include "ir/read_json.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

/// "" if the text is read.
std::string failureOf(const std::string &text) {
  llvm::Expected<llvm::json::Value> value = readJson(text);
  return value ? "" : llvm::toString(value.takeError());
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ReadJson, DeepTextIsRefused) {
  EXPECT_EQ(failureOf(nested(maxJsonDepth)), "");
  for (const std::string &text : {nested(maxJsonDepth + 1), nested(1'000'000), std::string(1'000'000, '['),
                                  R"({"a\"b":)" + nested(1'000'000) + "}"})
    EXPECT_EQ(failureOf(text), "lists and objects are more than 64 deep");
}

TEST(ReadJson, BracketsInStringsAndClosedOnesAreNoDepth) {
  EXPECT_EQ(failureOf(R"({"[\"[": ")" + std::string(1000, '{') + "\"}"), "");
  std::string list = "[0";
  for (int i = 0; i < 1000; ++i)
    list += ",[{}]";
  EXPECT_EQ(failureOf(list + "]"), "");
}

TEST(ReadJson, DamageIsNamedWithItsPlace) {
  for (const char *text : {"", "]", "[}", "\"\\", "{\"a\":1"})
    EXPECT_THAT(failureOf(text), testing::HasSubstr("byte=")) << text;
}

} // namespace
} // namespace fsdpc

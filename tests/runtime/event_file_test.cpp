// Event files have the bytes that TensorBoard's format prescribes.
#include "runtime/common/event_file.h"
#include "runtime/common/run_log.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

namespace fsdpc::rt {
namespace {

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

/// The data of the records of the only file of a folder, their checksums checked.
std::vector<std::string> recordsIn(const std::string &folder) {
  std::vector<std::string> records;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    const std::string content = contentOf(entry.path().string());
    for (std::size_t at = 0; at < content.size();) {
      const auto length = valuesOf<std::uint64_t>(content.substr(at, 8))[0];
      EXPECT_EQ(valuesOf<std::uint32_t>(content.substr(at + 8, 4))[0], masked(crc32c(content.substr(at, 8))));
      records.push_back(content.substr(at + 12, length));
      EXPECT_EQ(valuesOf<std::uint32_t>(content.substr(at + 12 + length, 4))[0], masked(crc32c(records.back())));
      at += length + 16;
    }
  }
  return records;
}

TEST(EventFile, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau); // RFC 3720, B.4
}

TEST(EventFile, HoldsAVersionAndAScalarPerRecord) {
  const TemporaryFolder folder;
  {
    EventFile events(folder.path("runs/a"), 0);
    events.add("loss", 300, 1.5);
  }
  const std::vector<std::string> records = recordsIn(folder.path("runs/a"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(0, 1), "\x09"); // wall_time, eight bytes
  EXPECT_EQ(records[0].substr(9), "\x1a\x0d"
                                  "brain.Event:2");
  // step 300 as a varint; a summary with one value: tag "loss", simple_value 1.5f
  EXPECT_EQ(records[1].substr(9), std::string("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04"
                                              "loss"
                                              "\x15\x00\x00\xc0\x3f",
                                              18));
}

TEST(EventFile, OtherRanksAndRunsWithoutAFolderWriteNothing) {
  const TemporaryFolder folder;
  EventFile(folder.path("runs"), 1).add("loss", 1, 2);
  EventFile("", 0).add("loss", 1, 2);
  EXPECT_TRUE(folder.names().empty());
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_FAILURE(EventFile(folder.path("file/runs"), 0), storage, "file/runs");
}

TEST(Progress, RemainingTimesAreShort) {
  EXPECT_EQ(remainingText(0.2), "1s");
  EXPECT_EQ(remainingText(185), "3m05s");
  EXPECT_EQ(remainingText(3725), "1h02m");
}

} // namespace
} // namespace fsdpc::rt

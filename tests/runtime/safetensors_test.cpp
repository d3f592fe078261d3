#include "runtime/common/safetensors.h"
#include "tests/runtime/temporary_folder.h"

namespace fsdpc::rt {
namespace {

class Safetensors : public ::testing::Test {
protected:
  TemporaryFolder folder;

  void expectRefused(const std::string &header, const std::string &data, const std::string &part) {
    const std::string path = folder.write("bad.safetensors", safetensorsBytes(header, data));
    EXPECT_FAILURE(SafetensorsFile file(path), corrupt, part);
  }
};

TEST_F(Safetensors, RoundTripWithEveryElementAligned) {
  const std::string path = folder.path("a.safetensors");
  SafetensorsWriter writer(
      path, {{"bytes", ElementType::u8, {3}}, {"a", ElementType::f32, {2, 1}}, {"z", ElementType::i64, {}}});
  writer.write(*writer.find("a"), bytesOf<float>({1.5f, -2.0f}).data());
  writer.writeRange(*writer.find("bytes"), 1, "xy", 2);
  writer.write(*writer.find("z"), bytesOf<std::int64_t>({-7}).data());
  writer.commit();

  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dims, (std::vector<std::int64_t>{2, 1}));
  const std::string content = contentOf(path);
  const auto bytes = [&](const char *name) {
    const TensorEntry &entry = *file.find(name);
    EXPECT_EQ(entry.offsetBytes % byteSize(entry.type), 0);
    return content.substr(static_cast<std::size_t>(entry.offsetBytes), static_cast<std::size_t>(entry.sizeBytes));
  };
  EXPECT_EQ(bytes("a"), bytesOf<float>({1.5f, -2.0f}));
  EXPECT_EQ(bytes("bytes"), std::string("\0xy", 3));
  EXPECT_EQ(bytes("z"), bytesOf<std::int64_t>({-7}));
  EXPECT_EQ(file.find("b"), nullptr);
}

TEST_F(Safetensors, NothingIsLeftWithoutCommit) {
  {
    SafetensorsWriter writer(folder.path("a.safetensors"), {{"a", ElementType::f32, {1000}}});
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(Safetensors, AFolderThatIsNotThereIsAStorageFailure) {
  EXPECT_FAILURE(SafetensorsWriter(folder.path("no/a.safetensors"), {{"a", ElementType::f32, {1}}}), storage,
                 "cannot create");
}

TEST_F(Safetensors, MetadataOfStringsIsAccepted) {
  const std::string path = folder.write("m.safetensors", safetensorsBytes(R"({"__metadata__":{"format":"pt"}})", ""));
  EXPECT_TRUE(SafetensorsFile(path).tensors().empty());
}

TEST_F(Safetensors, RefusesBadHeaders) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string data(8, 'd');
  expectRefused(" " + good, data, "starts with '{'");
  expectRefused(good.substr(0, good.size() - 1), data, "expected");
  expectRefused(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", data, "element type 'F33'");
  expectRefused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", data, "needs 12 bytes");
  expectRefused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", data, "non-negative");
  expectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", data, "needs dtype, shape");
  expectRefused(R"({"a":{"dtype":"F32","shape":[2]}})", data, "needs dtype, shape");
  expectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", data, "unexpected key 'x'");
  expectRefused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data,
                "unexpected key 'dtype'");
  expectRefused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", data, "overflows");
  expectRefused(R"({"__metadata__":{"n":1}})", "", "strings to strings");
  expectRefused(R"({"__metadata__":{"n":{"m":{}}}})", "", "strings to strings");
}

TEST_F(Safetensors, RefusesDataThatTheTensorsDoNotCover) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  expectRefused("{" + a + "}", "12345", "the file has 5");
  expectRefused("{" + a + "}", "123", "the file has 3");
  expectRefused("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", "1234567",
                "starts at data byte 5");
  expectRefused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "123456",
                "starts at data byte 2");
  expectRefused("{" + a + R"(,"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})", "12345",
                "two tensors are named 'a'");
}

TEST_F(Safetensors, RefusesShortFilesAndLongHeaders) {
  EXPECT_FAILURE(SafetensorsFile file(folder.write("s", "1234")), corrupt, "too short");
  EXPECT_FAILURE(SafetensorsFile file(folder.write("l", bytesOf<std::uint64_t>({1ull << 63}) + "{}")), corrupt,
                 "does not fit the file");
  EXPECT_FAILURE(SafetensorsFile file(folder.path("absent")), corrupt, "cannot open");
}

} // namespace
} // namespace fsdpc::rt

#include "runtime/common/batch_feeder.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

namespace fsdpc::rt {
namespace {

class Feeder : public ::testing::Test {
protected:
  Feeder() { context.privateArena = arena; }

  std::string batch(const std::string &name, std::vector<std::int32_t> labels, std::vector<double> x) {
    const std::string n = std::to_string(labels.size()), half = std::to_string(labels.size() * 4);
    const std::string end = std::to_string(labels.size() * 20);
    return folder.write(name, safetensorsBytes(R"({"labels":{"dtype":"I32","shape":[)" + n + R"(],"data_offsets":[0,)" +
                                                   half + R"(]},"x":{"dtype":"F64","shape":[)" + n +
                                                   R"(,2],"data_offsets":[)" + half + "," + end + "]}}",
                                               bytesOf(labels) + bytesOf(x)));
  }

  BatchFeeder feeder(const std::string &path, const FeedOptions &options = {}) {
    return BatchFeeder(program.info, openDataset({path}), options);
  }

  template <class T>
  std::vector<T> values(Place place, std::size_t count) {
    const T *data = context.at<T>(place);
    return {data, data + count};
  }

  TemporaryFolder folder;
  FakeProgram program{1};
  alignas(64) std::byte arena[1024] = {};
  Context context;
};

TEST_F(Feeder, ConvertsAndGathersRowsInTheirOrder) {
  BatchFeeder fed = feeder(batch("a.safetensors", {0, 1, 2}, {0.5, 1, 1.5, 2, 2.5, 3}));
  EXPECT_EQ(fed.samples(), 3);
  const std::int64_t rows[] = {2, 0};
  fed.fill(context, rows);
  EXPECT_EQ(values<float>(at::x, 4), (std::vector<float>{2.5f, 3, 0.5f, 1}));
  EXPECT_EQ(values<std::int64_t>(at::labels, 2), (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(values<float>(at::weight, 2), (std::vector<float>{1, 1}));
}

TEST_F(Feeder, PaddingIsZeroIgnoredAndWithoutWeight) {
  BatchFeeder fed = feeder(batch("a.safetensors", {3, 1}, {1, 2, 3, 4}));
  const std::int64_t rows[] = {1, -1};
  fed.fill(context, rows);
  EXPECT_EQ(values<float>(at::x, 4), (std::vector<float>{3, 4, 0, 0}));
  EXPECT_EQ(values<std::int64_t>(at::labels, 2), (std::vector<std::int64_t>{1, -100}));
  EXPECT_EQ(values<float>(at::weight, 2), (std::vector<float>{1, 0}));
}

TEST_F(Feeder, LabelsOutOfRangeAreNamedBeforeTheFirstStepAndWhenUsed) {
  const std::string path = batch("a.safetensors", {0, 5, -100}, {1, 2, 3, 4, 5, 6});
  BatchFeeder fed = feeder(path);
  EXPECT_FAILURE(fed.checkRanges(0, 1), corrupt,
                 "(sample 1 of labels): 5 is out of range for input labels, which takes 0 to 4 (or -100)");
  int beats = 0;
  fed.checkRanges(1, 2, [&] { ++beats; }); // the only block is the other rank's
  EXPECT_EQ(beats, 0);
  feeder(batch("good.safetensors", {0, 1}, {1, 2, 3, 4})).checkRanges(0, 1, [&] { ++beats; });
  EXPECT_EQ(beats, 1);
  const std::int64_t good[] = {0, 2};
  fed.fill(context, good);
  const std::int64_t bad[] = {0, 1};
  EXPECT_FAILURE(fed.fill(context, bad), corrupt, path + ": byte ");
  EXPECT_FAILURE(feeder(batch("b.safetensors", {-1}, {1, 2})).checkRanges(0, 1), corrupt, "-1 is out of range");
}

TEST_F(Feeder, MissingFieldsAreListedWithWhatThereIs) {
  const std::string path = folder.write(
      "n.safetensors", safetensorsBytes(R"({"y":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", "12345678"));
  EXPECT_FAILURE(feeder(path), usage, "no field for x F32[2], labels I64[]; the data has y F32[2]");
  EXPECT_FAILURE(feeder(path, {{"x=z"}, {}}), usage, "has no field 'z'; it has y F32[2]");
  EXPECT_FAILURE(feeder(path, {{"lables=y"}, {}}), usage, "no input 'lables'; did you mean 'labels'?");
  EXPECT_FAILURE(feeder(path, {{"x=y", "x=y"}, {}}), usage, "given twice");
  EXPECT_FAILURE(feeder(path, {{"x"}, {}}), usage, "expected INPUT=VALUE");
  EXPECT_FAILURE(feeder(path, {{"labels=y", "x=y"}, {}}), corrupt, "does not have the shape of input labels");
}

TEST_F(Feeder, MapAndFill) {
  const std::string path =
      folder.write("n.safetensors", safetensorsBytes(R"({"y":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
                                                     bytesOf<float>({1, 2, 3, 4})));
  BatchFeeder fed = feeder(path, {{"x=y"}, {"labels=1"}});
  const std::int64_t rows[] = {1, 0};
  fed.fill(context, rows);
  EXPECT_EQ(values<float>(at::x, 4), (std::vector<float>{3, 4, 1, 2}));
  EXPECT_EQ(values<std::int64_t>(at::labels, 2), (std::vector<std::int64_t>{1, 1}));
  EXPECT_FAILURE(feeder(path, {{"x=y"}, {"labels=iota"}}), usage, "has none but the batch");
  EXPECT_FAILURE(feeder(path, {{"x=y"}, {"labels=2"}}), usage, "expected 1, 0, iota, mask");
}

TEST_F(Feeder, FloatsNeverBecomeLabels) {
  const std::string path = folder.write(
      "f.safetensors",
      safetensorsBytes(
          R"({"labels":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}})",
          std::string(12, '\0')));
  EXPECT_FAILURE(feeder(path), corrupt, "field labels F32[] does not have the type of input labels I64[]");
}

TEST_F(Feeder, FieldsNeedTheSameNumberOfSamples) {
  const std::string path = folder.write(
      "d.safetensors",
      safetensorsBytes(
          R"({"labels":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"x":{"dtype":"U8","shape":[1,2],"data_offsets":[3,5]}})",
          std::string(5, '\0')));
  EXPECT_FAILURE(feeder(path), corrupt, "has 1 samples");
}

TEST_F(Feeder, TokensFeedTheOnlyIntegerInput) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100},
                    {"mask", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::shard},
                    {"positions", InputKind::data, DType::i32, {2, {fakeBatch, 3}}, at::prediction},
                    {"targets", InputKind::labels, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100}};
  program.info.inputs = program.inputs;
  const FeedOptions fills{{}, {"mask=1", "positions=iota"}};
  EXPECT_EQ(tokensPerSample(program.info, {}), 0);
  EXPECT_EQ(tokensPerSample(program.info, fills), 3);
  EXPECT_EQ(tokensPerSample(program.info, {{"ids=tokens"}, {}}), 3);
  DataRequest request{folder.write("t.bin", bytesOf<std::uint16_t>({1, 2, 3, 4, 5, 6, 7}))};
  request.format = "tokens";
  request.tokensPerSample = 3;
  BatchFeeder fed(program.info, openDataset(request), fills);
  const std::int64_t rows[] = {0, 1};
  fed.fill(context, rows);
  EXPECT_EQ(values<std::int64_t>(at::x, 6), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values<std::int64_t>(at::labels, 6), (std::vector<std::int64_t>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values<std::int32_t>(at::prediction, 6), (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_FALSE(fed.hasSampleWeight());
}

TEST_F(Feeder, ImagesAreNormalizedAndShapedToTheInput) {
  folder.write("t-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x01\xff\x00\x00\x33", 20));
  folder.write("t-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02\x04\x00", 10));
  BatchFeeder fed = feeder(folder.path("t-*"));
  const std::int64_t rows[] = {0, 1};
  fed.fill(context, rows);
  EXPECT_EQ(values<float>(at::x, 4), (std::vector<float>{1, 0, 0, 51.0f / 255.0f}));
  EXPECT_EQ(values<std::int64_t>(at::labels, 2), (std::vector<std::int64_t>{4, 0}));
}

} // namespace
} // namespace fsdpc::rt

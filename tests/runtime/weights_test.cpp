#include "runtime/common/onnx_file.h"
#include "runtime/common/shards.h"
#include "runtime/common/taps.h"
#include "runtime/common/weights.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

namespace fsdpc::rt {
namespace {

TEST(Shards, RangesOfAllShardsCoverAParameterOnce) {
  const SegmentInfo segment{"u", DType::f32, 24, 8, {}};
  const ParameterInfo parameter{"p", DType::f32, {1, {13}}, 0, 6, true, "p", {0}, {1, {13}}, 0, true};
  EXPECT_EQ(shardRange(segment, parameter, 0).shardElement, 6);
  std::int64_t next = 0;
  for (int shard = 0; shard < 3; ++shard) {
    const ShardRange range = shardRange(segment, parameter, shard);
    EXPECT_EQ(range.parameterElement, next);
    EXPECT_EQ(range.shardElement + shard * 8, parameter.offsetElements + next);
    next += range.elements;
  }
  EXPECT_EQ(next, 13);
  const ParameterInfo small{"q", DType::f32, {1, {2}}, 0, 0, true, "q", {0}, {1, {2}}, 0, true};
  EXPECT_EQ(shardRange(segment, small, 2).elements, 0);
}

class WeightsFile : public ::testing::Test {
protected:
  std::string write(const std::string &wName, const std::vector<std::int64_t> &wDims,
                    ElementType type = ElementType::f32) {
    const std::string path = folder.path("w.safetensors");
    SafetensorsWriter writer(path, {{wName, type, wDims}, {"scale", ElementType::f32, {2, 2}}});
    if (type == ElementType::f32)
      writer.write(*writer.find(wName), bytesOf<float>({1, 2, 3, 0}).data());
    else
      writer.write(*writer.find(wName), bytesOf<double>({1, 2, 3}).data());
    writer.write(*writer.find("scale"), bytesOf<float>({5, 6, 7, 8}).data());
    writer.commit();
    return path;
  }
  TemporaryFolder folder;
};

TEST_F(WeightsFile, EachRankReadsItsSliceAndPaddingStaysZero) {
  for (const ElementType type : {ElementType::f32, ElementType::f64}) {
    const std::string path = write("w", {3}, type);
    const FakeProgram program(2);
    alignas(64) std::byte arena[1024];
    std::memset(arena, 0x7f, sizeof arena);
    Context context;
    context.privateArena = arena;
    context.rank = 1;
    context.worldSize = 2;
    resetState(program.info, context);
    int beats = 0;
    Weights(program.info, path, WeightsOrigin::user).load(context, [&] { ++beats; });
    EXPECT_GE(beats, 2); // at least one heartbeat per tensor
    EXPECT_EQ(context.at<float>(at::shard)[0], 3.0f);
    EXPECT_EQ(context.at<float>(at::shard)[1], 0.0f);
    EXPECT_EQ(context.at<float>(at::frozen)[0], 7.0f);
    EXPECT_EQ(context.at<float>(at::state)[1], 0.5f);
  }
}

TEST_F(WeightsFile, ShardsOfAnAxisWholeSegmentsAndReplicasAreFilled) {
  // Four ranks: two replicas of two shards. `w` is split over the shard axis and also stored unsharded. `scale` is
  // unsharded on every rank.
  const Place replica{Space::privateSpace, 640};
  FakeProgram program(2);
  program.info.worldSize = 4;
  program.axes = {{"replicate", 2, 2}, {"shard", 2, 1}};
  program.segments = {{"body", DType::f32, 4, 2, at::shard, 1},
                      {"frozen", DType::f32, 4, 4, at::frozen},
                      {"body", DType::f32, 4, 4, replica, -1, 0}};
  program.info.axes = program.axes;
  program.info.segments = program.segments;
  const Weights weights(program.info, write("w", {3}), WeightsOrigin::user);
  for (int rank = 0; rank < 4; ++rank) {
    alignas(64) std::byte arena[1024];
    std::memset(arena, 0x7f, sizeof arena);
    Context context;
    context.privateArena = arena;
    context.rank = rank;
    context.worldSize = 4;
    resetState(program.info, context);
    weights.load(context);
    const auto valuesAt = [&](Place place, std::size_t count) {
      return std::vector<float>(context.at<float>(place), context.at<float>(place) + count);
    };
    EXPECT_EQ(valuesAt(at::shard, 2), (rank % 2 == 0 ? std::vector<float>{1, 2} : std::vector<float>{3, 0})) << rank;
    EXPECT_EQ(valuesAt(at::frozen, 4), (std::vector<float>{5, 6, 7, 8})) << rank;
    EXPECT_EQ(valuesAt(replica, 4), (std::vector<float>{1, 2, 3, 0})) << rank;
  }
}

TEST_F(WeightsFile, MissingExtraAndMisshapenNamesAreListed) {
  const FakeProgram program(1);
  EXPECT_FAILURE(Weights(program.info, write("v", {3}), WeightsOrigin::user), incompatible,
                 "missing: w [3]\n  extra: v [3]");
  EXPECT_FAILURE(Weights(program.info, write("w", {4}), WeightsOrigin::user), incompatible, "w is [4] there, [3] here");
  EXPECT_FAILURE(Weights(program.info, folder.path("absent"), WeightsOrigin::user), corrupt, "cannot open");
}

TEST_F(WeightsFile, TheCompiledFileHoldsOnlyWhatTheTableSays) {
  FakeProgram program(1);
  program.parameters[0].inWeightsFile = false;
  alignas(64) std::byte arena[1024] = {};
  Context context;
  context.privateArena = arena;
  Weights(program.info, write("other", {3}), WeightsOrigin::compiled).load(context);
  EXPECT_EQ(context.at<float>(at::shard)[0], 0.0f);
  EXPECT_EQ(context.at<float>(at::frozen)[3], 8.0f);
}

TEST(OnnxData, ElementsArePermutedAsTheModelHasThem) {
  const TemporaryFolder folder;
  ParameterInfo parameter{"p", DType::f32, {3, {2, 3, 4}}, 0, 0, true, "p", {2, 0, 1}, {3, {4, 2, 3}}, 8, true};
  std::vector<float> values(24);
  for (std::size_t i = 0; i < 24; ++i)
    values[i] = static_cast<float>(i);
  {
    OutputFile file(folder.path("d"), 8 + 96);
    writePermuted(file, parameter, reinterpret_cast<const std::byte *>(values.data()));
    file.commit();
  }
  const auto written = valuesOf<float>(contentOf(folder.path("d")).substr(8));
  for (std::size_t i = 0; i < 4; ++i) // file [4, 2, 3] at (i, j, k) is the parameter [2, 3, 4] at (j, k, i)
    for (std::size_t j = 0; j < 2; ++j)
      for (std::size_t k = 0; k < 3; ++k)
        EXPECT_EQ(written[i * 6 + j * 3 + k], values[j * 12 + k * 4 + i]);
}

TEST(OnnxData, LargeTransposesGoThroughSeveralChunks) {
  const TemporaryFolder folder;
  const std::int64_t rows = 300, columns = 257;
  ParameterInfo parameter{"p", DType::i32, {2, {rows, columns}}, 0, 0,   true,
                          "p", {1, 0},     {2, {columns, rows}}, 0, true};
  std::vector<std::int32_t> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>(i);
  OutputFile file(folder.path("d"), rows * columns * 4);
  writePermuted(file, parameter, reinterpret_cast<const std::byte *>(values.data()));
  file.commit();
  const auto written = valuesOf<std::int32_t>(contentOf(folder.path("d")));
  for (std::int64_t i = 0; i < columns; ++i)
    for (std::int64_t j = 0; j < rows; ++j)
      ASSERT_EQ(written[static_cast<std::size_t>(i * rows + j)], j * columns + i);
}

TEST(OnnxData, TheDataFileIsNamedAfterTheModel) {
  const auto field = [](int number, const std::string &value) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + value;
  };
  const auto model = [&](const std::string &location) {
    const std::string entry = field(1, "location") + field(2, location), other = field(1, "checksum") + field(2, "old");
    const std::string tensor = field(8, "old") + field(13, entry) + field(13, other) + "\x10\x01";
    return std::string("\x08\x0a", 2) + field(7, field(2, "old") + field(5, tensor)) + field(2, "old");
  };
  EXPECT_EQ(withDataFile(model("old"), "old", "a much longer name.data", "m"), model("a much longer name.data"));
  EXPECT_EQ(withDataFile(model("another"), "old", "new", "m"), model("another"));
  for (std::size_t length = 1; length < model("old").size(); ++length) // every cut, read or refused
    try {
      withDataFile(model("old").substr(0, length), "old", "new", "m");
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, ExitCode::corrupt);
    }
  EXPECT_FAILURE(withDataFile("\x3a\x7f", "old", "new", "m"), corrupt, "m: is not an ONNX model");
}

TEST(OnnxData, BothFilesMustBeWritable) {
  const TemporaryFolder folder;
  const FakeProgram program(1);
  requireOnnxWritable(program.info, folder.path("a.onnx"));
  EXPECT_FAILURE(requireOnnxWritable(program.info, folder.path("no/a.onnx")), storage, "cannot create a file");
}

} // namespace
} // namespace fsdpc::rt

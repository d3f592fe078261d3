// Samples of unequal length that share rows.
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

#include "runtime/common/batch_feeder.h"

#include <random>

namespace fsdpc::rt {
namespace {

RowPacking packed(std::int64_t rowElements, const std::vector<std::int64_t> &lengths) {
  RowPacking packing(rowElements, static_cast<std::int64_t>(lengths.size()));
  for (const std::int64_t length : lengths)
    packing.add(length);
  packing.endShard();
  return packing;
}

std::vector<std::vector<std::uint32_t>> rowsOf(const RowPacking &packing) {
  std::vector<std::vector<std::uint32_t>> rows;
  for (std::int64_t row = 0; row < packing.rows(); ++row)
    rows.emplace_back(packing.samplesOf(row).begin(), packing.samplesOf(row).end());
  return rows;
}

TEST(RowPacking, ARowTakesTheLongestSampleAndThenTheLongestThatFits) {
  using Rows = std::vector<std::vector<std::uint32_t>>;
  EXPECT_EQ(rowsOf(packed(10, {2, 7, 3, 6, 4, 1})), (Rows{{0, 5}, {1, 2}, {3, 4}}));
  EXPECT_EQ(rowsOf(packed(10, {6, 6, 6})), (Rows{{0}, {1}, {2}}));
  EXPECT_EQ(rowsOf(packed(10, {25, 0, 10})), (Rows{{0, 1}, {2}})); // cut to 10, and an empty one
  EXPECT_EQ(rowsOf(packed(10, {})), Rows{});
}

TEST(RowPacking, SamplesOfTwoShardsShareNoRow) {
  RowPacking packing(10, 3);
  packing.add(2);
  packing.add(3);
  packing.endShard();
  packing.add(4);
  packing.endShard();
  EXPECT_EQ(rowsOf(packing), (std::vector<std::vector<std::uint32_t>>{{0, 1}, {2}}));
  EXPECT_EQ(packing.filledElements(), 9);
}

/// Full rows, each cut into samples at random, shuffled: as many rows as were cut are the fewest possible. The last row
/// of a window may be partly empty.
TEST(RowPacking, EverySampleIsInOneRowAndFewerThanElevenNinthsOfTheFewestRowsAreUsed) {
  std::mt19937_64 random(1);
  for (const std::int64_t rowElements : {1, 7, 128, 4096}) {
    std::vector<std::int64_t> lengths;
    const std::int64_t fewest = 3 * RowPacking::windowRows;
    for (std::int64_t row = 0; row < fewest; ++row)
      for (std::int64_t rest = rowElements; rest > 0; rest -= lengths.back())
        lengths.push_back(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rest)));
    std::shuffle(lengths.begin(), lengths.end(), random);
    const RowPacking packing = packed(rowElements, lengths);
    std::vector<int> taken(lengths.size());
    std::uint32_t firstOfWindow = 0;
    for (const std::vector<std::uint32_t> &row : rowsOf(packing)) {
      std::int64_t filled = 0;
      for (const std::uint32_t sample : row) {
        ++taken[sample];
        filled += lengths[sample];
      }
      EXPECT_LE(filled, rowElements);
      EXPECT_TRUE(std::ranges::is_sorted(row));
      firstOfWindow = std::max(firstOfWindow, row.front());
    }
    EXPECT_TRUE(std::ranges::all_of(taken, [](int times) { return times == 1; }));
    EXPECT_GT(firstOfWindow, lengths.size() / 2); // the order of the data is roughly kept
    EXPECT_EQ(packing.filledElements(), fewest * rowElements);
    EXPECT_LE(packing.rows(), fewest * 11 / 9 + 4);
  }
}

/// Samples of 1, 3, 2 and 2 tokens, and their labels, for rows of 5.
class Packing : public ::testing::Test {
protected:
  Packing() {
    context.privateArena = arena;
    program.inputs = {{"ids", InputKind::data, DType::i64, {2, {1, 5}}, at::x, 100},
                      {"document_ids", InputKind::data, DType::i64, {2, {1, 5}}, at::shard},
                      {"labels", InputKind::labels, DType::i64, {2, {1, 5}}, at::labels, 100, -100, true}};
    program.info.inputs = program.inputs;
  }

  std::string path(const std::vector<std::int64_t> &labelBounds = {0, 1, 4, 6, 8},
                   const std::string &name = "p.safetensors") {
    const std::vector<std::int64_t> bounds = {0, 1, 4, 6, 8};
    const std::string header =
        R"({"ids":{"dtype":"I32","shape":[8],"data_offsets":[0,32]},"ids.offsets":{"dtype":"I64","shape":[5],"data_offsets":[32,72]},)"
        R"("labels":{"dtype":"I64","shape":[8],"data_offsets":[72,136]},"labels.offsets":{"dtype":"I64","shape":[5],"data_offsets":[136,176]},)"
        R"("class":{"dtype":"I64","shape":[4],"data_offsets":[176,208]}})";
    return folder.write(name,
                        safetensorsBytes(header, bytesOf<std::int32_t>({1, 2, 9, 4, 5, 9, 7, 8}) + bytesOf(bounds) +
                                                     bytesOf<std::int64_t>({11, 12, 13, 14, 15, 16, 17, 18}) +
                                                     bytesOf(labelBounds) + bytesOf<std::int64_t>({0, 1, 2, 3})));
  }

  BatchFeeder feeder(FeedOptions options = {}) {
    options.samplePacking = true;
    return BatchFeeder(program.info, openDataset({path()}), options);
  }

  std::vector<std::int64_t> integers(Place place) {
    const std::int64_t *data = context.at<std::int64_t>(place);
    return {data, data + 5};
  }

  using Row = std::vector<std::int64_t>;
  TemporaryFolder folder;
  FakeProgram program{1};
  alignas(64) std::byte arena[1024] = {};
  Context context;
};

TEST_F(Packing, SamplesShareARowAsDocuments) {
  BatchFeeder fed = feeder();
  fed.checkRanges(0, 1);
  EXPECT_EQ(fed.samples(), 2); // samples 0 and 3 would fit too, but a row takes the longest that fits: 1 with 2
  fed.fill(context, std::vector<std::int64_t>{1});
  EXPECT_EQ(integers(at::x), (Row{2, 9, 4, 5, 9}));
  EXPECT_EQ(integers(at::labels), (Row{12, 13, 14, 15, 16}));
  EXPECT_EQ(integers(at::shard), (Row{0, 0, 0, 1, 1}));
  fed.fill(context, std::vector<std::int64_t>{0});
  EXPECT_EQ(integers(at::x), (Row{1, 7, 8, 0, 0}));
  EXPECT_EQ(integers(at::labels), (Row{11, 17, 18, -100, -100}));
  EXPECT_EQ(integers(at::shard), (Row{0, 1, 1, 2, 2}));
  fed.fill(context, std::vector<std::int64_t>{-1});
  EXPECT_EQ(integers(at::labels), (Row{-100, -100, -100, -100, -100}));
  ASSERT_EQ(fed.notes().size(), 2u);
  EXPECT_NE(fed.notes().back().find("4 samples share 2 rows of 5, which they fill to 80.0 %"), std::string::npos);
  EXPECT_EQ(fed.rowsText(), "rows of 5: ");
}

TEST_F(Packing, PositionsAndMasksFollowTheSamples) {
  program.inputs.push_back({"document_positions", InputKind::data, DType::i64, {2, {1, 5}}, at::x, 5});
  program.inputs.push_back({"mask", InputKind::data, DType::i64, {2, {1, 5}}, at::labels});
  program.inputs.erase(program.inputs.begin() + 2);
  program.inputs[0].place = {Space::privateSpace, 512};
  program.info.inputs = program.inputs;
  BatchFeeder fed = feeder({{}, {"mask=mask"}, 9}); // 9 ends a document inside a sample too
  fed.fill(context, std::vector<std::int64_t>{1});
  EXPECT_EQ(integers(at::x), (Row{0, 1, 0, 0, 1}));
  EXPECT_EQ(integers(at::shard), (Row{0, 0, 1, 2, 2}));
  fed.fill(context, std::vector<std::int64_t>{0});
  EXPECT_EQ(integers(at::x), (Row{0, 0, 1, 0, 1}));
  EXPECT_EQ(integers(at::labels), (Row{1, 1, 1, 0, 0}));
}

TEST_F(Packing, TheFirstLabelOfASampleIsNotThatOfTheTokenBeforeIt) {
  const IndexRangeInfo read[] = {{1, 4, 100, -100, true}};
  InputInfo &labels = program.inputs.back();
  labels = {"labels", InputKind::data, DType::i64, {2, {1, 5}}, at::labels};
  labels.ranges = read;
  labels.shiftsItself = true;
  BatchFeeder fed = feeder();
  fed.fill(context, std::vector<std::int64_t>{1});
  EXPECT_EQ(integers(at::labels), (Row{12, 13, 14, -100, 16}));
}

TEST_F(Packing, WhatIsOutOfRangeIsNamedByItsSample) {
  program.inputs[0].indexLimit = 8;
  EXPECT_FAILURE(feeder().checkRanges(0, 1), corrupt, "(sample 3 of ids): 8 is out of range for input ids");
}

TEST_F(Packing, WhatWouldTrainSomethingElseIsRefused) {
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path({0, 1, 4, 7, 8})}), {{}, {}, {}, false, true}), corrupt,
                 "(sample 2 of ids): has 2 elements, and the sample of labels has 3");
  EXPECT_FAILURE(feeder({{}, {"document_ids=iota"}}), usage, "--fill document_ids=iota counts through a row");
  EXPECT_FAILURE(feeder({{}, {"document_ids=0"}}), usage,
                 "samples that share a row would attend to each other in this program: compile it with "
                 "--separate_documents");
  program.inputs.push_back({"class", InputKind::data, DType::i64, {1, {1}}, at::x});
  program.info.inputs = program.inputs;
  EXPECT_FAILURE(feeder(), usage, "every sample of class I64[], which feeds input class, fills a row alone");
  program.inputs.back() = {"ids2", InputKind::data, DType::i64, {2, {1, 4}}, at::x};
  program.info.inputs = program.inputs;
  EXPECT_FAILURE(feeder({{"ids2=ids"}, {}}), usage, "inputs ids2 and ids have rows of 4 and 5 elements");
}

TEST_F(Packing, SourcesAndShardsAreCountedInRows) {
  const std::string first = path(), second = path({0, 1, 4, 6, 8}, "q.safetensors");
  FeedOptions options;
  options.samplePacking = true;
  const BatchFeeder fed(program.info, openDataset({first + ":1," + folder.path("[pq].safetensors") + ":2"}), options);
  ASSERT_EQ(fed.sources().size(), 2u);
  EXPECT_EQ(fed.sources()[0].shardEnds, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(fed.sources()[1].firstSample, 2);
  EXPECT_EQ(fed.sources()[1].shardEnds, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(fed.sources()[1].weight, 2);
  EXPECT_EQ(fed.samples(), 6);
}

} // namespace
} // namespace fsdpc::rt

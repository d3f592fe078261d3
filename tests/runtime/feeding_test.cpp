// The data that feeds an input, and the valid range of its elements.
#include "runtime/common/batch_feeder.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

namespace fsdpc::rt {
namespace {

class Feeding : public ::testing::Test {
protected:
  Feeding() { context.privateArena = arena; }

  BatchFeeder tokens(const FeedOptions &options) {
    program.info.inputs = program.inputs;
    DataRequest request{folder.write("t.bin", bytesOf<std::uint16_t>({1, 2, 3, 4, 5, 6, 7}))};
    request.format = "tokens";
    request.tokensPerSample = tokensPerSample(program.info, options);
    request.integerInputs = integerInputs(program.info);
    return BatchFeeder(program.info, openDataset(request), options);
  }

  std::string columns(std::vector<std::int64_t> values) {
    const std::string rows = std::to_string(values.size() / 3), end = std::to_string(values.size() * 8);
    return folder.write("c.safetensors", safetensorsBytes(R"({"ids":{"dtype":"I64","shape":[)" + rows +
                                                              R"(,3],"data_offsets":[0,)" + end + "]}}",
                                                          bytesOf(values)));
  }

  std::vector<std::int64_t> integers(Place place, std::size_t count) {
    const std::int64_t *data = context.at<std::int64_t>(place);
    return {data, data + count};
  }

  TemporaryFolder folder;
  FakeProgram program{1};
  alignas(64) std::byte arena[1024] = {};
  Context context;
};

TEST_F(Feeding, AMappedTokenFieldFeedsNoOtherInput) {
  program.inputs = {{"input_ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100},
                    {"attention_mask", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::shard},
                    {"labels", InputKind::labels, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100}};
  EXPECT_FAILURE(
      tokens({{"input_ids=tokens"}, {}}), usage,
      "no field for attention_mask I64[3]; the data has tokens U16[3], labels U16[3]. Use --map INPUT=FIELD or "
      "--fill INPUT=1|0|iota|..., for example --fill attention_mask=1");
  EXPECT_FAILURE(
      tokens({}), usage,
      "nothing says which input takes them. Integer inputs: input_ids I64[3], attention_mask I64[3]; name one");
  BatchFeeder fed = tokens({{}, {"attention_mask=1"}});
  const std::int64_t rows[] = {0, 1};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::x, 6), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(integers(at::shard, 6), (std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
}

TEST_F(Feeding, WhatIsMappedElsewhereLeavesTheOnlyIntegerInput) {
  program.inputs = {{"idx", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100},
                    {"targets", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100}};
  BatchFeeder fed = tokens({{"targets=labels"}, {}});
  const std::int64_t rows[] = {1, 0};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::x, 3), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(integers(at::labels, 3), (std::vector<std::int64_t>{5, 6, 7}));
  EXPECT_TRUE(fed.notes().empty());
}

TEST_F(Feeding, LabelsThatTheGraphShiftsAreTheTokensThemselves) {
  InputInfo labels{"labels", InputKind::labels, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100, -100, true};
  labels.shiftsItself = true;
  program.inputs = {{"input_ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100}, labels};
  BatchFeeder fed = tokens({});
  const std::int64_t rows[] = {0, 1};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::labels, 6), integers(at::x, 6));
  ASSERT_EQ(fed.notes().size(), 1u);
  EXPECT_NE(fed.notes()[0].find("input labels"), std::string::npos);
}

TEST_F(Feeding, EachColumnHasItsOwnRange) {
  const IndexRangeInfo ranges[] = {{0, 1, 7}, {2, 1, 3, -100, true}};
  InputInfo ids{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x};
  ids.ranges = ranges;
  program.inputs = {ids};
  program.info.inputs = program.inputs;
  const auto check = [&](std::vector<std::int64_t> values) {
    BatchFeeder(program.info, openDataset({columns(std::move(values))}), {}).checkRanges(0, 1);
  };
  check({6, 1000, 2, 0, -5, -100});
  EXPECT_FAILURE(check({6, 0, 2, 7, 0, 2}), corrupt,
                 "(sample 1 of ids): 7 is out of range for input ids, which takes 0 to 6 at element 0 of a sample");
  EXPECT_FAILURE(check({6, 0, 3}), corrupt,
                 "3 is out of range for input ids, which takes 0 to 2 (or -100) at element 2");
  EXPECT_FAILURE(check({-100, 0, 2}), corrupt, "-100 is out of range for input ids, which takes 0 to 6 at element 0");
}

TEST_F(Feeding, TheNearestFieldIsNamed) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x},
                    {"position_ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::labels}};
  program.info.inputs = program.inputs;
  EXPECT_FAILURE(
      BatchFeeder(
          program.info,
          openDataset({folder.write("n.safetensors",
                                    safetensorsBytes(R"({"idss":{"dtype":"I64","shape":[1,3],"data_offsets":[0,24]}})",
                                                     std::string(24, '\0')))}),
          {}),
      usage,
      "no field for ids I64[3], position_ids I64[3]; the data has idss I64[3]. Use --map INPUT=FIELD or --fill "
      "INPUT=1|0|iota|..., for example --map ids=idss --fill position_ids=iota");
}

TEST_F(Feeding, FillingEverythingReadsNothing) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x}};
  program.info.inputs = program.inputs;
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({columns({1, 2, 3})}), {{}, {"ids=1"}}), usage,
                 "nothing is read from it: --fill gives every input");
}

TEST_F(Feeding, BooleansLookNothingUpAndTakeNoTokens) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 5},
                    {"mask", InputKind::data, DType::boolean, {2, {fakeBatch, 3}}, at::labels}};
  program.info.inputs = program.inputs;
  EXPECT_EQ(tokensPerSample(program.info, {}), 3);
  const std::string path = folder.write(
      "m.safetensors",
      safetensorsBytes(
          R"({"ids":{"dtype":"BOOL","shape":[1,3],"data_offsets":[0,3]},"mask":{"dtype":"BOOL","shape":[1,3],"data_offsets":[3,6]}})",
          std::string(6, '\0')));
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path}), {}), corrupt,
                 "field ids BOOL[3] does not have the type of input ids I64[3]; save it as I64");
}

TEST_F(Feeding, FieldsThatNothingReadsAreNamed) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x}};
  program.info.inputs = program.inputs;
  const std::string path = folder.write(
      "u.safetensors",
      safetensorsBytes(
          R"({"ids":{"dtype":"U8","shape":[1,3],"data_offsets":[0,3]},"mask":{"dtype":"U8","shape":[1,3],"data_offsets":[3,6]}})",
          std::string(6, '\0')));
  BatchFeeder fed(program.info, openDataset({path}), {});
  ASSERT_EQ(fed.notes().size(), 1u);
  EXPECT_EQ(fed.notes()[0], path + ": no input reads mask U8[3]");
}

/// Samples of 1, 3 and 2 tokens, and their labels.
class Padding : public Feeding {
protected:
  Padding() {
    program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100},
                      {"mask", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::shard},
                      {"labels", InputKind::labels, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100, -100, true}};
    program.info.inputs = program.inputs;
  }

  std::string path() {
    const std::string header =
        R"({"ids":{"dtype":"I32","shape":[6],"data_offsets":[0,24]},"ids.offsets":{"dtype":"I64","shape":[4],"data_offsets":[24,56]},)"
        R"("labels":{"dtype":"I64","shape":[6],"data_offsets":[56,104]},"labels.offsets":{"dtype":"I64","shape":[4],"data_offsets":[104,136]}})";
    const std::vector<std::int64_t> bounds = {0, 1, 4, 6};
    return folder.write("p.safetensors",
                        safetensorsBytes(header, bytesOf<std::int32_t>({1, 2, 9, 4, 5, 9}) + bytesOf(bounds) +
                                                     bytesOf<std::int64_t>({2, 3, 4, 5, 6, -100}) + bytesOf(bounds)));
  }
};

TEST_F(Padding, ShorterSamplesArePaddedWithZeroAndTheIgnoredLabel) {
  BatchFeeder fed(program.info, openDataset({path()}), {{}, {"mask=mask"}});
  fed.checkRanges(0, 1);
  const std::int64_t rows[] = {0, 2};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::x, 6), (std::vector<std::int64_t>{1, 0, 0, 5, 9, 0}));
  EXPECT_EQ(integers(at::shard, 6), (std::vector<std::int64_t>{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(integers(at::labels, 6), (std::vector<std::int64_t>{2, -100, -100, 6, -100, -100}));
  const std::int64_t padding[] = {1, -1};
  fed.fill(context, padding);
  EXPECT_EQ(integers(at::x, 6), (std::vector<std::int64_t>{2, 9, 4, 0, 0, 0}));
  EXPECT_EQ(integers(at::shard, 6), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0}));
  ASSERT_EQ(fed.notes().size(), 2u);
  EXPECT_EQ(fed.notes()[0], "samples of ids shorter than 3 are padded with 0");
}

TEST_F(Padding, LabelsThatTheGraphShiftsArePaddedWithWhatItsLossIgnores) {
  const IndexRangeInfo read[] = {{1, 2, 100, -100, true}}; // the first label of a sample is not read
  InputInfo &labels = program.inputs.back();
  labels = {"labels", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::labels};
  labels.ranges = read;
  labels.shiftsItself = true;
  BatchFeeder fed(program.info, openDataset({path()}), {{}, {"mask=mask"}});
  fed.checkRanges(0, 1);
  const std::int64_t rows[] = {0, 2};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::labels, 6), (std::vector<std::int64_t>{2, -100, -100, 6, -100, -100}));
  EXPECT_EQ(fed.notes().back(), "samples of labels shorter than 3 are padded with the ignored label");
  const std::int64_t padding[] = {1, -1};
  fed.fill(context, padding);
  EXPECT_EQ(integers(at::labels, 6), (std::vector<std::int64_t>{3, 4, 5, 0, -100, -100}));
}

TEST_F(Padding, PositionsAndDocumentsBeginAnewBehindTheToken) {
  const auto filled = [&](const std::string &fill) {
    BatchFeeder fed(program.info, openDataset({path()}), {{}, {"mask=" + fill}, 9});
    const std::int64_t rows[] = {1, 2};
    fed.fill(context, rows);
    return integers(at::shard, 6);
  };
  EXPECT_EQ(filled("positions"), (std::vector<std::int64_t>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(filled("documents"), (std::vector<std::int64_t>{0, 0, 1, 0, 0, 1}));
}

TEST_F(Padding, AMaskOfAnotherNumberOfSamplesIsRefused) {
  const std::string header =
      R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"a.offsets":{"dtype":"I64","shape":[2],"data_offsets":[8,24]},)"
      R"("ids":{"dtype":"I64","shape":[2,3],"data_offsets":[24,72]},"labels":{"dtype":"I64","shape":[2,3],"data_offsets":[72,120]}})";
  const std::string path =
      folder.write("a.safetensors", safetensorsBytes(header, bytesOf<std::int64_t>({7, 0, 1}) + std::string(96, '\0')));
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path}), {{}, {"mask=mask"}}), corrupt,
                 "a has 1 samples, ids has 2");
}

TEST_F(Padding, LongerSamplesAreRefusedUnlessTheyMayBeCut) {
  for (InputInfo &input : program.inputs)
    input.shape.dims[1] = 2;
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path()}), {{}, {"mask=mask"}}), corrupt,
                 "(sample 1 of ids): has 3 elements, more than input ids I64[2]; --truncate takes the first ones");
  BatchFeeder fed(program.info, openDataset({path()}), {{}, {"mask=mask"}, std::nullopt, true});
  const std::int64_t rows[] = {1, 0};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::x, 4), (std::vector<std::int64_t>{2, 9, 1, 0}));
  EXPECT_EQ(integers(at::shard, 4), (std::vector<std::int64_t>{1, 1, 1, 0}));
}

TEST_F(Padding, ALabelOutOfRangeIsFoundBeforeTheFirstStep) {
  for (InputInfo &input : program.inputs)
    input.indexLimit = 6;
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path()}), {{"ids=labels"}, {"mask=mask"}}).checkRanges(0, 1),
                 corrupt, "(sample 2 of labels): 6 is out of range for input ids, which takes 0 to 5");
}

TEST_F(Padding, LabelsArePaddedOnlyIfOneIsIgnored) {
  for (InputInfo &input : program.inputs)
    input.hasIgnoreIndex = false;
  EXPECT_FAILURE(BatchFeeder(program.info, openDataset({path()}), {{}, {"mask=mask"}}), usage,
                 "the labels of shorter samples are padded");
}

TEST_F(Feeding, DocumentsOfTokenFilesNeedTheTokenThatEndsThem) {
  program.inputs = {{"ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::x, 100},
                    {"position_ids", InputKind::data, DType::i64, {2, {fakeBatch, 3}}, at::labels, 100}};
  EXPECT_FAILURE(tokens({{}, {"position_ids=positions"}}), usage, "--document_end says which token ends a document");
  EXPECT_FAILURE(tokens({{}, {"position_ids=place"}}), usage, "expected 1, 0, iota, mask, positions or documents");
  BatchFeeder fed = tokens({{}, {"position_ids=positions"}, 5});
  const std::int64_t rows[] = {0, 1};
  fed.fill(context, rows);
  EXPECT_EQ(integers(at::labels, 6), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 0}));
}

} // namespace
} // namespace fsdpc::rt

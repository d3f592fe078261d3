// Attention of the cuda target, in addition to the kernel tests of both targets
// (tests/runtime/kernels_matmul_test.cpp): 16-bit floats on tensor cores, every tile width, heads of keys that
// several heads of queries share.
#include "tests/runtime/attention_results.h"

namespace fsdpc::rt {
namespace {

template <class T>
AttentionResults resultsOf(const AttentionCase &test, const Context &c = contextOf()) {
  return resultsOf<T>(test, c, {attentionScratchBytes(test.shape), attentionGradScratchBytes(test.shape)});
}

template <class T>
void check(const AttentionCase &test) {
  check<T>(test, resultsOf<T>(test));
}

TEST(CudaAttention, EveryWidthOfTilesMatchesLoops) {
  for (const std::int64_t width : {32, 64, 96, 128, 256, 200, 36}) {
    SCOPED_TRACE(width);
    const AttentionShape shape{
        .batch = 1, .heads = 2, .queries = 75, .keys = 90, .queryWidth = width, .valueWidth = width, .causal = true};
    check<float>(caseOf<float>(shape));
    check<Bfloat16>(caseOf<Bfloat16>(shape));
    check<Float16>(caseOf<Float16>(shape));
  }
}

TEST(CudaAttention, SequencesOfSeveralTilesMatchLoops) {
  const AttentionShape shape{.heads = 1, .queries = 300, .keys = 270, .queryWidth = 40, .valueWidth = 40};
  AttentionShape causal = shape;
  causal.causal = true;
  for (const AttentionShape &s : {shape, causal}) {
    check<float>(caseOf<float>(s));
    check<Bfloat16>(caseOf<Bfloat16>(s));
    check<Float16>(caseOf<Float16>(s));
  }
}

TEST(CudaAttention, WindowsMatchLoops) {
  for (const std::int64_t window : {1, 7, 90, 1000})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (causal ? " causal" : ""));
      AttentionShape shape{.heads = 2, .queries = 200, .keys = 230, .queryWidth = 40, .valueWidth = 40, .keyHeads = 1};
      shape.causal = causal;
      shape.window = window;
      check<float>(caseOf<float>(shape));
      std::swap(shape.queries, shape.keys);
      check<Bfloat16>(caseOf<Bfloat16>(shape));
    }
}

TEST(CudaAttention, DocumentsMatchLoops) {
  for (const bool areMixed : {false, true})
    for (const std::int64_t window : {0, 30}) {
      SCOPED_TRACE(std::to_string(window) + (areMixed ? " mixed" : ""));
      AttentionShape shape{.batch = 2, .heads = 2, .queries = 150, .keys = 150, .queryWidth = 40, .valueWidth = 40};
      shape.window = window;
      check<float>(withDocuments(caseOf<float>(shape), areMixed));
      check<Bfloat16>(withDocuments(caseOf<Bfloat16>(shape), areMixed));
      shape.causal = true;
      check<Bfloat16>(withDocuments(caseOf<Bfloat16>(shape), areMixed));
      check<Bfloat16>(withDocuments(roundedTo<Bfloat16>(paddedAttentionCase(shape)), areMixed));
      shape.keyHeads = 1;
      check<float>(withDocuments(caseOf<float>(shape), areMixed));
      check<Float16>(withDocuments(caseOf<Float16>(shape), areMixed, true));
    }
}

TEST(CudaAttention, FactorsOfAMaskMatchLoops) {
  AttentionShape shape{.batch = 2, .heads = 2, .queries = 90, .keys = 90, .queryWidth = 24, .valueWidth = 24};
  for (const bool causal : {false, true}) {
    shape.causal = causal;
    check<float>(withFactors(caseOf<float>(shape)));
    check<Bfloat16>(withFactors(caseOf<Bfloat16>(shape)));
    check<Float16>(withDocuments(withFactors(caseOf<Float16>(shape)), false));
  }
}

TEST(CudaAttention, CappedScoresMatchLoops) {
  AttentionShape shape{.heads = 2, .queries = 140, .keys = 140, .queryWidth = 64, .valueWidth = 64, .causal = true};
  shape.softcap = 1.5f;
  shape.window = 20;
  check<float>(caseOf<float>(shape));
  check<Bfloat16>(caseOf<Bfloat16>(shape));
}

TEST(CudaAttention, QueriesOfLeftPaddingSeeWhatTheMaskAndTheDiagonalHideAlike) {
  for (const std::int64_t window : {0, 11}) {
    SCOPED_TRACE(window);
    AttentionShape shape{.batch = 3, .heads = 2, .queries = 150, .keys = 150, .queryWidth = 32, .valueWidth = 32};
    shape.window = window;
    shape.masksHidden = window == 0;
    check<float>(roundedTo<float>(paddedAttentionCase(shape)));
    check<Bfloat16>(roundedTo<Bfloat16>(paddedAttentionCase(shape)));
  }
}

TEST(CudaAttention, RowsThatAreNotMadeOfChunksMatchLoops) {
  const AttentionShape shape{.batch = 2,
                             .heads = 2,
                             .queries = 33,
                             .keys = 50,
                             .queryWidth = 17,
                             .valueWidth = 41,
                             .causal = true,
                             .sequenceFirst = true};
  check<float>(caseOf<float>(shape));
  check<Bfloat16>(caseOf<Bfloat16>(shape));
  check<Float16>(caseOf<Float16>(shape));
}

TEST(CudaAttention, ValuesMayBeNarrowerOrWiderThanKeys) {
  for (const auto &[queryWidth, valueWidth] : {std::pair{64, 16}, {24, 72}}) {
    const AttentionShape shape{
        .heads = 2, .queries = 40, .keys = 70, .queryWidth = queryWidth, .valueWidth = valueWidth};
    check<float>(caseOf<float>(shape));
    check<Bfloat16>(caseOf<Bfloat16>(shape));
    check<Float16>(caseOf<Float16>(shape));
  }
}

TEST(CudaAttention, HeadsThatShareKeysAddUpTheirGradients) {
  for (const std::int64_t keyHeads : {1, 2})
    for (const bool sequenceFirst : {false, true}) {
      const AttentionShape shape{.batch = 2,
                                 .heads = 6,
                                 .queries = 45,
                                 .keys = 70,
                                 .queryWidth = 16,
                                 .valueWidth = 24,
                                 .causal = true,
                                 .sequenceFirst = sequenceFirst,
                                 .keyHeads = keyHeads};
      check<float>(caseOf<float>(shape));
      check<Bfloat16>(caseOf<Bfloat16>(shape));
      check<Float16>(caseOf<Float16>(shape));
    }
}

TEST(CudaAttention, HeadsThatShareNoKeyAreAFailure) {
  AttentionCase test = attentionCase({.heads = 4, .queryWidth = 8, .valueWidth = 8, .keyHeads = 2});
  test.shape.keyHeads = 3;
  EXPECT_THROW(resultsOf<float>(test), Failure);
}

TEST(CudaAttention, AMaskPerHeadAndQueriesThatSeeNothingMatchLoops) {
  AttentionShape shape{.batch = 2,
                       .heads = 2,
                       .queries = 30,
                       .keys = 40,
                       .queryWidth = 32,
                       .valueWidth = 32,
                       .maskStrides = {2400, 1200, 40, 1}};
  AttentionCase test = caseOf<Bfloat16>(shape, 4800);
  for (int j = 0; j < 40; ++j)
    test.mask[1200 + 7 * 40 + j] = -INFINITY; // batch 0, head 1, query 7
  check<Bfloat16>(test);
  check<float>(test);
}

TEST(CudaAttention, QueriesWhoseKeysAreAllHiddenByAFiniteNumberMatchLoops) {
  for (const std::int64_t width : {32, 256}) {
    SCOPED_TRACE(width);
    AttentionCase test = caseOf<Bfloat16>({.heads = 4,
                                           .queries = 140,
                                           .keys = 100,
                                           .queryWidth = width,
                                           .valueWidth = width,
                                           .maskStrides = {0, 0, 100, 1},
                                           .keyHeads = 2},
                                          140 * 100);
    for (int query : {0, 77, 139})
      std::fill_n(test.mask.begin() + query * 100, 100, query == 77 ? -1e9f : std::numeric_limits<float>::lowest());
    check<Bfloat16>(test);
    check<float>(test);
  }
}

TEST(CudaAttention, TheSizeOfTheDeviceDoesNotChangeABit) {
  const AttentionCase test = caseOf<Bfloat16>(
      {.batch = 2, .heads = 2, .queries = 130, .keys = 130, .queryWidth = 32, .valueWidth = 32, .causal = true});
  Device device = deviceOf(contextOf());
  device.multiprocessors = 132;
  Context c = contextOf();
  c.target = &device;
  EXPECT_TRUE(resultsOf<Bfloat16>(test) == resultsOf<Bfloat16>(test, c));
}

} // namespace
} // namespace fsdpc::rt

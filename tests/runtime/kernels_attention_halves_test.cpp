// Attention of the cpu target over 16-bit operands: on tiles, where this processor has them, and on f32 copies.
#include "tests/runtime/attention_results.h"
#include "tests/runtime/native_context.h"

namespace fsdpc::rt {
namespace {

template <class T>
AttentionResults resultsOf(const AttentionCase &test, const Context &c) {
  return resultsOf<T>(
      test, c,
      {attentionScratchBytes<T>(test.shape) * c.threads, attentionGradScratchBytes<T>(test.shape) * c.threads});
}

template <class T>
void check(const AttentionCase &test) {
  for (const Context &c : {nativeContext(), contextOf(2)})
    check<T>(test, resultsOf<T>(test, c));
}
void checkBoth(const AttentionShape &shape, std::int64_t maskElements = 0) {
  check<Bfloat16>(caseOf<Bfloat16>(shape, maskElements));
  check<Float16>(caseOf<Float16>(shape, maskElements));
}

TEST(KernelsAttentionHalves, WidthsOfTilesAndOthersMatchLoops) {
  for (const std::int64_t width : {32, 64, 128, 36})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(width) + (causal ? " causal" : ""));
      checkBoth({.batch = 2,
                 .heads = 3,
                 .queries = 75,
                 .keys = 90,
                 .queryWidth = width,
                 .valueWidth = width,
                 .causal = causal});
    }
}

TEST(KernelsAttentionHalves, SequencesOfSeveralBlocksMatchLoops) {
  for (const bool causal : {false, true})
    checkBoth({.heads = 1, .queries = 300, .keys = 270, .queryWidth = 32, .valueWidth = 64, .causal = causal});
}

TEST(KernelsAttentionHalves, HeadsThatShareKeysAddUpTheirGradients) {
  for (const std::int64_t keyHeads : {1, 2})
    for (const bool sequenceFirst : {false, true})
      checkBoth({.batch = 2,
                 .heads = 6,
                 .queries = 45,
                 .keys = 70,
                 .queryWidth = 32,
                 .valueWidth = 32,
                 .causal = true,
                 .sequenceFirst = sequenceFirst,
                 .keyHeads = keyHeads});
}

TEST(KernelsAttentionHalves, WindowsMatchLoops) {
  for (const std::int64_t window : {1, 7, 90, 1000})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (causal ? " causal" : ""));
      AttentionShape shape{.heads = 2, .queries = 200, .keys = 230, .queryWidth = 32, .valueWidth = 32};
      shape.causal = causal;
      shape.window = window;
      checkBoth(shape);
    }
}

TEST(KernelsAttentionHalves, DocumentsMatchLoops) {
  for (const bool areMixed : {false, true})
    for (const std::int64_t window : {0, 30}) {
      SCOPED_TRACE(std::to_string(window) + (areMixed ? " mixed" : ""));
      AttentionShape shape{.batch = 2, .heads = 2, .queries = 200, .keys = 200, .queryWidth = 32, .valueWidth = 32};
      shape.window = window;
      check<Bfloat16>(withDocuments(caseOf<Bfloat16>(shape), areMixed));
      shape.causal = true;
      shape.keyHeads = 1;
      check<Bfloat16>(withDocuments(caseOf<Bfloat16>(shape), areMixed));
      check<Float16>(withDocuments(caseOf<Float16>(shape), areMixed, true));
      check<Bfloat16>(withDocuments(roundedTo<Bfloat16>(paddedAttentionCase(shape)), areMixed));
    }
}

TEST(KernelsAttentionHalves, CappedScoresMatchLoops) {
  AttentionShape shape{.heads = 2, .queries = 140, .keys = 140, .queryWidth = 64, .valueWidth = 64, .causal = true};
  shape.softcap = 1.5f;
  shape.window = 20;
  checkBoth(shape);
}

TEST(KernelsAttentionHalves, MasksAndQueriesThatSeeNothingMatchLoops) {
  AttentionCase test = caseOf<Bfloat16>({.batch = 2,
                                         .heads = 2,
                                         .queries = 30,
                                         .keys = 40,
                                         .queryWidth = 32,
                                         .valueWidth = 32,
                                         .maskStrides = {2400, 1200, 40, 1}},
                                        4800);
  for (int j = 0; j < 40; ++j)
    test.mask[1200 + 7 * 40 + j] = -INFINITY; // batch 0, head 1, query 7
  check<Bfloat16>(test);
}

TEST(KernelsAttentionHalves, QueriesOfLeftPaddingSeeWhatTheMaskAndTheDiagonalHideAlike) {
  for (const std::int64_t window : {0, 11}) {
    SCOPED_TRACE(window);
    AttentionShape shape{.batch = 3, .heads = 2, .queries = 150, .keys = 150, .queryWidth = 32, .valueWidth = 32};
    shape.window = window;
    shape.masksHidden = window == 0;
    check<Bfloat16>(roundedTo<Bfloat16>(paddedAttentionCase(shape)));
  }
}

TEST(KernelsAttentionHalves, TheNumberOfThreadsDoesNotChangeABit) {
  const AttentionCase test = caseOf<Bfloat16>(
      {.batch = 2, .heads = 3, .queries = 130, .keys = 130, .queryWidth = 32, .valueWidth = 32, .causal = true});
  Context one = nativeContext();
  one.threads = 1;
  EXPECT_TRUE(resultsOf<Bfloat16>(test, nativeContext()) == resultsOf<Bfloat16>(test, one));
}

} // namespace
} // namespace fsdpc::rt

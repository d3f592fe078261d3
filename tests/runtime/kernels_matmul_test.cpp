// Matmul, convolution and attention against loops in f64, on sizes that are no multiple of a tile.
#include "tests/runtime/kernels_references.h"

namespace fsdpc::rt {
namespace {

TEST(KernelsMatmul, AllTransposesAndBatchesMatchLoops) {
  for (int flags = 0; flags < 4; ++flags)
    for (const auto &[batch, oneA, oneB] :
         {std::tuple{1, false, false}, {3, false, false}, {3, true, false}, {3, false, true}}) {
      const MatmulShape shape{batch, 17, 33, 29, (flags & 1) != 0, (flags & 2) != 0, oneA, oneB};
      const auto a = numbers((oneA ? 1 : batch) * 17 * 29, 1), b = numbers((oneB ? 1 : batch) * 29 * 33, 2);
      std::vector<float> out = unwritten(static_cast<std::size_t>(batch * 17 * 33));
      Matmul matmul;
      matmul.create(contextOf(), shape, plenty);
      const ScratchBuffer scratch(scratchBytesOf(matmul));
      matmul(a.data(), b.data(), out.data(), scratch.workspace());
      EXPECT_LT(distance(out, productOf(shape, a, b)), 1e-5) << flags << " batch " << batch << oneA << oneB;
      EXPECT_TRUE(scratch.borderIntact());
    }
}

TEST(KernelsMatmul, ABiasIsAddedToEveryRowOfEveryBatch) {
  const auto a = numbers(3 * 17 * 29, 1), b = numbers(3 * 29 * 33, 2), bias = numbers(33, 3);
  for (int flags = 0; flags < 4; ++flags)
    for (const auto &[batch, oneB] : {std::tuple{1, false}, {3, false}, {3, true}}) {
      const MatmulShape shape{.batch = batch,
                              .m = 17,
                              .n = 33,
                              .k = 29,
                              .transposeA = (flags & 1) != 0,
                              .transposeB = (flags & 2) != 0,
                              .oneB = oneB,
                              .bias = true};
      std::vector<double> expected = productOf(shape, a, b);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] += bias[i % 33];
      std::vector<float> out = unwritten(expected.size());
      Matmul matmul;
      matmul.create(contextOf(), shape, plenty);
      const ScratchBuffer scratch(scratchBytesOf(matmul));
      matmul(a.data(), b.data(), bias.data(), out.data(), scratch.workspace());
      EXPECT_LT(distance(out, expected), 1e-5) << flags << " batch " << batch << oneB;
      EXPECT_TRUE(scratch.borderIntact());
    }
}

TEST(KernelsMatmul, TensorsMayBeginAtAnyElement) {
  const MatmulShape shape{.m = 64, .n = 64, .k = 64, .bias = true};
  const auto a = numbers(64 * 64 + 1, 1), b = numbers(64 * 64 + 1, 2), bias = numbers(64 + 1, 3);
  std::vector<double> expected = productOf(shape, {a.begin() + 1, a.end()}, {b.begin() + 1, b.end()});
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] += bias[1 + i % 64];
  std::vector<float> out = unwritten(64 * 64 + 1);
  Matmul matmul;
  matmul.create(contextOf(), shape, plenty);
  const ScratchBuffer scratch(scratchBytesOf(matmul));
  matmul(a.data() + 1, b.data() + 1, bias.data() + 1, out.data() + 1, scratch.workspace());
  EXPECT_LT(distance({out.begin() + 1, out.end()}, expected), 1e-5);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(KernelsMatmul, AnEmptySumIsZero) {
  Matmul matmul;
  matmul.create(contextOf(), {.m = 2, .n = 3, .k = 0}, 0);
  std::vector<float> out = unwritten(6);
  matmul(nullptr, nullptr, out.data(), {});
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
}

// ---- convolution

std::vector<float> convolve(Convolution::Pass pass, const ConvolutionShape &shape, const std::vector<float> &a,
                            const std::vector<float> &b, const float *bias, std::size_t outputs) {
  Convolution convolution;
  convolution.create(contextOf(), pass, shape, plenty);
  const ScratchBuffer scratch(scratchBytesOf(convolution));
  std::vector<float> out = unwritten(outputs);
  if (bias)
    convolution(a.data(), b.data(), bias, out.data(), scratch.workspace());
  else
    convolution(a.data(), b.data(), out.data(), scratch.workspace());
  EXPECT_TRUE(scratch.borderIntact());
  return out;
}

void checkConvolution(ConvolutionShape shape) {
  const auto x = numbers(shape.batch * shape.inputChannels * shape.input[0] * shape.input[1], 5);
  const auto w =
      numbers(shape.outputChannels * shape.inputChannels / shape.groups * shape.kernel[0] * shape.kernel[1], 6);
  const auto dy = numbers(shape.batch * shape.outputChannels * shape.output[0] * shape.output[1], 7);
  const auto bias = numbers(shape.outputChannels, 8);
  const ConvolutionResults expected(shape, x, w, dy);
  using Pass = Convolution::Pass;
  EXPECT_LT(distance(convolve(Pass::forward, shape, x, w, nullptr, dy.size()), expected.y), 1e-5);
  EXPECT_LT(distance(convolve(Pass::gradInput, shape, dy, w, nullptr, x.size()), expected.dx), 1e-5);
  EXPECT_LT(distance(convolve(Pass::gradWeight, shape, x, dy, nullptr, w.size()), expected.dw), 1e-5);
  shape.bias = true;
  EXPECT_LT(distance(convolve(Pass::forward, shape, x, w, bias.data(), dy.size()), expected.biased(bias)), 1e-5);
}

TEST(KernelsConvolution, PlainMatchesLoops) {
  checkConvolution(
      {.batch = 3, .inputChannels = 1, .outputChannels = 5, .input = {9, 7}, .kernel = {3, 3}, .output = {7, 5}});
}
TEST(KernelsConvolution, BlockedChannelsMatchLoops) {
  checkConvolution(
      {.batch = 2, .inputChannels = 16, .outputChannels = 32, .input = {10, 10}, .kernel = {3, 3}, .output = {8, 8}});
}
constexpr ConvolutionShape strided = {.batch = 2,
                                      .inputChannels = 3,
                                      .outputChannels = 4,
                                      .input = {11, 8},
                                      .kernel = {3, 2},
                                      .output = {5, 7},
                                      .strides = {2, 1},
                                      .dilations = {2, 3},
                                      .padsBefore = {1, 1},
                                      .padsAfter = {1, 1}};
TEST(KernelsConvolution, StridesAndDilationsMatchLoops) { checkConvolution(strided); }
#if !defined(FSDPC_CUDA_KERNELS) // the cuda target refuses such convolutions: cuDNN has one padding for both sides
TEST(KernelsConvolution, UnequalPadsMatchLoops) {
  ConvolutionShape shape = strided;
  shape.padsBefore[1] = 0;
  shape.padsAfter[1] = 2;
  checkConvolution(shape);
}
#endif
TEST(KernelsConvolution, GroupsMatchLoops) {
  checkConvolution({.batch = 2,
                    .inputChannels = 6,
                    .outputChannels = 4,
                    .groups = 2,
                    .input = {6, 6},
                    .kernel = {3, 3},
                    .output = {4, 4}});
}
/// 2^22 bytes by 2^21 by 2^21: their product overflows to 0 in 64 bits, the size of an empty convolution.
TEST(KernelsConvolution, SizesWhoseProductIs2To64MatchLoops) {
  checkConvolution({.batch = 1,
                    .inputChannels = 16,
                    .outputChannels = 32768,
                    .input = {256, 256},
                    .kernel = {1, 1},
                    .output = {4, 4},
                    .strides = {64, 64}});
}

// ---- attention

void checkAttention(const AttentionCase &test, int threads) {
  const AttentionShape &s = test.shape;
  const AttentionReference expected(test);
  const ScratchBuffer scratch(attentionScratchBytes(s) * threads), gradScratch(attentionGradScratchBytes(s) * threads);
  auto o = unwritten(test.dO.size()), lse = unwritten(expected.lse.size()), dq = unwritten(test.q.size()),
       dk = unwritten(test.k.size()), dv = unwritten(test.v.size());
  attention(contextOf(threads), s, test.q.data(), test.k.data(), test.v.data(), test.masks(), o.data(), lse.data(),
            scratch.workspace());
  attentionGrad(contextOf(threads), s, test.dO.data(), test.q.data(), test.k.data(), test.v.data(), o.data(),
                lse.data(), test.masks(), dq.data(), dk.data(), dv.data(), gradScratch.workspace());
  EXPECT_LT(distance(o, expected.o), 2e-6);
  EXPECT_LT(distance(dq, expected.dq), 5e-6);
  EXPECT_LT(distance(dk, expected.dk), 5e-6);
  EXPECT_LT(distance(dv, expected.dv), 5e-6);
  EXPECT_LT(lseError(lse, expected.lse), 1e-5);
  EXPECT_TRUE(scratch.borderIntact() && gradScratch.borderIntact());
}

TEST(KernelsAttention, CausalOnOddSizesMatchesLoops) {
  checkAttention(
      attentionCase(
          {.batch = 2, .heads = 3, .queries = 101, .keys = 101, .queryWidth = 20, .valueWidth = 20, .causal = true}),
      1);
}
TEST(KernelsAttention, SequenceFirstWithMoreQueriesThanKeysMatchesLoops) {
  checkAttention(attentionCase({.batch = 2,
                                .heads = 2,
                                .queries = 70,
                                .keys = 33,
                                .queryWidth = 33,
                                .valueWidth = 33,
                                .causal = true,
                                .sequenceFirst = true}),
                 1);
  checkAttention(attentionCase({.batch = 1,
                                .heads = 2,
                                .queries = 33,
                                .keys = 70,
                                .queryWidth = 8,
                                .valueWidth = 8,
                                .causal = true,
                                .sequenceFirst = true}),
                 1);
}
TEST(KernelsAttention, WindowsMatchLoops) {
  for (const std::int64_t window : {1, 7, 64, 1000})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (causal ? " causal" : ""));
      AttentionShape shape{.batch = 2, .heads = 3, .queries = 150, .keys = 170, .queryWidth = 20, .valueWidth = 20};
      shape.causal = causal;
      shape.window = window;
      checkAttention(attentionCase(shape), 1);
      shape.keyHeads = 1;
      std::swap(shape.queries, shape.keys);
      checkAttention(attentionCase(shape), 2);
    }
}
TEST(KernelsAttention, DocumentsMatchLoops) {
  for (const bool areMixed : {false, true})
    for (const std::int64_t window : {0, 30}) {
      SCOPED_TRACE(std::to_string(window) + (areMixed ? " mixed" : ""));
      AttentionShape shape{.batch = 2, .heads = 2, .queries = 170, .keys = 170, .queryWidth = 20, .valueWidth = 20};
      shape.window = window;
      checkAttention(withDocuments(attentionCase(shape), areMixed), 1);
      shape.causal = true;
      shape.keyHeads = 1;
      checkAttention(withDocuments(attentionCase(shape), areMixed), 2);
      shape.sequenceFirst = true;
      checkAttention(withDocuments(attentionCase(shape), areMixed, true), 1);
    }
}
TEST(KernelsAttention, DocumentsWithAMaskMatchLoops) {
  for (const bool areMixed : {false, true})
    for (const bool masksHidden : {false, true}) {
      AttentionShape shape{.batch = 3, .heads = 2, .queries = 150, .keys = 150, .queryWidth = 16, .valueWidth = 16};
      shape.masksHidden = masksHidden;
      checkAttention(withDocuments(paddedAttentionCase(shape), areMixed), 1);
      shape.softcap = 1.5f;
      checkAttention(withDocuments(paddedAttentionCase(shape), areMixed), 1);
      shape.softcap = 0;
      shape.maskStrides[1] = 150;
      shape.maskStrides[3] = 1;
      checkAttention(withDocuments(attentionCase(shape, 2 * 150), areMixed), 2);
    }
}
TEST(KernelsAttention, CappedScoresMatchLoops) {
  AttentionShape shape{.batch = 2, .heads = 2, .queries = 75, .keys = 75, .queryWidth = 16, .valueWidth = 16};
  shape.softcap = 1.5f;
  shape.causal = true;
  shape.window = 20;
  checkAttention(attentionCase(shape), 1);
  checkAttention(paddedAttentionCase(shape), 1);
}
TEST(KernelsAttention, QueriesOfLeftPaddingSeeWhatTheMaskAndTheDiagonalHideAlike) {
  for (const std::int64_t window : {0, 11}) {
    AttentionShape shape{.batch = 3, .heads = 2, .queries = 150, .keys = 150, .queryWidth = 16, .valueWidth = 16};
    shape.window = window;
    shape.masksHidden = window == 0;
    checkAttention(paddedAttentionCase(shape), 1);
  }
}
TEST(KernelsAttention, MaskedMatchesLoops) {
  AttentionCase test = attentionCase({.batch = 2,
                                      .heads = 2,
                                      .queries = 50,
                                      .keys = 49,
                                      .queryWidth = 16,
                                      .valueWidth = 16,
                                      .maskStrides = {49, 0, 0, 1}},
                                     98);
  checkAttention(test, 1);
}
TEST(KernelsAttention, FactorsOfAMaskMatchLoops) {
  AttentionShape shape{.batch = 2, .heads = 2, .queries = 90, .keys = 90, .queryWidth = 16, .valueWidth = 16};
  for (const bool causal : {false, true})
    for (const bool masksHidden : {false, true}) {
      shape.causal = causal;
      shape.masksHidden = masksHidden;
      shape.hidden = masksHidden ? -1e4f : -std::numeric_limits<float>::infinity();
      checkAttention(withFactors(attentionCase(shape)), 1);
      checkAttention(withDocuments(withFactors(attentionCase(shape)), false), 2);
    }
}
TEST(KernelsAttention, GroupedQueriesMatchLoops) {
  AttentionShape shape{.batch = 2, .heads = 6, .queries = 60, .keys = 70, .queryWidth = 20, .valueWidth = 20};
  for (const std::int64_t keyHeads : {1, 2, 3})
    for (const int threads : {1, 3}) {
      shape.keyHeads = keyHeads;
      shape.causal = shape.sequenceFirst = keyHeads != 2;
      checkAttention(attentionCase(shape), threads);
    }
  shape.maskStrides[1] = 70;
  shape.maskStrides[3] = 1;
  checkAttention(attentionCase(shape, 6 * 70), 2);
}
TEST(KernelsAttention, AQueryThatSeesNoKeyGivesZeros) {
  AttentionCase test = attentionCase(
      {.batch = 1, .heads = 1, .queries = 3, .keys = 5, .queryWidth = 4, .valueWidth = 4, .maskStrides = {0, 0, 5, 1}},
      15);
  for (int j = 5; j < 10; ++j)
    test.mask[static_cast<std::size_t>(j)] = -INFINITY;
  checkAttention(test, 1);
}
TEST(KernelsAttention, AQueryWhoseKeysAreAllHiddenByAFiniteNumberSharesItsGradientAmongThem) {
  AttentionCase test = attentionCase({.batch = 1,
                                      .heads = 2,
                                      .queries = 60,
                                      .keys = 70,
                                      .queryWidth = 8,
                                      .valueWidth = 8,
                                      .maskStrides = {0, 0, 70, 1}},
                                     60 * 70);
  for (std::size_t j = 0; j < 70; ++j) {
    test.mask[3 * 70 + j] = std::numeric_limits<float>::lowest();
    test.mask[50 * 70 + j] = -1e9f;
    if (j % 3 != 0) // some are seen
      test.mask[51 * 70 + j] = std::numeric_limits<float>::lowest();
  }
  checkAttention(test, 1);
}

} // namespace
} // namespace fsdpc::rt

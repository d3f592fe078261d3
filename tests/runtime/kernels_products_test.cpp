// Matrix products, convolutions and attention against loops in f64, on sizes that fit no tile.
#include "runtime/common/failure.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/convolution.h"
#include "runtime/cpu/kernels/matmul.h"
#include "runtime/cpu/kernels/small_gemm.h"
#include "tests/runtime/kernels_support.h"

namespace fsdpc::rt {
namespace {

constexpr std::int64_t plenty = 16 << 20;

std::vector<double> productOf(const MatmulShape &s, const std::vector<float> &a, const std::vector<float> &b) {
  std::vector<double> out(static_cast<std::size_t>(s.batch * s.m * s.n));
  for (std::int64_t i = 0; i < s.batch; ++i) {
    const float *const left = a.data() + (s.oneA ? 0 : i) * s.m * s.k, *const right =
                                                                           b.data() + (s.oneB ? 0 : i) * s.k * s.n;
    for (std::int64_t row = 0; row < s.m; ++row)
      for (std::int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += double(left[s.transposeA ? k * s.m + row : row * s.k + k]) *
                 right[s.transposeB ? column * s.k + k : k * s.n + column];
        out[static_cast<std::size_t>((i * s.m + row) * s.n + column)] = sum;
      }
  }
  return out;
}

TEST(KernelsMatmul, AllTransposesAndBatchesMatchLoops) {
  for (int flags = 0; flags < 4; ++flags)
    for (const auto &[batch, oneA, oneB] :
         {std::tuple{1, false, false}, {3, false, false}, {3, true, false}, {3, false, true}}) {
      const MatmulShape shape{batch, 17, 33, 29, (flags & 1) != 0, (flags & 2) != 0, oneA, oneB};
      const auto a = numbers((oneA ? 1 : batch) * 17 * 29, 1), b = numbers((oneB ? 1 : batch) * 29 * 33, 2);
      std::vector<float> out(static_cast<std::size_t>(batch * 17 * 33), NAN);
      Matmul matmul;
      matmul.create(contextOf(), shape, plenty);
      const ScratchBuffer scratch(matmul.scratchBytes());
      matmul(a.data(), b.data(), out.data(), scratch.workspace());
      EXPECT_LT(distance(out, productOf(shape, a, b)), 1e-5) << flags << " batch " << batch << oneA << oneB;
      EXPECT_TRUE(scratch.borderIntact());
    }
}

TEST(KernelsMatmul, AnEmptySumIsZero) {
  Matmul matmul;
  matmul.create(contextOf(), {.m = 2, .n = 3, .k = 0}, 0);
  std::vector<float> out(6, NAN);
  matmul(nullptr, nullptr, out.data(), {});
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
}

TEST(KernelsMatmul, ScratchThatIsTooSmallIsAFailureNotAnOverrun) {
  Matmul wants;
  wants.create(contextOf(), {.m = 512, .n = 512, .k = 512, .transposeA = true}, plenty);
  if (wants.scratchBytes() == 0)
    GTEST_SKIP() << "oneDNN needs no scratch for this product here";
  Matmul matmul;
  try {
    matmul.create(contextOf(), {.m = 512, .n = 512, .k = 512, .transposeA = true}, wants.scratchBytes() - 1);
    FAIL() << "accepted";
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::memory);
  }
}

TEST(KernelsSmallGemm, TilesAndTailsMatchLoops) {
  for (const std::int64_t m : {1, 11, 12, 13, 25})
    for (const std::int64_t n : {1, 31, 32, 33, 64})
      for (const std::int64_t k : {1, 7}) {
        const MatmulShape shape{1, m, n, k};
        const auto a = numbers(m * k, 3), b = numbers(k * n, 4);
        std::vector<float> packed(static_cast<std::size_t>(k * paddedColumns(n))),
            out(static_cast<std::size_t>(m * n), NAN);
        packRows(b.data(), n, k, n, packed.data());
        smallGemm(m, n, k, a.data(), k, 1, packed.data(), out.data(), n, false);
        auto expected = productOf(shape, a, b);
        EXPECT_LT(distance(out, expected), 1e-6) << m << " " << n << " " << k;
        smallGemm(m, n, k, a.data(), k, 1, packed.data(), out.data(), n, true);
        for (double &value : expected)
          value *= 2;
        EXPECT_LT(distance(out, expected), 1e-6) << "accumulated " << m << " " << n << " " << k;
        std::vector<float> transposed(static_cast<std::size_t>(k * n));
        for (std::int64_t i = 0; i < k * n; ++i)
          transposed[static_cast<std::size_t>(i % n * k + i / n)] = b[static_cast<std::size_t>(i)];
        std::vector<float> again(packed.size(), NAN);
        packColumns(transposed.data(), k, k, n, again.data());
        EXPECT_EQ(packed, again);
      }
}

// ---- convolution
// ------------------------------------------------------------------------------------------------------------

/// Calls visit(x index, w index, y index) for every product of a 2-D convolution.
template <class Visit>
void forEachTap(const ConvolutionShape &s, const Visit &visit) {
  const std::int64_t perGroupIn = s.inputChannels / s.groups, perGroupOut = s.outputChannels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t m = 0; m < s.outputChannels; ++m)
      for (std::int64_t oy = 0; oy < s.output[0]; ++oy)
        for (std::int64_t ox = 0; ox < s.output[1]; ++ox)
          for (std::int64_t ch = 0; ch < perGroupIn; ++ch)
            for (std::int64_t ky = 0; ky < s.kernel[0]; ++ky)
              for (std::int64_t kx = 0; kx < s.kernel[1]; ++kx) {
                const std::int64_t iy = oy * s.strides[0] + ky * s.dilations[0] - s.padsBefore[0];
                const std::int64_t ix = ox * s.strides[1] + kx * s.dilations[1] - s.padsBefore[1];
                if (iy < 0 || ix < 0 || iy >= s.input[0] || ix >= s.input[1])
                  continue;
                const std::int64_t channel = m / perGroupOut * perGroupIn + ch;
                visit(((n * s.inputChannels + channel) * s.input[0] + iy) * s.input[1] + ix,
                      ((m * perGroupIn + ch) * s.kernel[0] + ky) * s.kernel[1] + kx,
                      ((n * s.outputChannels + m) * s.output[0] + oy) * s.output[1] + ox);
              }
}

std::vector<float> convolve(Convolution::Pass pass, const ConvolutionShape &shape, const std::vector<float> &a,
                            const std::vector<float> &b, const float *bias, std::size_t outputs) {
  Convolution convolution;
  convolution.create(contextOf(), pass, shape, plenty);
  const ScratchBuffer scratch(convolution.scratchBytes());
  std::vector<float> out(outputs, NAN);
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
  std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
  forEachTap(shape, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    y[k] += double(x[i]) * w[j];
    dx[i] += double(dy[k]) * w[j];
    dw[j] += double(dy[k]) * x[i];
  });
  EXPECT_LT(distance(convolve(Convolution::Pass::forward, shape, x, w, nullptr, y.size()), y), 1e-5);
  EXPECT_LT(distance(convolve(Convolution::Pass::gradInput, shape, dy, w, nullptr, dx.size()), dx), 1e-5);
  EXPECT_LT(distance(convolve(Convolution::Pass::gradWeight, shape, x, dy, nullptr, dw.size()), dw), 1e-5);
  const std::int64_t plane = shape.output[0] * shape.output[1];
  for (std::size_t k = 0; k < y.size(); ++k)
    y[k] += bias[static_cast<std::size_t>(static_cast<std::int64_t>(k) / plane % shape.outputChannels)];
  shape.bias = true;
  EXPECT_LT(distance(convolve(Convolution::Pass::forward, shape, x, w, bias.data(), y.size()), y), 1e-5);
}

TEST(KernelsConvolution, PlainMatchesLoops) {
  checkConvolution(
      {.batch = 3, .inputChannels = 1, .outputChannels = 5, .input = {9, 7}, .kernel = {3, 3}, .output = {7, 5}});
}
TEST(KernelsConvolution, BlockedChannelsMatchLoops) {
  checkConvolution(
      {.batch = 2, .inputChannels = 16, .outputChannels = 32, .input = {10, 10}, .kernel = {3, 3}, .output = {8, 8}});
}
TEST(KernelsConvolution, StridesDilationsAndUnequalPadsMatchLoops) {
  checkConvolution({.batch = 2,
                    .inputChannels = 3,
                    .outputChannels = 4,
                    .input = {11, 8},
                    .kernel = {3, 2},
                    .output = {5, 7},
                    .strides = {2, 1},
                    .dilations = {2, 3},
                    .padsBefore = {1, 0},
                    .padsAfter = {1, 2}});
}
TEST(KernelsConvolution, GroupsMatchLoops) {
  checkConvolution({.batch = 2,
                    .inputChannels = 6,
                    .outputChannels = 4,
                    .groups = 2,
                    .input = {6, 6},
                    .kernel = {3, 3},
                    .output = {4, 4}});
}

// ---- attention
// --------------------------------------------------------------------------------------------------------------

struct AttentionCase {
  AttentionShape shape;
  std::vector<float> q, k, v, dO, mask;
};

std::int64_t at(const AttentionShape &s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t length,
                std::int64_t heads) {
  return (s.sequenceFirst ? (b * length + i) * heads + h : (b * heads + h) * length + i) * s.queryWidth;
}
std::int64_t headsOfKeys(const AttentionShape &s) { return s.keyHeads == 0 ? s.heads : s.keyHeads; }
/// Where key j begins for head h of q.
std::int64_t keyAt(const AttentionShape &s, std::int64_t b, std::int64_t h, std::int64_t j) {
  return at(s, b, h / (s.heads / headsOfKeys(s)), j, s.keys, headsOfKeys(s));
}

/// Forward and backward, one query at a time.
struct AttentionReference {
  std::vector<double> o, lse, dq, dk, dv;
  explicit AttentionReference(const AttentionCase &test);

private:
  void query(const AttentionCase &test, std::int64_t b, std::int64_t h, std::int64_t i);
};

AttentionReference::AttentionReference(const AttentionCase &test) {
  o.resize(test.q.size());
  dq.resize(test.q.size());
  dk.resize(test.k.size());
  dv.resize(test.v.size());
  for (std::int64_t b = 0; b < test.shape.batch; ++b)
    for (std::int64_t h = 0; h < test.shape.heads; ++h)
      for (std::int64_t i = 0; i < test.shape.queries; ++i)
        query(test, b, h, i);
}

void AttentionReference::query(const AttentionCase &test, std::int64_t b, std::int64_t h, std::int64_t i) {
  const AttentionShape &s = test.shape;
  const std::int64_t width = s.queryWidth, row = at(s, b, h, i, s.queries, s.heads);
  std::vector<double> p(static_cast<std::size_t>(s.keys), -INFINITY);
  double sum = 0;
  for (std::int64_t j = 0; j < s.keys && (!s.causal || j <= i); ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < width; ++d)
      score += double(test.q[row + d]) * test.k[keyAt(s, b, h, j) + d];
    p[j] = score * s.scale;
    if (!test.mask.empty())
      p[j] += test.mask[b * s.maskStrides[0] + h * s.maskStrides[1] + i * s.maskStrides[2] + j * s.maskStrides[3]];
    sum += std::exp(p[j]);
  }
  lse.push_back(std::log(sum));
  double delta = 0;
  for (std::int64_t j = 0; j < s.keys; ++j) {
    p[j] = sum == 0 ? 0 : std::exp(p[j]) / sum;
    for (std::int64_t d = 0; d < width; ++d)
      o[row + d] += p[j] * test.v[keyAt(s, b, h, j) + d];
  }
  for (std::int64_t d = 0; d < width; ++d)
    delta += o[row + d] * test.dO[row + d];
  for (std::int64_t j = 0; j < s.keys; ++j) {
    const std::int64_t key = keyAt(s, b, h, j);
    double dp = 0;
    for (std::int64_t d = 0; d < width; ++d)
      dp += double(test.dO[row + d]) * test.v[key + d];
    const double ds = p[j] * (dp - delta) * s.scale;
    for (std::int64_t d = 0; d < width; ++d) {
      dq[row + d] += ds * test.k[key + d];
      dk[key + d] += ds * test.q[row + d];
      dv[key + d] += p[j] * test.dO[row + d];
    }
  }
}

AttentionCase attentionCase(AttentionShape shape, std::int64_t maskElements = 0) {
  const std::int64_t rows = shape.batch * shape.heads * shape.queryWidth;
  const std::int64_t keyRows = shape.batch * headsOfKeys(shape) * shape.queryWidth;
  shape.scale = 0.7f;
  return {shape,
          numbers(rows * shape.queries, 11),
          numbers(keyRows * shape.keys, 12),
          numbers(keyRows * shape.keys, 13),
          numbers(rows * shape.queries, 14),
          numbers(maskElements, 15)};
}

void checkAttention(const AttentionCase &test, int threads) {
  const AttentionShape &s = test.shape;
  const AttentionReference expected(test);
  const float *const mask = test.mask.empty() ? nullptr : test.mask.data();
  const ScratchBuffer scratch(attentionScratchBytes(s) * threads), gradScratch(attentionGradScratchBytes(s) * threads);
  std::vector<float> o(test.q.size(), NAN), lse(expected.lse.size(), NAN), dq(o), dk(test.k.size(), NAN),
      dv(test.v.size(), NAN);
  attention(contextOf(threads), s, test.q.data(), test.k.data(), test.v.data(), mask, o.data(), lse.data(),
            scratch.workspace());
  attentionGrad(contextOf(threads), s, test.dO.data(), test.q.data(), test.k.data(), test.v.data(), o.data(),
                lse.data(), mask, dq.data(), dk.data(), dv.data(), gradScratch.workspace());
  EXPECT_LT(distance(o, expected.o), 2e-6);
  EXPECT_LT(distance(dq, expected.dq), 5e-6);
  EXPECT_LT(distance(dk, expected.dk), 5e-6);
  EXPECT_LT(distance(dv, expected.dv), 5e-6);
  for (std::size_t i = 0; i < lse.size(); ++i)
    EXPECT_TRUE(lse[i] == expected.lse[i] || std::abs(lse[i] - expected.lse[i]) < 1e-5) << i;
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

TEST(KernelsAttention, TheNumberOfThreadsDoesNotChangeABit) {
  const AttentionCase test = attentionCase(
      {.batch = 2, .heads = 3, .queries = 64, .keys = 64, .queryWidth = 16, .valueWidth = 16, .causal = true});
  const ScratchBuffer scratch(attentionGradScratchBytes(test.shape) * 4);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3, 4}) {
    std::vector<float> o(test.q.size()), lse(2 * 3 * 64), dq(o), dk(o), dv(o);
    attention(contextOf(threads), test.shape, test.q.data(), test.k.data(), test.v.data(), nullptr, o.data(),
              lse.data(), scratch.workspace());
    attentionGrad(contextOf(threads), test.shape, test.dO.data(), test.q.data(), test.k.data(), test.v.data(), o.data(),
                  lse.data(), nullptr, dq.data(), dk.data(), dv.data(), scratch.workspace());
    for (const auto &part : {o, lse, dq, dk, dv})
      results.push_back(part);
  }
  for (std::size_t i = 5; i < results.size(); ++i)
    EXPECT_EQ(results[i], results[i % 5]);
}

} // namespace
} // namespace fsdpc::rt

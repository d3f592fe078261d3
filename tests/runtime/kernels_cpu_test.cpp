// Guarantees of kernels on the cpu target only: its own building blocks, its scratch, and results that are bitwise
// identical for any number of threads.
#include "runtime/common/failure.h"
#include "runtime/cpu/kernels/small_gemm.h"
#include "tests/runtime/kernels_references.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t plenty = 16 << 20;

TEST(KernelsIndex, AnIndexOutsideEndsTheProgram) {
  const std::vector<float> table(6);
  const std::vector<std::int64_t> indices = {3};
  std::vector<float> rows(2);
  EXPECT_THROW(gather(contextOf(), {1, 3, 2, 1}, bits(table.data()), indices.data(), bits(rows.data())), Failure);
}

TEST(KernelsRandom, ValuesDependOnSampleAndElementOnly) {
  const RandomShape shape{3, 5, 37}; // sample axis in the middle
  const std::uint64_t key = randomKey(7, 3, 1);
  const std::int64_t n = 3 * 5 * 37;
  auto whole = unwritten(n), pieces = unwritten(n);
  randomUniform(2, shape, key, 0, n, whole.data());
  for (std::int64_t begin = 0; begin < n; begin += 41)
    randomUniform(2, shape, key, begin, std::min<std::int64_t>(41, n - begin), pieces.data() + begin);
  EXPECT_EQ(whole, pieces);
  for (std::int64_t flat = 0; flat < n; ++flat) {
    const std::int64_t outer = flat / (5 * 37), sample = flat / 37 % 5, inner = flat % 37;
    EXPECT_EQ(whole[flat], uniformAt(key, 2 * 5 + sample, outer * 37 + inner)) << flat;
  }
}

TEST(KernelsRandom, SomeSamplesOfARankGetTheirOwnNumbers) {
  const std::uint64_t key = randomKey(7, 3, 1);
  auto whole = unwritten(5 * 37), one = unwritten(37);
  randomUniform(2, {.samples = 5, .inner = 37}, key, 0, 5 * 37, whole.data());
  randomUniform(2, {.inner = 37, .rankSamples = 5, .firstSample = 3}, key, 0, 37, one.data());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + 3 * 37));
}

TEST(KernelsScalar, VectorFunctionsKeepSevenDigits) {
  const auto numbersIn = numbers(1000, 20);
  std::vector<float> y(1000);
  const auto check = [&](const char *name, double span, auto vector, auto exact) {
    for (int i = 0; i < 1000; ++i)
      y[i] = static_cast<float>(numbersIn[i] * span);
    std::vector<float> out = unwritten(1000);
#pragma omp simd
    for (int i = 0; i < 1000; ++i)
      out[i] = vector(y[i]);
    for (int i = 0; i < 1000; ++i) {
      const double expected = exact(static_cast<double>(y[i]));
      EXPECT_NEAR(out[i], expected, 5e-7 * std::max(1.0, std::abs(expected))) << name << " of " << y[i];
    }
  };
  check("exp", 20, [](float x) { return scalar::exp(x); }, [](double x) { return std::exp(x); });
  check("tanh", 5, [](float x) { return scalar::tanh(x); }, [](double x) { return std::tanh(x); });
  check("erf", 4, [](float x) { return scalar::erf(x); }, [](double x) { return std::erf(x); });
  check("atan", 50, [](float x) { return scalar::atan(x); }, [](double x) { return std::atan(x); });
  check(
      "gelu", 5, [](float x) { return scalar::gelu(x); },
      [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  check(
      "gelu_tanh", 5, [](float x) { return scalar::geluTanh(x); },
      [](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); });
  check(
      "gelu_grad", 5, [](float x) { return scalar::geluGrad(1.0f, x); },
      [](double x) {
        return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * 0.3989422804014327 * std::exp(-0.5 * x * x);
      });
  check("silu", 20, [](float x) { return scalar::silu(x); }, [](double x) { return x / (1 + std::exp(-x)); });
  check(
      "silu_grad", 20, [](float x) { return scalar::siluGrad(1.0f, x); },
      [](double x) {
        const double s = 1 / (1 + std::exp(-x));
        return s * (1 + x * (1 - s));
      });
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

TEST(KernelsMatmul, CopiedPanelsOfAWideOperandMatchLoops) {
  // Rows 10 KiB apart, and enough rows of a to copy in any case.
  for (const MatmulShape &wide : {MatmulShape{.m = 17, .n = 2560, .k = 33}, {.m = 1024, .n = 1632, .k = 5}})
    for (const bool transposeA : {false, true})
      for (const auto &[hasBias, accumulate] : {std::pair{false, false}, {true, false}, {false, true}}) {
        MatmulShape shape = wide;
        shape.transposeA = transposeA;
        shape.bias = hasBias;
        shape.accumulate = accumulate;
        ASSERT_GT(scratch_sizes::panelOfMatmul(1, shape.m, shape.n, shape.k, false), 0);
        const auto a = numbers(shape.m * shape.k, 1), b = numbers(shape.k * shape.n, 2), bias = numbers(shape.n, 3);
        std::vector<double> expected = productOf(shape, a, b);
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] += hasBias ? bias[i % static_cast<std::size_t>(shape.n)] : accumulate ? 2 : 0;
        std::vector<float> out(expected.size(), accumulate ? 2 : std::numeric_limits<float>::quiet_NaN());
        Matmul matmul;
        matmul.create(contextOf(3), shape, plenty);
        const ScratchBuffer scratch(scratchBytesOf(matmul));
        if (hasBias)
          matmul(a.data(), b.data(), bias.data(), out.data(), scratch.workspace());
        else
          matmul(a.data(), b.data(), out.data(), scratch.workspace());
        EXPECT_LT(distance(out, expected), 1e-5) << shape.n << transposeA << hasBias << accumulate;
        EXPECT_TRUE(scratch.borderIntact());
      }
}

TEST(KernelsSmallGemm, TilesAndTailsMatchLoops) {
  for (const std::int64_t m : {1, 11, 12, 13, 25})
    for (const std::int64_t n : {1, 31, 32, 33, 64})
      for (const std::int64_t k : {1, 7}) {
        const MatmulShape shape{1, m, n, k};
        const auto a = numbers(m * k, 3), b = numbers(k * n, 4);
        auto packed = unwritten(static_cast<std::size_t>(k * paddedColumns(n))),
             out = unwritten(static_cast<std::size_t>(m * n));
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
        std::vector<float> again = unwritten(packed.size());
        packColumns(transposed.data(), k, k, n, again.data());
        EXPECT_EQ(packed, again);
      }
}

TEST(KernelsAttention, TheNumberOfThreadsDoesNotChangeABit) {
  const AttentionCase test = attentionCase(
      {.batch = 2, .heads = 3, .queries = 64, .keys = 64, .queryWidth = 16, .valueWidth = 16, .causal = true});
  const ScratchBuffer scratch(attentionGradScratchBytes(test.shape) * 4);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3, 4}) {
    auto o = unwritten(test.q.size()), lse = unwritten(2 * 3 * 64), dq = o, dk = o, dv = o;
    attention(contextOf(threads), test.shape, test.q.data(), test.k.data(), test.v.data(), {}, o.data(), lse.data(),
              scratch.workspace());
    attentionGrad(contextOf(threads), test.shape, test.dO.data(), test.q.data(), test.k.data(), test.v.data(), o.data(),
                  lse.data(), {}, dq.data(), dk.data(), dv.data(), scratch.workspace());
    for (const auto &part : {o, lse, dq, dk, dv})
      results.push_back(part);
  }
  for (std::size_t i = 5; i < results.size(); ++i)
    EXPECT_EQ(results[i], results[i % 5]);
}

} // namespace
} // namespace fsdpc::rt

// Products of 16-bit operands on the cpu target, as this processor multiplies and by copies in f32: the sum is rounded
// once, and a result in f32 keeps it.
#include "tests/runtime/kernels_references.h"
#include "tests/runtime/native_context.h"

namespace fsdpc::rt {
namespace {

constexpr std::int64_t plenty = 16 << 20;

template <class Half>
std::vector<Half> rounded(const std::vector<float> &values) {
  return {values.begin(), values.end()};
}
template <class Half>
std::vector<float> inFloat(const std::vector<Half> &values) {
  return {values.begin(), values.end()};
}

/// One unit in the last place of the type, and a little for sums near zero.
template <class Half>
void expectRoundedOnce(const std::vector<Half> &out, const std::vector<double> &expected) {
  const double unit = std::is_same_v<Half, Bfloat16> ? 0x1p-8 : 0x1p-11;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(static_cast<float>(out[i]), expected[i], std::abs(expected[i]) * unit + 1e-5) << i;
}

template <class Half>
void checkMatmul(const Context &c, DType elements, MatmulShape shape) {
  const std::int64_t batch = shape.batch;
  const auto a = rounded<Half>(numbers((shape.oneA ? 1 : batch) * shape.m * shape.k, 1)),
             b = rounded<Half>(numbers((shape.oneB ? 1 : batch) * shape.k * shape.n, 2)),
             bias = rounded<Half>(numbers(shape.n, 3));
  std::vector<double> expected = productOf(shape, inFloat(a), inFloat(b));
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] += static_cast<float>(bias[i % static_cast<std::size_t>(shape.n)]);
  shape.elements = shape.result = elements;
  shape.bias = true;
  Matmul matmul;
  matmul.create(c, shape, plenty);
  const ScratchBuffer scratch(scratchBytesOf(matmul));
  std::vector<Half> out(expected.size());
  matmul(a.data(), b.data(), bias.data(), out.data(), scratch.workspace());
  expectRoundedOnce(out, expected);
  EXPECT_TRUE(scratch.borderIntact());
}

TEST(KernelsMatmul, SumsOf16BitOperandsAreRoundedOnce) {
  for (const MatmulShape &shape : {MatmulShape{.m = 17, .n = 33, .k = 129},
                                   {.batch = 3, .m = 5, .n = 40, .k = 64, .transposeB = true},
                                   {.batch = 3, .m = 5, .n = 40, .k = 7, .transposeA = true, .oneB = true},
                                   {.m = 17, .n = 2560, .k = 33}}) {
    checkMatmul<Bfloat16>(nativeContext(), DType::bf16, shape);
    checkMatmul<Bfloat16>(contextOf(2), DType::bf16, shape);
    checkMatmul<Float16>(nativeContext(), DType::f16, shape);
  }
}

TEST(KernelsMatmul, AResultInF32KeepsTheSumOf16BitOperands) {
  const MatmulShape shape{.m = 17, .n = 33, .k = 129, .elements = DType::bf16};
  const auto a = rounded<Bfloat16>(numbers(17 * 129, 1)), b = rounded<Bfloat16>(numbers(129 * 33, 2));
  for (const Context &c : {nativeContext(), contextOf()}) {
    Matmul matmul;
    matmul.create(c, shape, plenty);
    const ScratchBuffer scratch(scratchBytesOf(matmul));
    std::vector<float> out = unwritten(17 * 33);
    matmul(a.data(), b.data(), out.data(), scratch.workspace());
    EXPECT_LT(distance(out, productOf(shape, inFloat(a), inFloat(b))), 1e-5);
  }
}

template <class Half, class Result>
std::vector<Result> convolve(const Context &c, Convolution::Pass pass, const ConvolutionShape &shape,
                             const std::vector<Half> &a, const std::vector<Half> &b, const Result *bias,
                             std::size_t outputs) {
  Convolution convolution;
  convolution.create(c, pass, shape, plenty);
  const ScratchBuffer scratch(scratchBytesOf(convolution));
  std::vector<Result> out(outputs);
  if (bias)
    convolution(a.data(), b.data(), bias, out.data(), scratch.workspace());
  else
    convolution(a.data(), b.data(), out.data(), scratch.workspace());
  EXPECT_TRUE(scratch.borderIntact());
  return out;
}

template <class Half>
void checkConvolution(const Context &c, DType elements, ConvolutionShape shape) {
  const auto x = rounded<Half>(numbers(shape.batch * shape.inputChannels * shape.input[0] * shape.input[1], 5));
  const auto w = rounded<Half>(
      numbers(shape.outputChannels * shape.inputChannels / shape.groups * shape.kernel[0] * shape.kernel[1], 6));
  const auto dy = rounded<Half>(numbers(shape.batch * shape.outputChannels * shape.output[0] * shape.output[1], 7));
  const auto bias = rounded<Half>(numbers(shape.outputChannels, 8));
  const ConvolutionResults expected(shape, inFloat(x), inFloat(w), inFloat(dy));
  using Pass = Convolution::Pass;
  shape.elements = elements;
  const float *const noBias = nullptr;
  EXPECT_LT(distance(convolve(c, Pass::gradInput, shape, dy, w, noBias, x.size()), expected.dx), 1e-5);
  EXPECT_LT(distance(convolve(c, Pass::gradWeight, shape, x, dy, noBias, w.size()), expected.dw), 1e-5);
  shape.result = elements;
  const Half *const noHalves = nullptr;
  expectRoundedOnce(convolve(c, Pass::gradInput, shape, dy, w, noHalves, x.size()), expected.dx);
  expectRoundedOnce(convolve(c, Pass::gradWeight, shape, x, dy, noHalves, w.size()), expected.dw);
  shape.bias = true;
  expectRoundedOnce(convolve(c, Pass::forward, shape, x, w, bias.data(), dy.size()), expected.biased(inFloat(bias)));
}

TEST(KernelsConvolution, SumsOf16BitOperandsAreRoundedOnce) {
  const ConvolutionShape blocked{
      .batch = 2, .inputChannels = 16, .outputChannels = 32, .input = {10, 10}, .kernel = {3, 3}, .output = {8, 8}};
  const ConvolutionShape strided{.batch = 2,
                                 .inputChannels = 3,
                                 .outputChannels = 4,
                                 .input = {11, 8},
                                 .kernel = {3, 2},
                                 .output = {5, 7},
                                 .strides = {2, 1},
                                 .dilations = {2, 3},
                                 .padsBefore = {1, 1},
                                 .padsAfter = {1, 1}};
  const ConvolutionShape grouped{.batch = 2,
                                 .inputChannels = 6,
                                 .outputChannels = 4,
                                 .groups = 2,
                                 .input = {6, 6},
                                 .kernel = {3, 3},
                                 .output = {4, 4}};
  const ConvolutionShape apart{.batch = 1, // one channel per group
                               .inputChannels = 16,
                               .outputChannels = 16,
                               .groups = 16,
                               .input = {7, 7},
                               .kernel = {3, 3},
                               .output = {7, 7},
                               .padsBefore = {1, 1},
                               .padsAfter = {1, 1}};
  for (const ConvolutionShape &shape : {blocked, strided, grouped, apart}) {
    checkConvolution<Bfloat16>(nativeContext(), DType::bf16, shape);
    checkConvolution<Bfloat16>(contextOf(2), DType::bf16, shape);
    checkConvolution<Float16>(nativeContext(), DType::f16, shape);
  }
}

TEST(KernelsConvolution, AnEmptyInputIsZeroInItsOwnType) {
  const ConvolutionShape shape{.batch = 2,
                               .inputChannels = 0,
                               .outputChannels = 3,
                               .input = {4, 4},
                               .kernel = {1, 1},
                               .output = {4, 4},
                               .elements = DType::bf16,
                               .result = DType::bf16};
  const std::vector<Bfloat16> none;
  for (const Context &c : {nativeContext(), contextOf()}) {
    Convolution convolution;
    convolution.create(c, Convolution::Pass::forward, shape, plenty);
    std::vector<Bfloat16> out(2 * 3 * 16 + 1, Bfloat16(1));
    convolution(none.data(), none.data(), out.data(), {});
    EXPECT_EQ(static_cast<float>(out[2 * 3 * 16 - 1]), 0);
    EXPECT_EQ(static_cast<float>(out.back()), 1);
  }
}

} // namespace
} // namespace fsdpc::rt

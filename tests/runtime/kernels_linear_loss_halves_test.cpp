// The loss of a linear layer over chunks of positions in bf16 on the cpu target, as this processor multiplies and by
// f32 copies, against f64.
#include "tests/runtime/linear_loss_case.h"
#include "tests/runtime/native_context.h"

namespace fsdpc::rt {
namespace {

using Halves = std::vector<Bfloat16>;

Halves rounded(const std::vector<float> &values) { return {values.begin(), values.end()}; }
std::vector<float> inFloat(const Halves &values) { return {values.begin(), values.end()}; }

/// Logits and their derivatives are rounded to bf16, by up to 2^-9 of their size.
constexpr double bound = 0x1p-7;

struct LinearLossResults {
  std::vector<float> terms, dweight, dbias;
  Halves dhidden;
  std::vector<std::int64_t> predicted;
};

class HalvesTest {
public:
  explicit HalvesTest(const LinearLossCase &own)
      : own(own), shape(own.shape()), hidden(rounded(numbers(own.rows * own.width, 1))),
        weight(rounded(numbers(own.width * own.classes, 2))),
        bias(own.hasBias ? rounded(numbers(own.classes, 3)) : Halves()), dterms(numbers(own.rows, 4)),
        expected(shape, inFloat(hidden), inFloat(weight), inFloat(bias), own.labels(), dterms) {
    shape.elements = DType::bf16;
  }

  /// Operands that are multiplied as they are get no room for f32 copies.
  LinearLossResults run(const Context &c) const {
    const MatmulsOfChunk whole(c, shape, own.chunk, own.hasBias),
        rest(c, shape, std::max<std::int64_t>(1, own.rows % own.chunk), own.hasBias);
    const std::int64_t matmulBytes = std::max(whole.scratchBytes, rest.scratchBytes),
                       bytes = bytesBeforeMatmuls(multipliesBf16(c)) + matmulBytes;
    LinearLossResults results{unwritten(own.rows), unwritten(weight.size()), unwritten(bias.size()),
                              rounded(unwritten(hidden.size())), std::vector<std::int64_t>(own.rows, -1)};
    const ScratchBuffer first(bytes), second(bytes);
    linearCrossEntropy(c, shape, whole.all, rest.all, hidden.data(), weight.data(), own.labels().data(), biasData(),
                       results.terms.data(), results.predicted.data(), first.workspace());
    EXPECT_LT(distance(results.terms, expected.terms), bound);
    results.terms = unwritten(own.rows);
    linearCrossEntropyGrad(c, shape, whole.all, rest.all, dterms.data(), hidden.data(), weight.data(),
                           own.labels().data(), biasData(), results.terms.data(), results.dhidden.data(),
                           results.dweight.data(), own.hasBias ? results.dbias.data() : nullptr, second.workspace());
    EXPECT_TRUE(first.borderIntact() && second.borderIntact());
    return results;
  }

  void check(const LinearLossResults &results) const {
    EXPECT_LT(distance(results.terms, expected.terms), bound);
    EXPECT_LT(distance(inFloat(results.dhidden), expected.dhidden), bound);
    EXPECT_LT(distance(results.dweight, expected.dweight), bound);
    EXPECT_LT(distance(results.dbias, expected.dbias), bound);
    for (std::int64_t i = 0; i < own.rows; ++i) {
      const double *const logits = expected.logits.data() + i * own.classes, largest = logits[expected.predicted[i]];
      EXPECT_GE(logits[results.predicted[i]], largest - std::abs(largest) * bound);
    }
  }

private:
  std::int64_t bytesBeforeMatmuls(bool isNative) const {
    const ChunkedLossLayout layout(own.chunk, own.classes, isNative ? sizeof(Bfloat16) : sizeof(float), own.hasBias);
    const scratch_sizes::LinearLossCopies copies({own.rows, own.width, own.classes, own.hasBias, true});
    return layout.matmuls + (isNative ? 0 : copies.end);
  }
  const Bfloat16 *biasData() const { return own.hasBias ? bias.data() : nullptr; }

  LinearLossCase own;
  LinearLossShape shape;
  Halves hidden, weight, bias;
  std::vector<float> dterms;
  LinearLossReference expected;
};

TEST(KernelsLinearLossHalves, MatchesFormulasAsTheProcessorMultipliesAndByCopies) {
  for (const LinearLossCase &own : linearLossCases)
    for (const Context &c : {nativeContext(), contextOf(2)}) {
      SCOPED_TRACE(std::to_string(own.classes) + (multipliesBf16(c) ? " native" : " copies"));
      const HalvesTest test(own);
      test.check(test.run(c));
    }
}

TEST(KernelsLinearLossHalves, TheNumberOfThreadsDoesNotChangeTheTerms) {
  const HalvesTest test(linearLossCases[1]);
  Context one = nativeContext();
  one.threads = 1;
  EXPECT_EQ(test.run(one).terms, test.run(nativeContext()).terms);
}

} // namespace
} // namespace fsdpc::rt

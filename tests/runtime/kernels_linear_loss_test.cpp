// The loss of a linear layer over chunks of positions against f64, with the matmuls that a program creates for it.
#include "tests/runtime/linear_loss_case.h"

namespace fsdpc::rt {
namespace {

class LinearLossTest {
public:
  LinearLossTest(const LinearLossCase &own, int threads)
      : own(own), shape(own.shape()), c(contextOf(threads)), hidden(numbers(own.rows * own.width, 1)),
        weight(numbers(own.width * own.classes, 2)), bias(own.hasBias ? numbers(own.classes, 3) : std::vector<float>()),
        dterms(numbers(own.rows, 4)), whole(c, shape, own.chunk, own.hasBias),
        rest(c, shape, std::max<std::int64_t>(1, own.rows % own.chunk), own.hasBias),
        expected(shape, hidden, weight, bias, labels(), dterms) {}

  void checkForward() const {
    const ScratchBuffer scratch(scratchBytes(false));
    auto terms = unwritten(own.rows);
    std::vector<std::int64_t> predicted(own.rows, -1);
    linearCrossEntropy(c, shape, whole.all, rest.all, hidden.data(), weight.data(), labels().data(), biasData(),
                       terms.data(), predicted.data(), scratch.workspace());
    EXPECT_LT(distance(terms, expected.terms), 5e-6);
    EXPECT_EQ(predicted, expected.predicted);
    EXPECT_TRUE(scratch.borderIntact());
  }

  void checkGradients() const {
    const ScratchBuffer scratch(scratchBytes(own.hasBias));
    auto terms = unwritten(own.rows), dhidden = unwritten(hidden.size()), dweight = unwritten(weight.size()),
         dbias = unwritten(bias.size());
    linearCrossEntropyGrad(c, shape, whole.all, rest.all, dterms.data(), hidden.data(), weight.data(), labels().data(),
                           biasData(), terms.data(), dhidden.data(), dweight.data(),
                           own.hasBias ? dbias.data() : nullptr, scratch.workspace());
    EXPECT_LT(distance(terms, expected.terms), 5e-6);
    EXPECT_LT(distance(dhidden, expected.dhidden), 5e-6);
    EXPECT_LT(distance(dweight, expected.dweight), 5e-6);
    EXPECT_LT(distance(dbias, expected.dbias), 5e-6);
    EXPECT_TRUE(scratch.borderIntact());
  }

  /// With a frozen weight, dhidden has the same bits.
  void checkFrozen() const {
    auto terms = unwritten(own.rows), dhidden = unwritten(hidden.size()), again = dhidden,
         dweight = unwritten(weight.size());
    for (float *weights : {dweight.data(), static_cast<float *>(nullptr)}) {
      const ScratchBuffer scratch(scratchBytes(false));
      linearCrossEntropyGrad(c, shape, whole.all, rest.all, dterms.data(), hidden.data(), weight.data(),
                             labels().data(), biasData(), terms.data(), weights ? dhidden.data() : again.data(),
                             weights, nullptr, scratch.workspace());
    }
    EXPECT_EQ(dhidden, again);
  }

private:
  std::vector<std::int64_t> labels() const { return own.labels(); }
  const float *biasData() const { return own.hasBias ? bias.data() : nullptr; }
  std::int64_t scratchBytes(bool sumsColumns) const {
    const ChunkedLossLayout layout(own.chunk, own.classes, sizeof(float), sumsColumns);
    return layout.matmuls + std::max(whole.scratchBytes, rest.scratchBytes);
  }

  LinearLossCase own;
  LinearLossShape shape;
  Context c;
  std::vector<float> hidden, weight, bias, dterms;
  MatmulsOfChunk whole, rest;
  LinearLossReference expected;
};

TEST(KernelsLinearLoss, TermsAndClassesMatchFormulasWhateverTheChunk) {
  for (const LinearLossCase &own : linearLossCases)
    for (const int threads : {1, 3})
      LinearLossTest(own, threads).checkForward();
}

TEST(KernelsLinearLoss, DerivativesMatchFormulasWhateverTheChunk) {
  for (const LinearLossCase &own : linearLossCases)
    for (const int threads : {1, 3})
      LinearLossTest(own, threads).checkGradients();
}

TEST(KernelsLinearLoss, AFrozenWeightLeavesTheOtherDerivativeAsItIs) {
  for (const LinearLossCase &own : linearLossCases)
    LinearLossTest(own, 1).checkFrozen();
}

} // namespace
} // namespace fsdpc::rt

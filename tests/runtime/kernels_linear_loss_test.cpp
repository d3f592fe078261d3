// The loss of a linear layer over chunks of positions against f64, with the matmuls that a program creates for it.
#include "tests/runtime/kernels_references.h"

namespace fsdpc::rt {
namespace {

struct Case {
  std::int64_t rows, width, classes, chunk;
  bool transposeB = false, hasBias = false;
  float softcap = 0;
  double smoothing = 0;

  LinearLossShape shape() const {
    LinearLossShape shape;
    shape.loss = {rows, classes, 3, smoothing, softcap};
    shape.width = width;
    shape.chunk = chunk;
    shape.transposeB = transposeB;
    return shape;
  }
};

constexpr Case cases[] = {
    {.rows = 7, .width = 5, .classes = 11, .chunk = 3},
    {.rows = 8, .width = 33, .classes = 70, .chunk = 4, .transposeB = true, .hasBias = true},
    {.rows = 6, .width = 16, .classes = 1030, .chunk = 6, .transposeB = true, .softcap = 2},
    {.rows = 9, .width = 4, .classes = 13, .chunk = 2, .hasBias = true, .softcap = 0.5, .smoothing = 0.1},
};

/// The matmuls of chunks of one size, which start() creates in a program.
struct OwnMatmuls {
  Matmul logits, dhidden, dweight, dweightAdded;
  LossMatmuls all{&logits, &dhidden, &dweight, &dweightAdded};
  std::int64_t scratchBytes = 0;

  OwnMatmuls(const Context &c, const LinearLossShape &s, std::int64_t rows, bool hasBias) {
    const std::int64_t classes = s.loss.classes;
    make(c, logits, {.m = rows, .n = classes, .k = s.width, .transposeB = s.transposeB, .bias = hasBias});
    make(c, dhidden, {.m = rows, .n = s.width, .k = classes, .transposeB = !s.transposeB});
    MatmulShape sum{.m = s.width, .n = classes, .k = rows, .transposeA = true};
    if (s.transposeB)
      std::swap(sum.m, sum.n);
    make(c, dweight, sum);
    sum.accumulate = true;
    make(c, dweightAdded, sum);
  }

private:
  void make(const Context &c, Matmul &matmul, MatmulShape shape) {
    shape.transposeA &= shape.m != 1 && shape.k != 1;
    shape.transposeB &= shape.k != 1 && shape.n != 1;
    matmul.create(c, shape, plenty);
    scratchBytes = std::max(scratchBytes, scratchBytesOf(matmul));
  }
};

class LinearLossTest {
public:
  LinearLossTest(const Case &own, int threads)
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
  std::vector<std::int64_t> labels() const {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < own.rows; ++i)
      values.push_back(i * 5 % own.classes); // 3, the ignored one, among them
    values[1] = 3;
    return values;
  }
  const float *biasData() const { return own.hasBias ? bias.data() : nullptr; }
  std::int64_t scratchBytes(bool sumsColumns) const {
    const ChunkedLossLayout layout(own.chunk, own.classes, sizeof(float), sumsColumns);
    return layout.matmuls + std::max(whole.scratchBytes, rest.scratchBytes);
  }

  Case own;
  LinearLossShape shape;
  Context c;
  std::vector<float> hidden, weight, bias, dterms;
  OwnMatmuls whole, rest;
  LinearLossReference expected;
};

TEST(KernelsLinearLoss, TermsAndClassesMatchFormulasWhateverTheChunk) {
  for (const Case &own : cases)
    for (const int threads : {1, 3})
      LinearLossTest(own, threads).checkForward();
}

TEST(KernelsLinearLoss, DerivativesMatchFormulasWhateverTheChunk) {
  for (const Case &own : cases)
    for (const int threads : {1, 3})
      LinearLossTest(own, threads).checkGradients();
}

TEST(KernelsLinearLoss, AFrozenWeightLeavesTheOtherDerivativeAsItIs) {
  for (const Case &own : cases)
    LinearLossTest(own, 1).checkFrozen();
}

} // namespace
} // namespace fsdpc::rt

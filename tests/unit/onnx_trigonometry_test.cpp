// Trigonometric and hyperbolic functions, and other small ops.
#include "tests/unit/onnx_reference_case.h"

namespace fsdpc {

namespace {

const ReferenceCase cases[] = {
    {"Acos",
     21,
     -0.99,
     0.99,
     "(float[2,3] x) => (float[2,3] y) { y = Acos(x) }",
     {{2.257794, 1.035066, 1.901643, 0.6096582, 1.586266, 2.588267}}},
    {"Acosh",
     21,
     1.01,
     5,
     "(float[2,3] x) => (float[2,3] y) { y = Acosh(x) }",
     {{1.142603, 2.072092, 1.499051, 2.219811, 1.753448, 0.7449498}}},
    {"Asin",
     21,
     -0.99,
     0.99,
     "(float[2,3] x) => (float[2,3] y) { y = Asin(x) }",
     {{-0.6869977, 0.5357299, -0.3308465, 0.9611382, -0.01546937, -1.01747}}},
    {"Asinh",
     21,
     -3,
     3,
     "(float[2,8] x) => (float[2,8] y) { y = Asinh(x) }",
     {{-1.408141, 1.220487, -0.8702818, 1.641412, -0.04685785, -1.675862, 0.8018823, -1.27032, 1.364018, -0.6552248,
       1.741604, 0.2322806, -1.569032, 0.9978427, -1.11414, 1.491506}}},
    {"Atan",
     21,
     -5,
     5,
     "(float[2,3] x) => (float[2,3] y) { y = Atan(x) }",
     {{-1.268189, 1.200783, -1.023403, 1.333825, -0.07796663, -1.342139}}},
    {"Atanh",
     21,
     -0.99,
     0.99,
     "(float[2,3] x) => (float[2,3] y) { y = Atanh(x) }",
     {{-0.7484424, 0.5633635, -0.3370529, 1.156341, -0.01546998, -1.258975}}},
    {"Cosh",
     21,
     -3,
     3,
     "(float[2,3] x) => (float[2,3] y) { y = Cosh(x) }",
     {{3.490046, 2.454841, 1.524906, 6.0385, 1.001099, 6.624166}}},
    {"Sinh",
     21,
     -3,
     3,
     "(float[2,8] x) => (float[2,8] y) { y = Sinh(x) }",
     {{-3.343714, 2.241929, -1.151233, 5.955122, -0.04689217, -6.54825, 1.013126, -2.482267, 3.030747, -0.7625098,
       7.913015, 0.2365267, -4.921245, 1.459127, -1.818469, 4.060887}}},
    {"Tan",
     21,
     -1.5,
     1.5,
     "(float[2,3] x) => (float[2,3] y) { y = Tan(x) }",
     {{-1.431211, 0.9763603, -0.5362013, 2.932799, -0.02344179, -3.455037}}},
    {"Shrink",
     21,
     -2,
     2,
     "(float[2,8] x) => (float[2,8] y) { y = Shrink(x) }",
     {{-1.28125, 1.03125, -0.65625, 1.65625, 0, -1.71875, 0.59375, -1.09375, 1.21875, 0, 1.84375, 0, -1.53125, 0.78125,
       -0.90625, 1.40625}}},
    {"ShrinkBiased",
     21,
     -2,
     2,
     "(float[2,8] x) => (float[2,8] y) { y = Shrink<lambd = 1.0, bias = 0.25>(x) }",
     {{-1.03125, 0.78125, 0, 1.40625, 0, -1.46875, 0, -0.84375, 0.96875, 0, 1.59375, 0, -1.28125, 0, 0, 1.15625}}},
    {"Hardmax",
     21,
     -2,
     2,
     "(float[2,3,2] x) => (float[2,3,2] y) { y = Hardmax<axis = 1>(x) }",
     {{0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1}}},
    {"ModIntegersLikeC",
     21,
     -2,
     2,
     "(float[8] x) => (int64[8] y) { e = Constant<value_float = 8.0>() b = Mul(x, e) i = Cast<to = 7>(b) d = "
     "Constant<value_ints = [3]>() y = Mod<fmod = 1>(i, d) }",
     {{-1, 2, -2, 1, 0, -1, 1, -2}}},
    {"ReverseSequence",
     21,
     -2,
     2,
     "(float[3,4] x) => (float[3,4] y) { l = Constant<value_ints = [1, 3, 4]>() y = ReverseSequence<time_axis = 1, "
     "batch_axis = 0>(x, l) }",
     {{-1.28125, 1.03125, -0.65625, 1.65625, 0.59375, -1.71875, -0.03125, -1.09375, 0.15625, 1.84375, -0.46875,
       1.21875}}},
    {"EinsumDiagonal",
     21,
     -2,
     2,
     "(float[3,2,3] x) => (float[2,3] y) { y = Einsum<equation = \"iji->ji\">(x) }",
     {{-1.28125, -1.09375, -0.90625, 1.65625, 1.84375, -1.96875}}},
    {"EinsumTrace", 21, -2, 2, "(float[3,3] x) => (float y) { y = Einsum<equation = \"ii\">(x) }", {{-0.09375}}},
    {"EinsumStretched",
     21,
     -2,
     2,
     "(float[2,1,3] x, float[2,3,2] z) => (float[2,3,2] y) { w = Constant<value = float[1,3,2] {1.0, 2.0, -1.0, 0.5, "
     "1.5, -2.0}>() e = Einsum<equation = \"...ij,...jk->...ik\">(x, w) y = Einsum<equation = \"bik,bjk->bjk\">(e, z) "
     "}",
     {{-0.5151367, 1.124512, -2.575684, 0.6655273, -4.63623, 0.206543, 1.753418, 2.314941, 1.196777, 6.523926,
       0.6401367, 10.73291}}},
    {"ReverseSequenceTimeFirst",
     21,
     -2,
     2,
     "(float[4,2,2] x) => (float[4,2,2] y) { l = Constant<value_ints = [2, 3]>() y = ReverseSequence(x, l) }",
     {{-0.03125, -1.71875, 1.84375, 0.15625, -1.28125, 1.03125, 0.59375, -1.09375, 1.21875, -0.46875, -0.65625, 1.65625,
       -1.53125, 0.78125, -0.90625, 1.40625}}},
};

class OnnxTrigonometry : public testing::TestWithParam<ReferenceCase> {};

TEST_P(OnnxTrigonometry, AgreesWithTheReference) { checkReferenceCase(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, OnnxTrigonometry, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

/// y = op(x) for every x, and dy/dx, in f64.
struct Slopes {
  std::vector<double> values, slopes;
};

Slopes slopesOf(const char *op, const std::vector<double> &x) {
  std::string shape = "float[" + std::to_string(x.size()) + "]",
              text = "(" + shape + " x) => (float[n] y) { y = " + op + "(x) }";
  ReferenceCase test{op, 21, 0, 1, text.c_str(), {}};
  llvm::Expected<ImportedModel> imported = importCase(test);
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return {};
  }
  const Function &forward = *imported->module->function(FunctionKind::forward);
  HostTensor input = tensorOf(forward.arguments()[0].value->type(), x);
  BuildFunction build = [&](Builder &b, llvm::ArrayRef<Value *> inputs) { return rebuilt(b, forward, inputs); };
  return {valuesOf({input}, build)[0].values, gradientsOf({input}, build)[0].values};
}

/// Relative errors, so that numbers near 0 count as much as others.
void expectClose(const std::vector<double> &actual, const std::vector<double> &expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-12 * std::fabs(expected[i])) << "element " << i;
}

TEST(OnnxTrigonometry, OddFunctionsKeepTheirDigitsAndSlopeAtZero) {
  const std::vector<double> x = {0, 1e-9, -1e-5};
  for (auto [op, function] : {std::pair<const char *, double (*)(double)>{"Asin", std::asin},
                              {"Asinh", std::asinh},
                              {"Atan", std::atan},
                              {"Atanh", std::atanh},
                              {"Sinh", std::sinh},
                              {"Tan", std::tan}}) {
    SCOPED_TRACE(op);
    Slopes y = slopesOf(op, x);
    expectClose(y.values, {0, function(x[1]), function(x[2])});
    for (double slope : y.slopes)
      EXPECT_NEAR(slope, 1, 1e-9);
  }
}

TEST(OnnxTrigonometry, LengthsOfZeroHaveNoSlope) {
  for (const char *op : {"ReduceL2", "LpNormalization"}) {
    SCOPED_TRACE(op);
    Slopes zero = slopesOf(op, {0, 0});
    for (double value : zero.values)
      EXPECT_EQ(value, 0);
    for (double slope : zero.slopes)
      EXPECT_TRUE(std::isfinite(slope));
  }
  expectClose(slopesOf("ReduceL2", {0, 0}).slopes, {0, 0});
  expectClose(slopesOf("ReduceL2", {3, 4}).slopes, {0.6, 0.8});
}

TEST(OnnxTrigonometry, FormulasMeetWhereTheyChange) {
  const std::vector<double> x = {-1, 1, 0.9999999, 1.0000001, -0.9999999};
  Slopes sine = slopesOf("Sinh", x), inverse = slopesOf("Asinh", x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(sine.values[i], std::sinh(x[i]), 1e-12);
    EXPECT_NEAR(sine.slopes[i], std::cosh(x[i]), 1e-12);
    EXPECT_NEAR(inverse.values[i], std::asinh(x[i]), 1e-12);
    EXPECT_NEAR(inverse.slopes[i], 1 / std::sqrt(1 + x[i] * x[i]), 1e-12);
  }
}

TEST(OnnxTrigonometry, EndsAreExactAndLargeNumbersDoNotOverflow) {
  const double pi = 3.141592653589793, close = 1 - 0x1p-30;
  expectClose(slopesOf("Asin", {-1, 1, close}).values, {-pi / 2, pi / 2, std::asin(close)});
  expectClose(slopesOf("Acos", {-1, 1, close}).values, {pi, 0, std::acos(close)});
  expectClose(slopesOf("Acosh", {1, 1 + 0x1p-30, 1e200}).values, {0, std::acosh(1 + 0x1p-30), std::acosh(1e200)});
  expectClose(slopesOf("Asinh", {1e200, -1e200, 40}).values, {std::asinh(1e200), -std::asinh(1e200), std::asinh(40)});
  expectClose(slopesOf("Atan", {1e300, -1e300}).slopes, {0, 0});
  Slopes large = slopesOf("Asinh", {1e10, -1e10});
  expectClose(large.slopes, {1e-10, 1e-10});
}

} // namespace

} // namespace fsdpc

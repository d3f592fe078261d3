// Translations compute what ONNX specifies: small graphs over x = 0, 1, 2, ... (minus an offset) with values worked out
// by hand.
#include "tests/frontend/fixture.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace fsdpc {

namespace {

struct ValueCase {
  const char *name;
  const char *text; ///< input x, output y, nodes
  std::vector<double> expected;
  double first = 0; ///< of x
};

std::ostream &operator<<(std::ostream &out, const ValueCase &valueCase) { return out << valueCase.name; }

#define INTS(name, values) name " = Constant<value_ints = [" values "]>() "

const ValueCase cases[] = {
    {"ArgMax", "(float[2,3] x) => (int64[2] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }", {2, 2}},
    {"ArgMin", "(float[2,3] x) => (int64[2,1] y) { y = ArgMin<axis = -1>(x) }", {0, 0}},
    {"AveragePoolCeil",
     "(float[1,1,5] x) => (float[1,1,3] y) { y = AveragePool<kernel_shape = [2], strides = [2], ceil_mode = 1>(x) }",
     {0.5, 2.5, 4}},
    {"Cast", "(float[4] x) => (bool[4] y) { y = Cast<to = 9>(x) }", {1, 0, 1, 1}, -1},
    {"CumSum",
     "(float[4] x) => (float[4] y) { a = Constant<value_int = 0>() y = CumSum<exclusive = 1, reverse = 1>(x, a) }",
     {6, 5, 3, 0}},
    {"DepthToSpace", "(float[1,4,1,1] x) => (float[1,1,2,2] y) { y = DepthToSpace<blocksize = 2>(x) }", {0, 1, 2, 3}},
    {"DepthToSpaceColumns",
     "(float[1,8,1,1] x) => (float[1,2,2,2] y) { y = DepthToSpace<blocksize = 2, mode = \"CRD\">(x) }",
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {"DivIntegers", "(int64[4] x) => (int64[4] y) { " INTS("d", "2") "y = Div(x, d) }", {-1, -1, 0, 0}, -3},
    {"ExpandRank", "(float[2] x) => (float[3,2] y) { " INTS("s", "3, 1") "y = Expand(x, s) }", {0, 1, 0, 1, 0, 1}},
    {"EyeLike", "(float[2,3] x) => (float[2,3] y) { y = EyeLike<k = 1>(x) }", {0, 1, 0, 0, 0, 1}},
    {"Flatten", "(float[2,1,2] x) => (float[1,4] y) { y = Flatten<axis = 0>(x) }", {0, 1, 2, 3}},
    {"GatherContiguous",
     "(float[1,4] x) => (float[1,1,2] y) { i = Constant<value = int64[1,2] {-3, 2}>() y = Gather<axis = 1>(x, i) }",
     {1, 2}},
    {"GatherElements",
     "(float[2,3] x) => (float[2,2] y) { i = Constant<value = int64[2,2] {0, -1, 2, 1}>() y = GatherElements<axis = "
     "1>(x, i) }",
     {0, 2, 5, 4}},
    {"GatherElementsRows",
     "(float[2,3] x) => (float[1,3] y) { i = Constant<value = int64[1,3] {1, 0, 1}>() y = GatherElements(x, i) }",
     {3, 1, 5}},
    {"GatherND",
     "(float[2,2] x) => (float[2] y) { i = Constant<value = int64[2,2] {0, 1, 1, 0}>() y = GatherND(x, i) }",
     {1, 2}},
    {"GatherScalar",
     "(float[1,3] x) => (float[1] y) { i = Constant<value_int = -1>() y = Gather<axis = 1>(x, i) }",
     {2}},
    {"GlobalMaxPool", "(float[1,2,3] x) => (float[1,2,1] y) { y = GlobalMaxPool(x) }", {2, 5}},
    {"InstanceNormalization",
     "(float[1,2,2] x) => (float[1,2,2] y) { s = Constant<value = float[2] {1.0, 2.0}>() b = Constant<value = float[2] "
     "{0.0, 1.0}>() "
     "y = InstanceNormalization<epsilon = 0.0>(x, s, b) }",
     {-1, 1, -1, 3}},
    {"IsInf",
     "(float[3] x) => (bool[3] y) { z = Constant<value_float = 0.0>() q = Div(x, z) y = IsInf<detect_negative = 0>(q) "
     "}",
     {0, 0, 1},
     -1},
    {"LpNormalization", "(float[1,2] x) => (float[1,2] y) { y = LpNormalization<p = 1>(x) }", {3. / 7, 4. / 7}, 3},
    {"MaxPoolSame",
     "(float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape = [3], strides = [2], auto_pad = "
     "\"SAME_LOWER\">(x) }",
     {1, 3}},
    {"MaxVariadic",
     "(float[3] x) => (float[3] y) { o = Constant<value_float = 1.0>() n = Neg(x) y = Max(x, n, o) }",
     {1, 1, 1},
     -1},
    {"MeanVariadic",
     "(float[3] x) => (float[3] y) { o = Constant<value_float = 3.0>() y = Mean(x, x, o) }",
     {1, 5. / 3, 7. / 3}},
    {"ModIntegers", "(int64[4] x) => (int64[4] y) { " INTS("d", "3") "y = Mod(x, d) }", {1, 2, 0, 1}, -2},
    {"OneHot",
     "(int64[3] x) => (float[2,3] y) { d = Constant<value_int = 2>() v = Constant<value = float[2] {-1.0, 5.0}>() "
     "y = OneHot<axis = 0>(x, d, v) }",
     {-1, 5, -1, 5, -1, 5},
     -1},
    {"PadBothWays",
     "(float[1,4] x) => (float[1,4] y) { " INTS("p", "-1, 1")
         INTS("a", "1") "v = Constant<value_float = 9.0>() y = Pad(x, p, v, a) }",
     {1, 2, 3, 9}},
    {"PowIntegerExponent", "(float[3] x) => (float[3] y) { " INTS("e", "2") "y = Pow(x, e) }", {1, 0, 1}, -1},
    {"Range",
     "(float[3] x) => (float[3] y) { s = Shape(x) a = Constant<value_int = 0>() n = Squeeze(s) o = Constant<value_int "
     "= 1>() "
     "r = Range(a, n, o) f = Cast<to = 1>(r) y = Add(x, f) }",
     {0, 2, 4}},
    {"ReduceNoAxes", "(float[2,2] x) => (float[2,2] y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }", {0, 1, 2, 3}},
    {"ReduceProd",
     "(float[2,2] x) => (float[2] y) { " INTS("a", "1") "y = ReduceProd<keepdims = 0>(x, a) }",
     {2, 12},
     1},
    {"ReshapeOpen",
     "(float[2,3,2] x) => (float[2,6] y) { " INTS("s", "0, -1") "y = Reshape(x, s) }",
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"ShapeRange", "(float[2,3,4] x) => (int64[2] y) { y = Shape<start = -2>(x) }", {3, 4}},
    {"Size", "(float[2,3] x) => (int64 y) { y = Size(x) }", {6}},
    {"SliceBackwards",
     "(float[1,5] x) => (float[1,3] y) { " INTS("s", "-1") INTS("e", "-9223372036854775807") INTS("a", "1")
         INTS("t", "-2") "y = Slice(x, s, e, a, t) }",
     {4, 2, 0}},
    {"SliceClamped",
     "(float[1,5] x) => (float[1,2] y) { " INTS("s", "3") INTS("e", "99") INTS("a", "-1") "y = Slice(x, s, e, a) }",
     {3, 4}},
    {"SpaceToDepth", "(float[1,1,2,2] x) => (float[1,4,1,1] y) { y = SpaceToDepth<blocksize = 2>(x) }", {0, 1, 2, 3}},
    {"SplitUneven", "(float[1,5] x) => (float[1,1] y) { a, b, y = Split<axis = 1, num_outputs = 3>(x) }", {4}},
    {"SplitSizes", "(float[1,5] x) => (float[1,3] y) { " INTS("s", "2, 3") "a, y = Split<axis = 1>(x, s) }", {2, 3, 4}},
    {"SumVariadic", "(float[2] x) => (float[2] y) { y = Sum(x, x, x) }", {0, 3}},
    {"Tan", "(float[2] x) => (float[2] y) { y = Tan(x) }", {0, 1.5574077246549023}},
    {"Tile", "(float[1,2] x) => (float[2,4] y) { " INTS("r", "2, 2") "y = Tile(x, r) }", {0, 1, 0, 1, 0, 1, 0, 1}},
    {"Transpose", "(float[2,3] x) => (float[3,2] y) { y = Transpose(x) }", {0, 3, 1, 4, 2, 5}},
    {"TriluLower",
     "(float[2,3] x) => (float[2,3] y) { k = Constant<value_int = -1>() y = Trilu<upper = 0>(x, k) }",
     {0, 0, 0, 3, 0, 0}},
    {"Where",
     "(float[3] x) => (float[3] y) { z = Constant<value_float = 0.0>() c = LessOrEqual(x, z) y = Where(c, z, x) }",
     {0, 0, 1},
     -1},
    {"XorNot", "(float[3] x) => (bool[3] y) { a = Cast<to = 9>(x) b = Not(a) y = Xor(a, b) }", {1, 1, 1}, -1},
};

class Values : public testing::TestWithParam<ValueCase> {};

llvm::Expected<ImportedModel> importText(llvm::StringRef graph) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("fsdpc", "onnxtxt", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << "<ir_version: 10, opset_import: [\"\" : 21]> agraph " << graph;
  ImportOptions options;
  graph.split("x)").first.split('[').second.consumeInteger(10, options.microBatchSize);
  return importOnnx(path, options);
}

TEST_P(Values, AreRight) {
  llvm::Expected<ImportedModel> imported = importText(GetParam().text);
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensor x(imported->module->function(FunctionKind::forward)->argument("x")->type());
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = GetParam().first + static_cast<double>(i);
  HostTensors results = runForward(*imported->module, {}, {{"x", x}});
  ASSERT_EQ(results.count("y"), 1u);
  const std::vector<double> &y = results["y"].values;
  ASSERT_EQ(y.size(), GetParam().expected.size());
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], GetParam().expected[i], 1e-6) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(All, Values, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc

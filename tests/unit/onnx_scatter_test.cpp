// Scatters, largest elements and constant indices as ONNX specifies them, with values worked out by hand over
// x = 0, 1, 2, ...
#include "tests/frontend/fixture.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace fsdpc {

namespace {

llvm::Expected<ImportedModel> importText(const std::string &graph, int opset, int64_t batch) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("fsdpc", "onnxtxt", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << "<ir_version: 10, opset_import: [\"\" : " << opset << "]> agraph " << graph;
  ImportOptions options;
  options.microBatchSize = batch;
  return importOnnx(path, options);
}

struct ValueCase {
  const char *name;
  const char *text; ///< input x, output y, nodes
  std::vector<double> expected;
  int opset = 21;
};

std::ostream &operator<<(std::ostream &out, const ValueCase &valueCase) { return out << valueCase.name; }

#define TENSOR(name, value) name " = Constant<value = " value ">() "

const ValueCase cases[] = {
    {"ArgMaxLast",
     "(float[1,4] x) => (int64[1] y) { m = Floor(x) z = Sub(m, m) y = ArgMax<axis = 1, keepdims = 0, "
     "select_last_index = 1>(z) }",
     {3}},
    {"ArgMinLast",
     "(float[1,4] x) => (int64[1,1] y) { z = Sub(x, x) y = ArgMin<axis = 1, select_last_index = 1>(z) }",
     {3}},
    {"Compress",
     "(float[2,3] x) => (float[2,2] y) { " TENSOR("c", "bool[3] {1, 0, 1}") "y = Compress<axis = 1>(x, c) }",
     {0, 2, 3, 5}},
    {"CompressFlat",
     "(float[2,2] x) => (float[2] y) { " TENSOR("c", "bool[3] {0, 1, 1}") "y = Compress(x, c) }",
     {1, 2}},
    {"GatherElementsFewer",
     "(float[2,3] x) => (float[1,4] y) { " TENSOR("i",
                                                  "int64[1,4] {0, -1, 2, 0}") "y = GatherElements<axis = 1>(x, i) }",
     {0, 2, 2, 0}},
    {"GatherNDBatched",
     "(float[2,3] x) => (float[2] y) { " TENSOR("i", "int64[2,1] {2, -3}") "y = GatherND<batch_dims = 1>(x, i) }",
     {2, 3}},
    {"Hardmax", "(float[2,3] x) => (float[2,3] y) { y = Hardmax(x) }", {0, 0, 1, 0, 0, 1}},
    {"Scatter",
     "(float[2,3] x) => (float[2,3] y) { " TENSOR("i", "int64[2,1] {1, -1}")
         TENSOR("u", "float[2,1] {7.0, 8.0}") "y = Scatter<axis = 1>(x, i, u) }",
     {0, 7, 2, 3, 4, 8},
     10},
    {"ScatterElementsAdd",
     "(float[3,2] x) => (float[3,2] y) { " TENSOR("i", "int64[2,2] {0, 2, 0, 2}")
         TENSOR("u", "float[2,2] {10.0, 20.0, 30.0, 40.0}") "y = ScatterElements<reduction = \"add\">(x, i, u) }",
     {40, 1, 2, 3, 4, 65}},
    {"ScatterElementsCorner",
     "(float[3,3] x) => (float[3,3] y) { " TENSOR("i", "int64[2,2] {2, 0, 1, 1}") TENSOR(
         "u", "float[2,2] {10.0, 20.0, 30.0, 40.0}") "y = ScatterElements<axis = 1, reduction = \"max\">(x, i, u) }",
     {20, 1, 10, 3, 40, 5, 6, 7, 8},
     18},
    {"ScatterND",
     "(float[3,2] x) => (float[3,2] y) { " TENSOR("i", "int64[3,1] {2, 0, 2}")
         TENSOR("u", "float[3,2] {10.0, 11.0, 20.0, 21.0, 30.0, 31.0}") "y = ScatterND(x, i, u) }",
     {20, 21, 2, 3, 30, 31}},
    {"ScatterNDMul",
     "(float[2,2] x) => (float[2,2] y) { " TENSOR("i", "int64[3,2] {1, 1, 0, 1, -1, -1}")
         TENSOR("u", "float[3] {2.0, 5.0, 0.5}") "y = ScatterND<reduction = \"mul\">(x, i, u) }",
     {0, 5, 2, 3},
     16},
    {"TopK", "(float[1,4] x) => (float[1,2] y) { " TENSOR("k", "int64[1] {2}") "y, i = TopK(x, k) }", {3, 2}},
    {"TopKIndices",
     "(float[3,2] x) => (int64[2,2] y) { " TENSOR("k", "int64[1] {2}") "v, y = TopK<axis = 0, largest = 0>(x, k) }",
     {0, 0, 1, 1}},
};

class ScatterValues : public testing::TestWithParam<ValueCase> {};

TEST_P(ScatterValues, AreRight) {
  llvm::StringRef text = GetParam().text;
  int64_t batch = 1;
  text.split('[').second.consumeInteger(10, batch);
  llvm::Expected<ImportedModel> imported = importText(text.str(), GetParam().opset, batch);
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensor x(imported->module->function(FunctionKind::forward)->argument("x")->type());
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = static_cast<double>(i);
  HostTensors results = runForward(*imported->module, {}, {{"x", x}});
  ASSERT_EQ(results.count("y"), 1u);
  EXPECT_EQ(results["y"].values, GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(All, ScatterValues, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc

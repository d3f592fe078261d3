// A value that layers compute alike from constants alone becomes one constant, however often the file computes it.
#include "ir/ops/attributes.h"
#include "tests/frontend/onnx_text.h"

namespace fsdpc {

namespace {

/// Constants of at least a thousand elements.
int largeConstants(const Module &module) {
  int count = 0;
  for (const Node *node : *module.function(FunctionKind::forward))
    count += node->op() == Op::constant && node->get<ConstantAttributes>().value.storedElements() >= 1000;
  return count;
}

int largeConstantsOf(llvm::StringRef graph) {
  llvm::Expected<ImportedModel> imported = importText(graph, "\"\" : 23");
  if (imported)
    return largeConstants(*imported->module);
  ADD_FAILURE() << llvm::toString(imported.takeError());
  return -1;
}

TEST(Folding, LayersShareTheirMask) {
  const char *graph = "(float[2,40,8] x) => (float[2,40,8] y) { "
                      "a = Attention<is_causal = 1, q_num_heads = 2, kv_num_heads = 2>(x, x, x) "
                      "b = Attention<is_causal = 1, q_num_heads = 2, kv_num_heads = 2>(a, a, a) "
                      "y = Attention<is_causal = 1, q_num_heads = 2, kv_num_heads = 2>(b, b, b) }";
  EXPECT_EQ(largeConstantsOf(graph), 1);
}

TEST(Folding, OtherValuesStayApart) {
  const char *graph =
      "(float[2,40,40] x) => (float[2,40,40] y) { zero = Constant<value_int = 0>() "
      "one = Constant<value_int = 1>() two = Constant<value_int = 2>() n = Constant<value_int = 1600>() "
      "m = Constant<value_int = 3200>() s = Constant<value_ints = [40, 40]>() "
      "r = Range(zero, n, one) q = Range(zero, m, two) rs = Reshape(r, s) qs = Reshape(q, s) "
      "rf = Cast<to = 1>(rs) qf = Cast<to = 1>(qs) z = Add(x, rf) y = Add(z, qf) }";
  EXPECT_EQ(largeConstantsOf(graph), 2);
}

} // namespace

} // namespace fsdpc

// The walk over the op table: every op has all of its parts and a test.
#include "tests/unit/gradient_check.h"

#include <set>

namespace fsdpc {
namespace {

TEST(OpTable, EveryOpHasAllItsParts) {
  for (Op op : allOps()) {
    const OpInfo &info = infoOf(op);
    SCOPED_TRACE(info.name.str());
    EXPECT_FALSE(info.doc.empty());
    EXPECT_TRUE(info.infer);
    EXPECT_TRUE(info.evaluate);
    EXPECT_TRUE(info.vjp);
    EXPECT_TRUE(info.cost);
    EXPECT_EQ(info.has(elementwise), info.scalar != nullptr);
    EXPECT_NE(info.computeClass, ComputeClass::unknown);
    EXPECT_LE(info.stages.first, info.stages.last);
    EXPECT_EQ(info.has(elementwise), !info.element.text.empty());
    EXPECT_EQ(info.firstSum >= 0, info.accumulateInF32 != nullptr);
    EXPECT_TRUE(info.batch || !info.stages.contain(Stage::graph) || info.maxOperands() == 0 || op == Op::ret)
        << "an op of graphs says where the batch of its operands comes out";
    EXPECT_FALSE(info.has(startsTransfer) && info.has(pure));
    for (llvm::StringRef operand : info.operandNames.drop_back(info.operandNames.empty() ? 0 : 1))
      EXPECT_FALSE(operand.ends_with("...")) << "only the last operand may be many";
  }
}

TEST(OpTable, TheDescriptorsNameIsTheListsName) {
#define OP(enumerator, text, info) EXPECT_EQ(infoOf(Op::enumerator).name, text);
#include "ir/ops.def"
}

TEST(OpTable, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (Op op : allOps()) {
    EXPECT_TRUE(names.insert(infoOf(op).name.str()).second) << infoOf(op).name.str();
    EXPECT_EQ(opFromName(infoOf(op).name), op);
  }
  EXPECT_EQ(opFromName("no_such_op"), std::nullopt);
}

TEST(OpTable, EveryOpHasATest) {
  for (Op op : allOps())
    EXPECT_TRUE(hasOpTest(op)) << "no OP_TEST names " << infoOf(op).name.str();
}

TEST(OpTable, EveryShapeRuleRefusesTooManyOperands) {
  std::vector<Type> many(20, Type(DType::f32, {2}));
  for (Op op : allOps())
    EXPECT_TRUE(infoOf(op).maxOperands() == ~0u || inferMessage(op, many) != "") << infoOf(op).name.str();
}

TEST(OpTable, EveryShapeRuleRefusesTooFewOperands) {
  for (Op op : allOps())
    EXPECT_TRUE(infoOf(op).minOperands() == 0 || inferMessage(op, {}) != "") << infoOf(op).name.str();
}

TEST(OpTable, EveryShapeRuleRefusesATokenAsATensor) {
  for (Op op : allOps())
    for (unsigned i = 0; i < infoOf(op).minOperands(); ++i) {
      std::vector<Type> operands(infoOf(op).minOperands(), Type(DType::f32, {2, 2}));
      operands[i] = Type::token();
      EXPECT_NE(inferMessage(op, operands), "") << infoOf(op).name.str();
    }
}

} // namespace
} // namespace fsdpc

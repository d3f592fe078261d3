// If, Loop and Scan with known conditions and trip counts compute what ONNX specifies, with the right derivatives.
#include "tests/frontend/onnx_text.h"

namespace fsdpc {

namespace {

#define INT(name, value) name " = Constant<value_int = " value ">() "
#define INTS(name, values) name " = Constant<value_ints = [" values "]>() "
#define BOOL(name, value) name " = Constant<value = bool {" value "}>() "

const TextCase cases[] = {
    {"IfOnShape",
     "(float[1,3] x) => (float[1,3] y) { s = Size(x) " INT(
         "n", "3") "c = Equal(s, n) y = If (c) <"
                   "then_branch = t () => (float[1,3] a) { a = Mul(x, x) }, else_branch = e () => (float[1,3] b) { b = "
                   "Neg(x) }> }",
     {0, 1, 4}},
    {"IfElse",
     "(float[1,3] x) => (float[1,3] y) { " BOOL(
         "c", "0") "y, z = If (c) <"
                   "then_branch = t () => (float[1,3] a, float[1,3] d) { a = Mul(x, x) d = Neg(x) }, "
                   "else_branch = e () => (float[1,3] a, float[1,3] d) { a = Neg(x) d = Neg(a) }> }",
     {0, -1, -2}},
    {"IfInIf",
     "(float[1,2] x) => (float[1,2] y) { " BOOL(
         "c", "1") "y = If (c) <then_branch = t () => (float[1,2] a) { "
                   "n = Not(c) a = If (n) <then_branch = u () => (float[1,2] p) { p = Neg(x) }, "
                   "else_branch = v () => (float[1,2] q) { q = Exp(x) }> }, else_branch = e () => (float[1,2] b) { b = "
                   "Neg(x) }> }",
     {1, 2.718281828459045}},
    {"LoopCarries",
     "(float[1,2] x) => (float[1,2] y) { " INT("n",
                                               "3") "y = Loop (n, , x) <body = b (int64 i, bool c, float[1,2] h) "
                                                    "=> (bool d, float[1,2] k) { d = Identity(c) k = Mul(h, x) }> }",
     {16, 81},
     2},
    {"LoopScans",
     "(float[1,2] x) => (float[3,1,2] y) { " INT("n", "3")
         BOOL("c", "1") "h, y = Loop (n, c, x) <body = b "
                        "(int64 i, bool c1, float[1,2] h0) => (bool d, float[1,2] k, float[1,2] s) { d = Identity(c1) "
                        "f = Cast<to = 1>(i) k = Add(h0, x) s = Mul(k, f) }> }",
     {0, 0, 3, 6, 8, 16},
     1},
    {"LoopUntil",
     "(float[1,2] x) => (float[1,2] y) { " INT("m", "9223372036854775807") BOOL("c", "1")
         INT("e", "4") "y = Loop (m, c, x) <body = b (int64 i, bool c1, float[1,2] h) => (bool d, float[1,2] k) { "
                       "d = Less(i, e) k = Add(h, x) }> }",
     {6, 12},
     1},
    {"LoopNever",
     "(float[1,2] x) => (float[1,2] y) { " INT("n", "5") BOOL(
         "c", "0") "y = Loop (n, c, x) <body = b "
                   "(int64 i, bool c1, float[1,2] h) => (bool d, float[1,2] k) { d = Identity(c1) k = Add(h, x) }> }",
     {1, 2},
     1},
    {"LoopIgnoresCondition",
     "(float[1,2] x) => (float[1,2] y) { " INT(
         "n", "2") "y = Loop (n, , x) <body = b "
                   "(int64 i, bool c1, float[1,2] h) => (bool d, float[1,2] k) { d = Not(c1) k = Add(h, x) }> }",
     {3, 6},
     1},
    {"TripCountOfShape",
     "(float[1,3] x) => (float[1,3] y) { s = Shape<start = 1>(x) " INTS(
         "z", "0") "n = Squeeze(s, z) y = Loop (n, , x) "
                   "<body = b (int64 i, bool c1, float[1,3] h) => (bool d, float[1,3] k) { d = Identity(c1) k = Add(h, "
                   "x) }> }",
     {4, 8, 12},
     1},
    {"LoopInLoop",
     "(float[1,2] x) => (float[1,2] y) { " INT("n", "2")
         INT("m", "3") "y = Loop (n, , x) <body = b "
                       "(int64 i, bool c1, float[1,2] h) => (bool d, float[1,2] k) { d = Identity(c1) k = Loop (m, , "
                       "h) <body = q "
                       "(int64 j, bool c2, float[1,2] g) => (bool e, float[1,2] l) { e = Identity(c2) t = Add(i, j) f "
                       "= Cast<to = 1>(t) "
                       "w = Mul(x, f) l = Add(g, w) }> }> }",
     {10, 20},
     1},
    {"SequenceInLoop",
     "(float[1,4] x) => (float[1,4] y) { " INT("n", "4") INTS(
         "o", "1") "p = SequenceEmpty() q = Loop (n, , p) <body = b "
                   "(int64 i, bool c1, seq(float[A,B]) s) => (bool d, seq(float[C,D]) r) { d = Identity(c1) j = Neg(i) "
                   "k = Sub(j, o) g = Gather<axis = 1>(x, k) r = SequenceInsert(s, g) }> y = ConcatFromSequence<axis = "
                   "1>(q) }",
     {3, 2, 1, 0}},
    {"InitializerOfBody",
     "(float[1,2] x) => (float[1,2] y) { " INT(
         "n", "2") "y = Loop (n, , x) <body = b (int64 i, bool c1, float[1,2] h) "
                   "=> (bool d, float[1,2] k) <float f = {3.0}> { d = Identity(c1) k = Mul(h, f) }> }",
     {9, 18},
     1},
    {"ScanSums",
     "(float[1,3,2] x) => (float[3,2] y) { t = Transpose<perm = [1, 0, 2]>(x) z = Constant<value = float[1,2] {0.0, "
     "0.0}>() "
     "h, q = Scan<num_scan_inputs = 1, body = b (float[1,2] s, float[1,2] e) => (float[1,2] a, float[1,2] o) { "
     "a = Add(s, e) o = Identity(a) }>(z, t) " INTS("one", "1") "y = Squeeze(q, one) }",
     {0, 1, 2, 4, 6, 9}},
    {"ScanBackwards",
     "(float[1,3] x) => (float[1,3] y) { z = Constant<value = float[1] {0.0}>() "
     "h, y = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [-1], "
     "scan_output_directions = [1], body = b (float[1] s, float[1] e) => (float[1] a, float[1] o) { "
     "a = Add(s, e) o = Mul(a, e) }>(z, x) }",
     {0, 3, 4}},
};

class Loops : public testing::TestWithParam<TextCase> {};

TEST_P(Loops, AreRight) { checkText(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Loops, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

struct FaultCase {
  const char *name, *text, *message;
};
std::ostream &operator<<(std::ostream &out, const FaultCase &faultCase) { return out << faultCase.name; }

const FaultCase faults[] = {
    {"IfOnData",
     "(bool[1] x) => (bool[1] y) { [choice] y = If (x) <then_branch = t () => (bool[1] a) { a = Not(x) }, "
     "else_branch = e () => (bool[1] b) { b = Identity(x) }> }",
     "choice (If of ai.onnx, opset 20): its condition depends on the model's inputs"},
    {"TripCountOfData",
     "(int64[1] x) => (int64[1] y) { [steps] y = Loop (x, , x) <body = b (int64 i, bool c, int64[1] h) => "
     "(bool d, int64[1] k) { d = Identity(c) k = Add(h, x) }> }",
     "steps (Loop of ai.onnx, opset 20): its trip count depends on the model's inputs"},
    {"TooManyTrips",
     "(float[1] x) => (float[1] y) { " INT(
         "n", "1025") "[steps] y = Loop (n, , x) <body = b (int64 i, bool c, float[1] h) => "
                      "(bool d, float[1] k) { d = Identity(c) k = Add(h, x) }> }",
     "it runs 1025 times or more; loops of up to 1024 iterations are unrolled"},
    {"Endless",
     "(float[1] x) => (float[1] y) { " BOOL(
         "t", "1") "[steps] y = Loop ( , t, x) <body = b (int64 i, bool c, float[1] h) => "
                   "(bool d, float[1] k) { d = Identity(c) k = Add(h, x) }> }",
     "it runs 1025 times or more"},
    {"TooManyNodes",
     "(float[1] x) => (float[1] y) { " INT("n", "1024") "y = Loop (n, , x) <body = b (int64 i, bool c, float[1] h) => "
                                                        "(bool d, float[1] k) { d = Identity(c) k = Loop (n, , h) "
                                                        "<body = q (int64 j, bool e, float[1] g) => (bool f, "
                                                        "float[1] l) { f = Identity(e) l = Loop(n, , g) <body = r "
                                                        "(int64 m, bool o, float[1] p) => (bool s, float[1] u) { "
                                                        "s = Identity(o) u = Neg(p) }> }> }> }",
     "unrolled, the model has more than 4194304 nodes"},
    {"UnsupportedInBody",
     "(float[1] x) => (float[1] y) { " INT("n", "2") "y = Loop (n, , x) <body = b (int64 i, bool c, float[1] h) => "
                                                     "(bool d, float[1] k) { d = Identity(c) [odd] k = Det(h) }> }",
     "unsupported nodes:\n  odd (Det of ai.onnx, opset 20)"},
};

class LoopFaults : public testing::TestWithParam<FaultCase> {};

TEST_P(LoopFaults, NameTheNode) {
  llvm::Expected<ImportedModel> imported = importText(GetParam().text);
  ASSERT_FALSE(static_cast<bool>(imported));
  std::string message = llvm::toString(imported.takeError());
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(All, LoopFaults, testing::ValuesIn(faults),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(LoopsAnd, WhatOnlyABodyReadsIsAParameter) {
  llvm::Expected<ImportedModel> imported =
      importText("(float[1,2] x) => (float[1,2] y) <float[2,2] W = {1, 2, 3, 4}> { " INT(
          "n",
          "3") "y = Loop (n, , x) <body = b "
               "(int64 i, bool c, float[1,2] h) => (bool d, float[1,2] k) { d = Identity(c) k = MatMul(h, W) }> }");
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  ASSERT_EQ(imported->parameters.size(), 1u);
  EXPECT_EQ(imported->parameters[0].name, "W");
  EXPECT_EQ(imported->parameters[0].uses.size(), 3u);
}

} // namespace

} // namespace fsdpc

// Sequences of known length, and nodes that depend on constants alone, compute what ONNX specifies, with the right
// derivatives.
#include "tests/frontend/onnx_text.h"

namespace fsdpc {

namespace {

#define INT(name, value) name " = Constant<value_int = " value ">() "
#define INTS(name, values) name " = Constant<value_ints = [" values "]>() "

const TextCase cases[] = {
    {"SplitOneByOne",
     "(float[1,3] x) => (float[1] y) { s = SplitToSequence<axis = 1, keepdims = 0>(x) " INT(
         "i", "-1") "y = SequenceAt(s, i) }",
     {2}},
    {"SplitKeepingAxis",
     "(float[1,3] x) => (float[1,1] y) { s = SplitToSequence<axis = 1>(x) " INT("i", "1") "y = SequenceAt(s, i) }",
     {1}},
    {"SplitInParts",
     "(float[1,5] x) => (float[1,1] y) { " INT("n", "2") "s = SplitToSequence<axis = 1>(x, n) " INT(
         "i", "2") "y = SequenceAt(s, i) }",
     {4}},
    {"SplitBySizes",
     "(float[1,5] x) => (float[1,3] y) { " INTS("n", "2, 3") "s = SplitToSequence<axis = -1>(x, n) " INT(
         "i", "1") "y = SequenceAt(s, i) }",
     {2, 3, 4}},
    {"ConcatParts",
     "(float[1,4] x) => (float[1,4] y) { " INT("n", "2") "s = SplitToSequence<axis = 1>(x, n) " INT("i", "0")
         INT("j", "1") "a = SequenceAt(s, i) b = SequenceAt(s, j) t = SequenceConstruct(b, a) "
                       "y = ConcatFromSequence<axis = 1>(t) }",
     {2, 3, 0, 1}},
    {"StackParts",
     "(float[1,2] x) => (float[1,2,2] y) { z = Neg(x) t = SequenceConstruct(x, z) "
     "y = ConcatFromSequence<axis = -1, new_axis = 1>(t) }",
     {0, 0, 1, -1}},
    {"InsertAndErase",
     "(float[1,1] x) => (float[1,3] y) { z = Neg(x) w = Exp(x) e = SequenceEmpty() a = SequenceInsert(e, x) " INT(
         "i", "0") "b = SequenceInsert(a, z, i) c = SequenceInsert(b, w) d = SequenceInsert(c, w, i) "
                   "f = SequenceErase(d, i) g = SequenceErase(f) k = SequenceInsert(g, x) "
                   "y = ConcatFromSequence<axis = 1>(k) }",
     {-1, 1, 1},
     1},
    {"Length",
     "(float[1,4] x) => (float[1,4] y) { s = SplitToSequence<axis = 1>(x) n = SequenceLength(s) f = Cast<to = 1>(n) "
     "y = Mul(x, f) }",
     {0, 4, 8, 12}},
    {"IdentityOfSequence",
     "(float[1,2] x) => (float[1,2] y) { s = SequenceConstruct(x) t = Identity(s) y = ConcatFromSequence<axis = 0>(t) "
     "}",
     {0, 1}},
    {"OptionalWithValue",
     "(float[1,2] x) => (float[1,2] y) { o = Optional(x) h = OptionalHasElement(o) g = OptionalGetElement(o) "
     "f = Cast<to = 1>(h) y = Mul(g, f) }",
     {0, 1}},
    {"NonZeroOfMask",
     "(float[1,4] x) => (float[1,2] y) { m = Constant<value = bool[4] {0, 1, 0, 1}>() n = NonZero(m) " INTS(
         "z", "0") "i = Squeeze(n, z) y = Gather<axis = 1>(x, i) }",
     {1, 3}},
    {"NonZeroOfExpanded",
     "(float[1,4] x) => (float[1,4] y) { " INTS("v", "0, 1")
         INTS("s", "2, 2") "e = Expand(v, s) n = NonZero(e) "
                           "f = Cast<to = 1>(n) " INTS("t", "1, 4") "r = Reshape(f, t) y = Mul(x, r) }",
     {0, 1, 2, 3}},
    {"CompressColumns",
     "(float[1,4] x) => (float[1,2] y) { m = Constant<value = bool[3] {1, 0, 1}>() y = Compress<axis = 1>(x, m) }",
     {0, 2}},
    {"BitwiseOfConstants",
     "(float[1,3] x) => (float[1,3] y) { " INTS("a", "6, 5, -1")
         INTS("b", "3") "c = BitwiseAnd(a, b) d = "
                        "BitwiseXor(c, b) e = BitwiseOr(d, b) n = BitwiseNot(e) f = Cast<to = 1>(n) y = Mul(x, f) }",
     {0, -4, -8}},
    {"BitwiseAndOfComputedNumbers",
     "(float[1,3] x) => (float[1,3] y) { " INTS("b", "2") "h = Constant<value = float {0.5}>() s = Add(x, h) i = "
                                                          "Cast<to = 7>(s) c = BitwiseAnd(i, b) f = Cast<to = 1>(c) "
                                                          "y = Add(x, f) }",
     {0, 1, 4}},
    {"ModTruncating",
     "(float[1,2] x) => (float[1,2] y) { " INTS("a", "-5, 5") INTS("b", "3, -3") "m = Mod<fmod = 1>(a, b) "
                                                                                 "f = Cast<to = 1>(m) y = Mul(x, f) }",
     {-2, 4},
     1},
    {"ShapeArithmetic",
     "(float[1,2,6] x) => (float[1,12] y) { s = Shape(x) " INT("i", "0") INTS("z", "0") INTS(
         "m",
         "-1") "b = Gather(s, i) u = Unsqueeze(b, z) p = ReduceProd<keepdims = 0>(s) q = Div(p, b) r = Unsqueeze(q, z) "
               "h = Max(r, m) t = Concat<axis = 0>(u, h) y = Reshape(x, t) }",
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"ReverseSequence",
     "(float[2,3] x) => (float[2,3] y) { " INTS("n",
                                                "2, 3") "y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, n) }",
     {1, 0, 2, 5, 4, 3}},
    {"ReverseSequenceTimeFirst",
     "(float[3,2] x) => (float[3,2] y) { " INTS("n", "2, 3") "y = ReverseSequence(x, n) }",
     {2, 5, 0, 3, 4, 1}},
};

class Sequences : public testing::TestWithParam<TextCase> {};

TEST_P(Sequences, AreRight) { checkText(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Sequences, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

struct FaultCase {
  const char *name, *text, *message;
};
std::ostream &operator<<(std::ostream &out, const FaultCase &faultCase) { return out << faultCase.name; }

const FaultCase faults[] = {
    {"OutOfRange",
     "(float[1,3] x) => (float[1,1] y) { s = SplitToSequence<axis = 1>(x) " INT("i", "3") "y = SequenceAt(s, i) }",
     "inputs sequence of 3, i64[]: position 3 is outside a sequence of 3"},
    {"ComputedPosition",
     "(int64[1] x) => (int64[1] y) { s = SplitToSequence<axis = 0, keepdims = 1>(x) y = SequenceAt(s, x) }",
     "the position (input 1) must be known when compiling"},
    {"TensorForSequence", "(float[1,3] x) => (float[1,3] y) { y = ConcatFromSequence<axis = 0>(x) }",
     "input 0 is no sequence"},
    {"SequenceForTensor", "(float[1,3] x) => (float[1,3] y) { s = SequenceConstruct(x) t = Identity(s) y = Neg(t) }",
     "input 0 is a sequence instead of a tensor"},
    {"SequenceAsOutput", "(float[1,3] x) => (float[1,3] y) { y = SequenceConstruct(x) }",
     "nothing computes the output 'y' as a tensor"},
    {"NonZeroOfData", "(float[1,3] x) => (int64[2,N] y) { y = NonZero(x) }",
     "must be known when compiling, but depends on the model's inputs"},
    {"EmptyOptional",
     "(float[1,3] x) => (float[1,3] y) { o = Optional<type: type_proto = float[1]>() y = OptionalGetElement(o) }",
     "its optional is empty"},
};

class SequenceFaults : public testing::TestWithParam<FaultCase> {};

TEST_P(SequenceFaults, NameTheNode) {
  llvm::Expected<ImportedModel> imported = importText(GetParam().text);
  ASSERT_FALSE(static_cast<bool>(imported));
  EXPECT_NE(llvm::toString(imported.takeError()).find(GetParam().message), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, SequenceFaults, testing::ValuesIn(faults),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc

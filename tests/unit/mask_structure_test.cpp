// Masks that hide keys by their distance or by a condition are recognised from how they are made, at every length, and
// the results do not change.
#include "ir/ops/attention.h"
#include "tests/unit/graph_under_test.h"

#include <functional>

namespace fsdpc {
namespace {

constexpr int64_t batch = 2, heads = 3, width = 4;
constexpr double infinity = std::numeric_limits<double>::infinity(), least = std::numeric_limits<float>::lowest();

/// Parts of masks over [batch, heads, length, length].
struct MaskBuilder {
  Graph &g;
  int64_t length;

  Builder &b() { return g.b; }
  Shape scores() const { return {batch, heads, length, length}; }
  /// start, start + 1, ... as an axis of [batch, heads, length, length], the others 1.
  Value *range(int64_t axis, double start = 0, DType dtype = DType::i64) {
    Value *flat = g.b.create(Op::iota, {}, IotaAttributes{dtype, {length}, 0, start, 1})->result();
    Shape shape(4, 1);
    shape[axis] = length;
    return g.b.reshape(flat, shape);
  }
  Value *wide(Value *value) { return g.b.broadcast(value, {1, 1, length, length}); }
  Value *queries() { return wide(range(2)); }
  Value *keys() { return wide(range(3)); }
  Value *plus(Value *value, double number) { return g.b.add(value, g.number(value, number)); }
  Value *binary(Op op, Value *a, Value *c) { return g.b.binary(op, a, c); }
  Value *negated(Value *value) { return g.b.unary(Op::logicalNot, value); }
  Value *causal() { return binary(Op::lessEqual, keys(), queries()); }
  /// The query and the `window` - 1 keys before it.
  Value *near(double window) { return binary(Op::less, queries(), plus(keys(), window)); }
  Value *number(Value *condition, double yes, double no) {
    Type type = condition->type().withDType(DType::f32);
    return g.b.select(condition, g.b.constant(type, yes), g.b.constant(type, no));
  }
  Value *padding() { return g.input("padding", {batch, length}, DType::boolean); }
  /// The document of each position [batch, length].
  Value *documents() { return g.input("documents", {batch, length}, DType::i64); }
  Value *ofQueries(Value *flat) { return g.b.reshape(flat, {flat->type().dim(0), 1, length, 1}); }
  Value *ofKeys(Value *flat) { return g.b.reshape(flat, {flat->type().dim(0), 1, 1, length}); }
  /// Equal numbers for query and key.
  Value *same(Value *flat) { return binary(Op::equal, all(ofQueries(flat)), all(ofKeys(flat))); }
  Value *paddingOfKeys() { return g.b.reshape(padding(), {batch, 1, 1, length}); }
  Value *add(Value *scores, Value *mask) { return g.b.add(scores, g.b.broadcast(mask, scores->type().shape())); }
  Value *all(Value *mask) { return g.b.broadcast(mask, {batch, 1, length, length}); }
};

using MakeMask = std::function<Value *(MaskBuilder &, Value *scores)>;

void attend(Graph &g, int64_t length, const MakeMask &mask) {
  Builder &b = g.b;
  auto input = [&](const char *name) { return g.input(name, {batch, heads, length, width}); };
  Value *scores = b.matmul(input("q"), input("k"), false, true);
  MaskBuilder masks{g, length};
  Value *masked = mask(masks, b.mul(scores, g.number(scores, 0.4)));
  Value *p = b.create(Op::softmax, {masked}, AxisAttributes{3})->result();
  g.result(b.matmul(p, input("v")));
}

struct Expected {
  bool causal = false;
  int64_t window = 0;
  Shape mask = {}; ///< of the operand; empty: none. `length` stands for the length.
  double hidden = -infinity;
  bool masksHidden = false;
  Shape documents = {}; ///< as `mask`
  Shape secondMask = {};
};
constexpr int64_t length = -1;

void expect(const Graph &g, const Expected &expected, int64_t size) {
  Node *attention = g.only(Op::attention);
  ASSERT_TRUE(attention);
  const auto &attributes = attention->get<AttentionAttributes>();
  EXPECT_EQ(attributes.causal, expected.causal);
  EXPECT_EQ(attributes.window, expected.window);
  EXPECT_EQ(attributes.hidden, expected.hidden);
  EXPECT_EQ(attributes.masksHidden, expected.masksHidden);
  const auto expectShape = [&](std::optional<unsigned> operand, const Shape &of) {
    Shape wanted;
    for (int64_t dim : of)
      wanted.push_back(dim == length ? size : dim);
    EXPECT_EQ(operand ? Shape(attention->operand(*operand)->type().shape()) : Shape(), wanted) << toText(g.module);
  };
  const AttentionExtras extras(*attention);
  const auto maskAt = [&](size_t i) { return i < extras.masks.size() ? std::optional(extras.masks[i]) : std::nullopt; };
  expectShape(maskAt(0), expected.mask);
  expectShape(maskAt(1), expected.secondMask);
  expectShape(extras.documents, expected.documents);
}

/// At a length where results can be compared, by elements and by form, and at one where no mask could be stored.
void check(const Expected &expected, const MakeMask &mask) {
  for (bool folds : {false, true}) {
    Graph g;
    attend(g, 9, mask);
    g.run(folds ? std::initializer_list<const Pass *>{&foldConstants, &canonicalize, &recognizePatterns, &eliminateDead}
                : std::initializer_list<const Pass *>{&recognizePatterns, &eliminateDead});
    SCOPED_TRACE(folds ? "folded" : "as formula");
    expect(g, expected, 9);
  }
  constexpr int64_t large = 131072;
  Graph g;
  attend(g, large, mask);
  g.runBlindly({&foldConstants, &canonicalize, &eliminateCommon, &recognizePatterns, &canonicalize, &eliminateDead});
  expect(g, expected, large);
  for (const Node *node : g.function)
    for (unsigned i = 0; i < node->resultCount(); ++i)
      EXPECT_LT(node->result(i)->type().elements(), large * large) << toText(g.module);
}

TEST(MaskStructure, ComparisonsOfRangesAreCausal) {
  check({.causal = true},
        [](MaskBuilder &m, Value *scores) { return m.add(scores, m.number(m.causal(), 0, -infinity)); });
  check({.causal = true}, [](MaskBuilder &m, Value *scores) {
    return m.add(scores, m.number(m.binary(Op::less, m.queries(), m.keys()), -1e4, 0));
  });
  check({.causal = true}, [](MaskBuilder &m, Value *scores) {
    Value *isHidden = m.negated(m.binary(Op::less, m.keys(), m.plus(m.queries(), 1)));
    return m.b().select(m.b().broadcast(isHidden, m.scores()), m.g.number(scores, -1e9), scores);
  });
  check({.causal = true}, [](MaskBuilder &m, Value *scores) { // on differences, in floats, from shifted ranges
    Value *distance = m.binary(Op::sub, m.wide(m.range(3, 5, DType::f32)), m.wide(m.range(2, 5, DType::f32)));
    return m.add(scores, m.number(m.binary(Op::lessEqual, distance, m.g.number(distance, 0)), 0, least));
  });
}

TEST(MaskStructure, OneMinusAMaskTimesANumber) {
  check({.causal = true}, [](MaskBuilder &m, Value *scores) {
    Value *seen = m.b().cast(m.causal(), DType::f32);
    Value *hidden = m.b().sub(m.g.number(seen, 1), seen);
    return m.add(scores, m.b().mul(hidden, m.g.number(hidden, -1e4)));
  });
  check({.causal = true}, [](MaskBuilder &m, Value *scores) { // triu of a filled matrix, times a comparison
    Value *upper = m.number(m.binary(Op::lessEqual, m.plus(m.queries(), 1), m.keys()), least, 0);
    Value *later = m.b().cast(m.binary(Op::less, m.queries(), m.keys()), DType::f32);
    return m.add(scores, m.b().mul(upper, later));
  });
}

TEST(MaskStructure, WindowsAreAnAttribute) {
  check({.causal = true, .window = 4}, [](MaskBuilder &m, Value *scores) {
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.causal(), m.near(4)), 0, -infinity));
  });
  check({.causal = true, .window = 4}, [](MaskBuilder &m, Value *scores) { // what is hidden, joined by or
    Value *after = m.binary(Op::less, m.queries(), m.keys());
    Value *before = m.binary(Op::lessEqual, m.keys(), m.plus(m.queries(), -4));
    return m.add(scores, m.number(m.binary(Op::logicalOr, after, before), least, 0));
  });
  check({.causal = true, .window = 4}, [](MaskBuilder &m, Value *scores) { // two masks
    return m.add(m.add(scores, m.number(m.near(4), 0, -1e9)), m.number(m.causal(), 0, -1e9));
  });
  check({.window = 3}, [](MaskBuilder &m, Value *scores) {
    Value *after = m.binary(Op::less, m.keys(), m.plus(m.queries(), 3));
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.near(3), after), 0, -infinity));
  });
}

TEST(MaskStructure, PaddingOfKeysIsAnOperandOfTheirSize) {
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = least}, [](MaskBuilder &m, Value *scores) {
    Value *seen = m.binary(Op::logicalAnd, m.all(m.paddingOfKeys()), m.all(m.causal()));
    return m.add(scores, m.number(seen, 0, least));
  });
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = least}, [](MaskBuilder &m, Value *scores) {
    Value *mask = m.all(m.number(m.causal(), 0, least)); // filled again where there is padding
    Value *isPadding = m.all(m.negated(m.paddingOfKeys()));
    return m.add(scores, m.b().select(isPadding, m.g.number(mask, least), mask));
  });
  check({.mask = {batch, 1, 1, length}},
        [](MaskBuilder &m, Value *scores) { return m.add(scores, m.number(m.all(m.paddingOfKeys()), 0, -1e4)); });
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = -1e9}, [](MaskBuilder &m, Value *scores) {
    Value *integers = m.b().cast(m.paddingOfKeys(), DType::i64); // compared where it is wide already
    Value *isPadding = m.binary(Op::equal, m.all(integers), m.g.number(m.all(integers), 0));
    Value *both = m.binary(Op::logicalOr, isPadding, m.all(m.negated(m.causal())));
    return m.add(scores, m.number(both, -1e9, 0));
  });
}

TEST(MaskStructure, PaddingIsFoundThroughGathersAlongRanges) {
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = least}, [](MaskBuilder &m, Value *scores) {
    Shape shape = {batch, 1, m.length, m.length, 1};
    Value *samples = m.b().create(Op::iota, {}, IotaAttributes{DType::i64, {batch, 1, 1, 1, 1}, 0, 0, 1})->result();
    Value *keys = m.b().reshape(m.range(3), {1, 1, 1, m.length, 1});
    Value *indices =
        m.b()
            .create(Op::concat, {m.b().broadcast(samples, shape), m.b().broadcast(keys, shape)}, AxisAttributes{4})
            ->result();
    Value *picked = m.b().create(Op::gatherNd, {m.padding(), indices}, GatherNdAttributes{})->result();
    Value *seen = m.binary(Op::logicalAnd, picked, m.all(m.causal()));
    return m.add(scores, m.number(seen, 0, least));
  });
  check({.mask = {batch, 1, 1, length}}, [](MaskBuilder &m, Value *scores) {
    Value *flat = m.b().reshape(m.range(3), {m.length});
    Value *picked = m.b().create(Op::gather, {m.padding(), flat}, AxisAttributes{1})->result();
    return m.add(scores, m.number(m.all(m.b().reshape(picked, {batch, 1, 1, m.length})), 0, least));
  });
}

TEST(MaskStructure, DocumentsOfAPlainRangeOfPositionsHideNothing) {
  check({.causal = true}, [](MaskBuilder &m, Value *scores) { // a new document where a position is not the next one
    Value *positions = m.b().reshape(m.range(3), {1, m.length});
    auto slice = [&](int64_t start) {
      return m.b().create(Op::slice, {positions}, SliceAttributes{{0, start}, {1, m.length - 1}, {1, 1}})->result();
    };
    Value *steps = m.b().sub(slice(1), slice(0));
    Value *begins = m.b().cast(m.negated(m.binary(Op::equal, steps, m.g.number(steps, 1))), DType::i64);
    Value *zero = m.b().constant(Type(DType::i64, {1, 1}), 0);
    Value *padded = m.b().create(Op::concat, {zero, begins}, AxisAttributes{1})->result();
    Value *documents = m.b().create(Op::cumulativeSum, {padded}, CumulativeSumAttributes{1})->result();
    Value *same = m.binary(Op::equal, m.wide(m.b().reshape(documents, {1, 1, m.length, 1})),
                           m.wide(m.b().reshape(documents, {1, 1, 1, m.length})));
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.causal(), same), 0, -infinity));
  });
}

TEST(MaskStructure, DocumentsAreAnOperandOfTheKeysSize) {
  const Expected causal{.causal = true, .documents = {batch, length}};
  check(causal, [](MaskBuilder &m, Value *scores) {
    Value *seen = m.binary(Op::logicalAnd, m.all(m.causal()), m.same(m.documents()));
    return m.add(scores, m.number(seen, 0, -infinity));
  });
  check({.documents = {batch, length}}, [](MaskBuilder &m, Value *scores) { // one minus a mask, times a number
    Value *seen = m.b().cast(m.same(m.documents()), DType::f32);
    Value *hidden = m.b().sub(m.g.number(seen, 1), seen);
    return m.add(scores, m.b().mul(hidden, m.g.number(hidden, -1e9)));
  });
  check(causal, [](MaskBuilder &m, Value *scores) { // what is hidden, joined by or, filled
    Value *after = m.negated(m.causal());
    Value *other = m.negated(m.same(m.b().cast(m.documents(), DType::i32)));
    Value *hidden = m.b().broadcast(m.binary(Op::logicalOr, m.all(after), other), m.scores());
    return m.b().select(hidden, m.g.number(scores, least), scores);
  });
  check(causal, [](MaskBuilder &m, Value *scores) { // two masks
    return m.add(m.add(scores, m.number(m.same(m.documents()), 0, -1e9)), m.number(m.causal(), 0, -1e9));
  });
  check({.causal = true, .window = 4, .documents = {batch, length}}, [](MaskBuilder &m, Value *scores) {
    Value *band = m.binary(Op::logicalAnd, m.causal(), m.near(4));
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.same(m.documents()), m.all(band)), 0, least));
  });
}

TEST(MaskStructure, DocumentsMayBeComputedWhereTheyAreCompared) {
  const Expected causal{.causal = true, .documents = {batch, length}};
  check(causal, [](MaskBuilder &m, Value *scores) { // cast and shifted after they were made wide
    Value *flat = m.documents();
    auto shifted = [&](Value *x) { return m.plus(m.b().cast(x, DType::i32), 5); };
    Value *same = m.binary(Op::equal, shifted(m.all(m.ofKeys(flat))), shifted(m.all(m.ofQueries(flat))));
    return m.add(scores, m.number(m.binary(Op::logicalAnd, same, m.all(m.causal())), 0, -infinity));
  });
  check(causal, [](MaskBuilder &m, Value *scores) { // counted where a position is not the next one
    Value *positions = m.g.input("positions", {batch, m.length}, DType::i64);
    auto slice = [&](int64_t start) {
      return m.b().create(Op::slice, {positions}, SliceAttributes{{0, start}, {batch, m.length - 1}, {1, 1}})->result();
    };
    Value *steps = m.b().sub(slice(1), slice(0));
    Value *begins = m.b().cast(m.negated(m.binary(Op::equal, steps, m.g.number(steps, 1))), DType::i64);
    Value *zero = m.b().constant(Type(DType::i64, {batch, 1}), 0);
    Value *padded = m.b().create(Op::concat, {zero, begins}, AxisAttributes{1})->result();
    Value *documents = m.b().create(Op::cumulativeSum, {padded}, CumulativeSumAttributes{1})->result();
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.same(documents), m.all(m.causal())), 0, -infinity));
  });
  check(causal, [](MaskBuilder &m, Value *scores) { // picked along ranges
    Value *documents = m.documents();
    Value *samples = m.b().create(Op::iota, {}, IotaAttributes{DType::i64, {batch, 1, 1, 1, 1}, 0, 0, 1})->result();
    auto picked = [&](int64_t axis) {
      Shape shape = {batch, 1, m.length, m.length, 1}, ofRange(5, 1);
      ofRange[axis] = m.length;
      Value *range = m.b().broadcast(m.b().reshape(m.range(axis), ofRange), shape);
      Value *both = m.b().create(Op::concat, {m.b().broadcast(samples, shape), range}, AxisAttributes{4})->result();
      return m.b().create(Op::gatherNd, {documents, both}, GatherNdAttributes{})->result();
    };
    Value *same = m.binary(Op::equal, picked(2), picked(3));
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.all(m.causal()), same), 0, -infinity));
  });
}

/// Documents that begin where a position is not `step` more than the one before.
Value *documentsOfPositions(MaskBuilder &m, Value *positions, double step = 1) {
  auto slice = [&](Value *of, int64_t start, int64_t size) {
    return m.b().create(Op::slice, {of}, SliceAttributes{{0, start}, {batch, size}, {1, 1}})->result();
  };
  Value *before = m.plus(slice(positions, 0, 1), -1);
  Value *longer = m.b().create(Op::concat, {before, positions}, AxisAttributes{1})->result();
  Value *steps = m.b().sub(slice(longer, 1, m.length), slice(longer, 0, m.length));
  Value *begins = m.b().cast(m.negated(m.binary(Op::equal, steps, m.g.number(steps, step))), DType::i64);
  return m.b().create(Op::cumulativeSum, {begins}, CumulativeSumAttributes{1})->result();
}

TEST(MaskStructure, PositionsOfPackedSamplesAreComparedAsIndices) {
  for (const bool hasWindow : {false, true})
    check({.causal = true, .window = hasWindow ? 4 : 0, .documents = {batch, length}},
          [hasWindow](MaskBuilder &m, Value *scores) {
            Value *positions = m.g.input("positions", {batch, m.length}, DType::i64);
            Value *queries = m.all(m.ofQueries(positions)), *keys = m.all(m.ofKeys(positions));
            Value *seen = m.binary(Op::lessEqual, keys, queries);
            if (hasWindow)
              seen = m.binary(Op::logicalAnd, seen, m.binary(Op::less, m.plus(queries, -4), keys));
            seen = m.binary(Op::logicalAnd, seen, m.same(documentsOfPositions(m, positions)));
            return m.add(scores, m.number(seen, 0, -infinity));
          });
}

TEST(MaskStructure, BlocksOfPositionsAreDocuments) {
  Graph g;
  attend(g, 9, [](MaskBuilder &m, Value *scores) {
    auto blocks = [&](Value *x) { return m.binary(Op::div, x, m.g.number(x, 4)); };
    return m.add(scores, m.number(m.binary(Op::equal, blocks(m.keys()), blocks(m.queries())), 0, -infinity));
  });
  g.run({&recognizePatterns, &eliminateDead});
  expect(g, {.documents = {1, length}}, 9);
}

TEST(MaskStructure, DocumentsAndPaddingOfKeysAreAnOperandEach) {
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = -1e9, .documents = {batch, length}},
        [](MaskBuilder &m, Value *scores) {
          Value *seen = m.binary(Op::logicalAnd, m.same(m.documents()), m.all(m.causal()));
          seen = m.binary(Op::logicalAnd, seen, m.all(m.paddingOfKeys()));
          return m.add(scores, m.number(seen, 0, -1e9));
        });
}

TEST(MaskStructure, OneRowOfDocumentsServesAllSamples) {
  check({.documents = {1, length}}, [](MaskBuilder &m, Value *scores) {
    Value *shared = m.g.input("shared", {m.length, 1}, DType::i64);
    return m.add(scores, m.number(m.same(m.b().reshape(shared, {1, m.length})), 0, -infinity));
  });
}

TEST(MaskStructure, OneNumberForAllPositionsIsNoDocument) {
  check({.mask = {batch, 1, 1, 1}}, [](MaskBuilder &m, Value *scores) {
    Value *repeated = m.b().broadcast(m.g.input("one", {batch, 1}, DType::i64), {batch, m.length});
    return m.add(scores, m.number(m.same(repeated), 0, -1e9));
  });
}

TEST(MaskStructure, LengthsOfSamplesAreAnOperandOfTheKeysSize) {
  check({.mask = {batch, 1, 1, length}}, [](MaskBuilder &m, Value *scores) {
    Value *ends = m.b().cast(m.g.input("lengths", {batch, 1, 1, 1}), DType::i64);
    Value *seen = m.binary(Op::lessEqual, m.all(ends), m.all(m.range(3)));
    return m.add(scores, m.number(seen, 0, -1e9));
  });
}

TEST(MaskStructure, ASumOfMasksIsTakenApart) {
  check({.causal = true, .mask = {batch, 1, 1, length}, .hidden = -1e9, .masksHidden = true},
        [](MaskBuilder &m, Value *scores) {
          Value *sum = m.b().add(m.all(m.number(m.causal(), 0, -1e9)), m.all(m.number(m.paddingOfKeys(), 0, -1e9)));
          return m.add(scores, sum);
        });
}

TEST(MaskStructure, IndicesThatWrapAroundAreNoRange) {
  Graph g;
  attend(g, 9, [](MaskBuilder &m, Value *scores) { // positions 2, 1, 0, 8, 7, ... of the keys
    Value *indices = m.b().create(Op::iota, {}, IotaAttributes{DType::i64, {9}, 0, 2, -1})->result();
    Value *positions = m.b().create(Op::iota, {}, IotaAttributes{DType::i64, {9}, 0, 0, 1})->result();
    Value *picked = m.b().create(Op::gather, {positions, indices}, AxisAttributes{0})->result();
    Value *wrapped = m.b().sub(m.g.number(picked, 2), picked); // would be 0, 1, 2, ...
    return m.add(scores,
                 m.number(m.binary(Op::lessEqual, m.wide(m.b().reshape(wrapped, {1, 1, 1, 9})), m.queries()), 0, -1e9));
  });
  g.run({&recognizePatterns, &eliminateDead});
  EXPECT_FALSE(g.only(Op::attention)->get<AttentionAttributes>().causal);
}

TEST(MaskStructure, SumsOfRowsAndColumnsAreTwoOperands) {
  check({.mask = {batch, 1, 1, length}, .secondMask = {batch, 1, length, 1}}, [](MaskBuilder &m, Value *scores) {
    Value *padding = m.padding();
    return m.add(m.add(scores, m.number(m.ofQueries(padding), 0.5, -0.25)), m.number(m.ofKeys(padding), 0, -1e4));
  });
  check({.causal = true, .mask = {batch, 1, 1, length}, .secondMask = {batch, 1, length, 1}},
        [](MaskBuilder &m, Value *scores) {
          Value *padding = m.padding(), *ofKeys = m.number(m.ofKeys(padding), 0, -1e4);
          Value *sum = m.b().add(m.all(m.number(m.ofQueries(padding), 0.5, -0.25)), m.all(ofKeys));
          return m.add(m.add(m.add(scores, sum), ofKeys), m.number(m.causal(), 0, -infinity));
        });
}

/// Stays an operand of the shape of the scores, as it is.
void staysWhole(const MakeMask &mask, int64_t size = 9) {
  Graph g;
  attend(g, size, mask);
  g.run({&recognizePatterns, &eliminateDead});
  Node *attention = g.only(Op::attention);
  ASSERT_TRUE(attention);
  EXPECT_FALSE(attention->get<AttentionAttributes>().causal);
  EXPECT_EQ(attention->get<AttentionAttributes>().window, 0);
  ASSERT_EQ(attention->operandCount(), 4u);
  EXPECT_EQ(attention->operand(3)->type().shape().take_back(2), llvm::ArrayRef<int64_t>({size, size}));
}

TEST(MaskStructure, OtherMasksAreNotTakenForOneOfThese) {
  staysWhole([](MaskBuilder &m, Value *scores) { // a penalty for distance
    Value *distance = m.b().cast(m.binary(Op::sub, m.keys(), m.queries()), DType::f32);
    return m.add(scores, m.b().mul(distance, m.g.number(distance, 0.25)));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // the diagonal hidden
    return m.add(scores, m.number(m.binary(Op::equal, m.keys(), m.queries()), -1e9, 0));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // shifted by one
    return m.add(scores, m.number(m.binary(Op::less, m.keys(), m.plus(m.queries(), 2)), 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // too little to hide
    return m.add(scores, m.number(m.causal(), 0, -5));
  });
  staysWhole(
      [](MaskBuilder &m, Value *scores) { // positions that bfloat16 rounds
        Value *keys = m.b().cast(m.keys(), DType::bf16), *queries = m.b().cast(m.queries(), DType::bf16);
        return m.add(scores, m.number(m.binary(Op::lessEqual, keys, queries), 0, -1e9));
      },
      300);
  staysWhole([](MaskBuilder &m, Value *scores) { // causal or not padding
    Value *seen = m.binary(Op::logicalOr, m.all(m.causal()), m.all(m.paddingOfKeys()));
    return m.add(scores, m.number(seen, 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // queries and keys both padded
    Value *padding = m.padding();
    Value *ofQueries = m.b().reshape(padding, {batch, 1, m.length, 1});
    Value *ofKeys = m.b().reshape(padding, {batch, 1, 1, m.length});
    return m.add(scores, m.number(m.binary(Op::logicalAnd, m.all(ofQueries), m.all(ofKeys)), 0, -1e9));
  });
}

TEST(MaskStructure, OtherComparisonsAreNoDocuments) {
  staysWhole([](MaskBuilder &m, Value *scores) { // of different values
    Value *other = m.g.input("other", {batch, m.length}, DType::i64);
    Value *same = m.binary(Op::equal, m.all(m.ofQueries(m.documents())), m.all(m.ofKeys(other)));
    return m.add(scores, m.number(same, 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // of the same value, moved on one side
    Value *flat = m.documents();
    Value *same = m.binary(Op::equal, m.all(m.ofQueries(m.plus(flat, 1))), m.all(m.ofKeys(flat)));
    return m.add(scores, m.number(same, 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // or causal
    Value *seen = m.binary(Op::logicalOr, m.same(m.documents()), m.all(m.causal()));
    return m.add(scores, m.number(seen, 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // only other documents seen
    return m.add(scores, m.number(m.same(m.documents()), -1e9, 0));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // positions in any order
    Value *positions = m.g.input("positions", {batch, m.length}, DType::i64);
    Value *seen = m.binary(Op::lessEqual, m.all(m.ofKeys(positions)), m.all(m.ofQueries(positions)));
    return m.add(scores, m.number(seen, 0, -1e9));
  });
  for (const bool ofOthers : {false, true})
    staysWhole([ofOthers](MaskBuilder &m, Value *scores) { // documents that do not begin where these positions do
      Value *positions = m.g.input("positions", {batch, m.length}, DType::i64);
      Value *documents = ofOthers ? documentsOfPositions(m, m.g.input("others", {batch, m.length}, DType::i64))
                                  : documentsOfPositions(m, positions, 2);
      Value *seen = m.binary(Op::lessEqual, m.all(m.ofKeys(positions)), m.all(m.ofQueries(positions)));
      return m.add(scores, m.number(m.binary(Op::logicalAnd, seen, m.same(documents)), 0, -1e9));
    });
  staysWhole([](MaskBuilder &m, Value *scores) { // two kinds of documents
    Value *both =
        m.binary(Op::logicalAnd, m.same(m.documents()), m.same(m.g.input("other", {batch, m.length}, DType::i64)));
    return m.add(scores, m.number(both, 0, -1e9));
  });
  staysWhole([](MaskBuilder &m, Value *scores) { // a document for each head
    Value *ids = m.g.input("ids", {batch, heads, m.length}, DType::i64);
    Value *same = m.binary(Op::equal, m.b().broadcast(m.b().reshape(ids, {batch, heads, m.length, 1}), m.scores()),
                           m.b().broadcast(m.b().reshape(ids, {batch, heads, 1, m.length}), m.scores()));
    return m.add(scores, m.number(same, 0, -1e9));
  });
}

TEST(MaskStructure, CappedScoresAreRecognized) {
  check({.causal = true, .window = 4}, [](MaskBuilder &m, Value *scores) {
    Value *bounded = m.b().unary(Op::tanh, m.b().div(scores, m.g.number(scores, 1.5)));
    Value *seen = m.binary(Op::logicalAnd, m.causal(), m.near(4));
    return m.add(m.b().mul(bounded, m.g.number(bounded, 1.5)), m.number(seen, 0, least));
  });
}

} // namespace
} // namespace fsdpc

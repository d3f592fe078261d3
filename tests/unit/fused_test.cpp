// fused and random_uniform.
#include "tests/unit/gradient_check.h"

#include "ir/ops/philox.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

namespace fsdpc {
namespace {

using Results = llvm::SmallVector<Value *, 4>;
using Step = Expression::Step;

Step stepOf(Op op, DType dtype, std::initializer_list<int32_t> arguments,
            std::initializer_list<int64_t> immediates = {}, double literal = 0) {
  return {op, dtype, arguments, immediates, literal};
}

HostTensor scalarOf(int64_t value) { return tensorOf(Type(DType::i64, {}), {static_cast<double>(value)}); }

std::vector<HostTensor> runFused(const std::vector<HostTensor> &inputs, const FusedAttributes &attributes) {
  return valuesOf(inputs, [&](Builder &b, llvm::ArrayRef<Value *> x) {
    Node *node = b.create(Op::fused, x, attributes);
    Results results;
    for (unsigned i = 0; i < node->resultCount(); ++i)
      results.push_back(node->result(i));
    return results;
  });
}

OP_TEST(fused, BroadcastsItsOperandsAndYieldsSeveralResults) {
  // (a + b, relu(a + b) * 2)
  FusedAttributes attributes{{2, 3},
                             {2,
                              {stepOf(Op::add, DType::f32, {0, 1}), stepOf(Op::relu, DType::f32, {2}),
                               stepOf(Op::constant, DType::f32, {}, {}, 2), stepOf(Op::mul, DType::f32, {3, 4})},
                              {2, 5}}};
  std::vector<HostTensor> found =
      runFused({tensorOf(Type(DType::f32, {2, 1}), {-10, 10}), tensorOf(Type(DType::f32, {3}), {1, 2, 3})}, attributes);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].values, (std::vector<double>{-9, -8, -7, 11, 12, 13}));
  EXPECT_EQ(found[1].values, (std::vector<double>{0, 0, 0, 22, 24, 26}));
}

OP_TEST(fused, ComputesWhatItsOpsComputeAlone) {
  BuildFunction separate = [](Builder &b, llvm::ArrayRef<Value *> x) {
    Value *isLess = b.binary(Op::less, x[0], x[1]);
    return Results{b.cast(b.select(isLess, b.unary(Op::gelu, x[0]), b.div(x[0], x[1])), DType::bf16)};
  };
  Type type(DType::f32, {2, 2});
  FusedAttributes attributes{{2, 2},
                             {2,
                              {stepOf(Op::less, DType::boolean, {0, 1}), stepOf(Op::gelu, DType::f32, {0}),
                               stepOf(Op::div, DType::f32, {0, 1}), stepOf(Op::select, DType::f32, {2, 3, 4}),
                               stepOf(Op::cast, DType::bf16, {5})},
                              {6}}};
  std::vector<HostTensor> inputs = {tensorOf(type, {1, 2, 3, 4}), tensorOf(type, {4, 3, 2, 1})};
  std::vector<HostTensor> found = runFused(inputs, attributes);
  EXPECT_EQ(found[0].values, valuesOf(inputs, separate)[0].values);
  EXPECT_EQ(found[0].type, Type(DType::bf16, {2, 2}));
}

OP_TEST(fused, DrawsTheRandomNumbersOfRandomUniform) {
  RandomUniformAttributes random{7, 1, {2, 3}};
  FusedAttributes attributes{{2, 3}, {2, {stepOf(Op::randomUniform, DType::f32, {0, 1}, {7, 1})}, {2}}};
  std::vector<HostTensor> seeds = {scalarOf(5), scalarOf(6)};
  std::vector<HostTensor> alone = valuesOf(seeds, [&](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.create(Op::randomUniform, x, random)->result()};
  });
  EXPECT_EQ(runFused(seeds, attributes)[0].values, alone[0].values);
}

TEST(Fused, ItsShapeRuleChecksTheBody) {
  Type x(DType::f32, {3});
  FusedAttributes identity{{3}, {1, {}, {0}}};
  EXPECT_EQ(inferMessage(Op::fused, {x}, identity), "");
  EXPECT_EQ(inferMessage(Op::fused, {x, x}, identity), "fused: (C1) the body takes 1 operands, got 2");
  EXPECT_EQ(inferMessage(Op::fused, {Type(DType::f32, {2})}, identity), "fused: (C2) f32[2] does not broadcast to [3]");
  EXPECT_EQ(inferMessage(Op::fused, {x}, FusedAttributes{{3}, {1, {stepOf(Op::softmax, DType::f32, {0})}, {1}}}),
            "fused: (C3) a step cannot be softmax");
  EXPECT_EQ(inferMessage(Op::fused, {x}, FusedAttributes{{3}, {1, {stepOf(Op::neg, DType::f32, {1})}, {1}}}),
            "fused: (C3) a step uses value 1 before it exists");
  EXPECT_EQ(inferMessage(Op::fused, {x}, FusedAttributes{{3}, {1, {stepOf(Op::neg, DType::f64, {0})}, {1}}}),
            "fused: (C3) a step of neg has f32, not f64");
  EXPECT_EQ(inferMessage(Op::fused, {x}, FusedAttributes{{3}, {1, {stepOf(Op::add, DType::f32, {0})}, {1}}}),
            "add: (C0) takes 2 operands, got 1");
  EXPECT_EQ(inferMessage(Op::fused, {x}, FusedAttributes{{3}, {1, {}, {1}}}),
            "fused: (C4) value 1 is yielded but does not exist");
}

// ---- random_uniform

TEST(Philox, AgreesWithThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SplitmixAgreesWithThePublishedSequence) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

std::vector<double> randomValues(const RandomUniformAttributes &attributes, int64_t ranks, int64_t seed = 1,
                                 int64_t step = 2) {
  std::vector<std::vector<HostTensor>> inputs(ranks, {scalarOf(seed), scalarOf(step)});
  std::vector<double> all;
  for (const auto &results : valuesOnRanks(inputs, [&](Builder &b, llvm::ArrayRef<Value *> x) {
         return Results{b.create(Op::randomUniform, x, attributes)->result()};
       }))
    all.insert(all.end(), results[0].values.begin(), results[0].values.end());
  return all;
}

/// Rows of `size` elements, one after the other.
std::vector<double> slices(llvm::ArrayRef<double> values, size_t size, llvm::ArrayRef<size_t> rows) {
  std::vector<double> chosen;
  for (size_t row : rows)
    llvm::append_range(chosen, values.slice(row * size, size));
  return chosen;
}

OP_TEST(randomUniform, GivesASampleTheSameNumbersWhicheverRankHasIt) {
  EXPECT_EQ(randomValues({3, 0, {4, 5}}, 1), randomValues({3, 0, {2, 5}}, 2));
  EXPECT_EQ(randomValues({3, 0, {4, 5}}, 1), randomValues({3, 0, {1, 5}}, 4));
}

OP_TEST(randomUniform, GivesASampleTheSameNumbersWhereverTheBatchAxisLies) {
  std::vector<double> first = randomValues({3, 0, {2, 3}}, 1), last = randomValues({3, 1, {3, 2}}, 1);
  for (int64_t sample = 0; sample < 2; ++sample)
    for (int64_t element = 0; element < 3; ++element)
      EXPECT_EQ(first[sample * 3 + element], last[element * 2 + sample]);
}

OP_TEST(randomUniform, GivesASampleTheSameNumbersWhereNodesComputeOneSampleEach) {
  std::vector<double> whole = randomValues({3, 0, {4, 5}}, 2);
  std::vector<double> second = randomValues({3, 0, {1, 5}, /*firstSample=*/1, /*rankSamples=*/4}, 2);
  EXPECT_EQ(second, slices(whole, 5, {1, 5}));
  std::vector<double> third = randomValues({3, -1, {5}, /*firstSample=*/2, /*rankSamples=*/4}, 2);
  EXPECT_EQ(third, slices(whole, 5, {2, 6}));
}

OP_TEST(randomUniform, WithoutABatchAxisEachRankHasItsOwnNumbers) {
  std::vector<double> two = randomValues({3, -1, {4}}, 2);
  EXPECT_NE(std::vector<double>(two.begin(), two.begin() + 4), std::vector<double>(two.begin() + 4, two.end()));
}

OP_TEST(randomUniform, DependsOnSeedStepAndInstance) {
  std::vector<double> base = randomValues({3, 0, {4, 5}}, 1);
  EXPECT_NE(base, randomValues({4, 0, {4, 5}}, 1));
  EXPECT_NE(base, randomValues({3, 0, {4, 5}}, 1, 9));
  EXPECT_NE(base, randomValues({3, 0, {4, 5}}, 1, 1, 9));
}

OP_TEST(randomUniform, IsUniform) {
  std::vector<double> values = randomValues({0, 0, {100, 100}}, 1);
  double mean = 0, square = 0;
  for (double value : values) {
    EXPECT_TRUE(value >= 0 && value < 1);
    mean += value / 1e4;
    square += value * value / 1e4;
  }
  EXPECT_NEAR(mean, 0.5, 0.02);
  EXPECT_NEAR(square, 1.0 / 3, 0.02);
}

TEST(RandomUniform, ItsShapeRuleChecksSeedsAndBatchAxis) {
  Type seed(DType::i64, {});
  EXPECT_EQ(inferMessage(Op::randomUniform, {seed, Type(DType::f32, {})}, RandomUniformAttributes{0, 0, {2}}),
            "random_uniform: (C1) seed and step are i64[], not f32[]");
  EXPECT_EQ(inferMessage(Op::randomUniform, {seed, seed}, RandomUniformAttributes{0, 1, {2}}),
            "random_uniform: (C2) batch_axis 1 is outside rank 1");
  EXPECT_EQ(inferMessage(Op::randomUniform, {seed, seed}, RandomUniformAttributes{0, 0, {2}, -1}),
            "random_uniform: (C4) first_sample and rank_samples are from 0 to 2^31");
}

} // namespace
} // namespace fsdpc

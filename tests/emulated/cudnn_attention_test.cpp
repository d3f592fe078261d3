// Attention by the library's primitive against f64: cuDNN's on a real device (tests/gpu), and its stand-in on the
// emulated one. Both are created and called in the same way.
#include "tests/emulated/bfloat16_support.h"

#include <cstring>

namespace fsdpc::rt {
namespace {

AttentionCase caseOf(const AttentionShape &shape) {
  AttentionCase test = attentionCase(shape);
  for (auto *operand : {&test.q, &test.k, &test.v, &test.dO})
    *operand = asFloats(roundedToBfloat16(*operand));
  return test;
}

struct AttentionResults {
  std::vector<Bfloat16> o, dq, dk, dv;
  std::vector<float> lse;
  bool sameBits(const AttentionResults &other) const {
    const auto same = [](const auto &a, const auto &b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(o, other.o) && same(dq, other.dq) && same(dk, other.dk) && same(dv, other.dv) && same(lse, other.lse);
  }
};

/// The memory that cuDNN's derivative needs for these small cases is far below `plenty`.
AttentionResults resultsOf(const AttentionCase &test) {
  const AttentionShape &s = test.shape;
  CudnnAttention forward, backward;
  forward.create(contextOf(), CudnnAttention::Pass::forward, s, plenty);
  backward.create(contextOf(), CudnnAttention::Pass::backward, s, plenty);
  const ScratchBuffer scratch(plenty);
  const std::vector<Bfloat16> q = roundedToBfloat16(test.q), k = roundedToBfloat16(test.k),
                              v = roundedToBfloat16(test.v), dO = roundedToBfloat16(test.dO);
  const Bfloat16 unset(NAN);
  AttentionResults results{.o = std::vector(dO.size(), unset),
                           .dq = std::vector(q.size(), unset),
                           .dk = std::vector(k.size(), unset),
                           .dv = std::vector(v.size(), unset),
                           .lse = std::vector(static_cast<std::size_t>(s.batch * s.heads * s.queries), NAN)};
  forward(q.data(), k.data(), v.data(), results.o.data(), results.lse.data(), scratch.workspace());
  backward(dO.data(), q.data(), k.data(), v.data(), results.o.data(), results.lse.data(), results.dq.data(),
           results.dk.data(), results.dv.data(), scratch.workspace());
  // The library launches kernels itself, and the test reads their results.
  checkCuda(cudaStreamSynchronize(deviceOf(contextOf()).compute), "the end of attention");
  EXPECT_TRUE(scratch.borderIntact());
  return results;
}

/// Tolerances as for our own kernels (attention_test.cpp): both round probabilities, gradients and results to Bfloat16.
/// cuDNN also rounds the part of dv of each query head before it adds those of a group: f64 with these two roundings
/// has an error of 5.0e-3 in groups of two, against 3.7e-3 without groups.
void check(const AttentionShape &shape) {
  const AttentionCase test = caseOf(shape);
  const AttentionReference expected(test);
  const AttentionResults results = resultsOf(test);
  EXPECT_LT(distance(asFloats(results.o), expected.o), 4e-3);
  EXPECT_LT(distance(asFloats(results.dq), expected.dq), 6e-3);
  EXPECT_LT(distance(asFloats(results.dk), expected.dk), 6e-3);
  const bool hasGroups = shape.keyHeads > 0 && shape.keyHeads < shape.heads;
  EXPECT_LT(distance(asFloats(results.dv), expected.dv), hasGroups ? 6e-3 : 4e-3);
  EXPECT_LT(distance(results.lse, expected.lse), 1e-5);
}

constexpr AttentionShape plain = {
    .batch = 2, .heads = 3, .queries = 130, .keys = 130, .queryWidth = 64, .valueWidth = 64, .scale = 0.125F};

TEST(CudnnAttention, CausalHeadsOfAnyTakenWidthMatchLoops) {
  for (const std::int64_t width : {8, 16, 40, 64, 128}) {
    SCOPED_TRACE(width);
    AttentionShape shape = plain;
    shape.queryWidth = shape.valueWidth = width;
    shape.causal = true;
    check(shape);
  }
}

TEST(CudnnAttention, MoreKeysThanQueriesAndFewerMatchLoops) {
  for (const std::int64_t keys : {64, 200}) {
    AttentionShape shape = plain;
    shape.keys = keys;
    check(shape);
  }
}

TEST(CudnnAttention, BothLayoutsAndGroupsOfQueriesMatchLoops) {
  for (const bool sequenceFirst : {false, true})
    for (const std::int64_t keyHeads : {1, 2, 4}) {
      SCOPED_TRACE(keyHeads);
      AttentionShape shape = plain;
      shape.heads = 4;
      shape.keyHeads = keyHeads;
      shape.sequenceFirst = sequenceFirst;
      shape.causal = true;
      check(shape);
    }
}

TEST(CudnnAttention, ASecondRunGivesTheSameBits) {
  AttentionShape shape = plain;
  shape.queries = shape.keys = 300;
  shape.causal = true;
  const AttentionCase test = caseOf(shape);
  EXPECT_TRUE(resultsOf(test).sameBits(resultsOf(test)));
}

} // namespace
} // namespace fsdpc::rt

// Attention over operands of any float type against loops in f64, for the tests of both targets.
#pragma once

#include "tests/runtime/kernels_references.h"

namespace fsdpc::rt {

template <class T>
std::vector<T> as(const std::vector<float> &values) {
  std::vector<T> of;
  for (const float value : values)
    of.push_back(T(value));
  return of;
}
template <class T>
std::vector<float> floatsOf(const std::vector<T> &values) {
  std::vector<float> floats;
  for (const T value : values)
    floats.push_back(static_cast<float>(value));
  return floats;
}

/// With values that T represents exactly.
template <class T>
AttentionCase roundedTo(AttentionCase test) {
  for (auto *operand : {&test.q, &test.k, &test.v, &test.dO})
    *operand = floatsOf(as<T>(*operand));
  return test;
}
template <class T>
AttentionCase caseOf(const AttentionShape &shape, std::int64_t maskElements = 0) {
  return roundedTo<T>(attentionCase(shape, maskElements));
}

struct AttentionResults {
  std::vector<float> o, lse, dq, dk, dv;
  bool operator==(const AttentionResults &) const = default;
};

/// Scratch in bytes of the kernel and of its derivative.
struct AttentionScratch {
  std::int64_t forward, backward;
};

template <class T>
AttentionResults resultsOf(const AttentionCase &test, const Context &c, AttentionScratch bytes) {
  const AttentionShape &s = test.shape;
  const ScratchBuffer scratch(bytes.forward), gradScratch(bytes.backward);
  const std::vector<T> q = as<T>(test.q), k = as<T>(test.k), v = as<T>(test.v), dO = as<T>(test.dO);
  const T unset(NAN);
  std::vector<T> o(dO.size(), unset), dq(q.size(), unset), dk(k.size(), unset), dv(v.size(), unset);
  std::vector<float> lse(static_cast<std::size_t>(s.batch * s.heads * s.queries), NAN);
  attention(c, s, q.data(), k.data(), v.data(), test.masks(), o.data(), lse.data(), scratch.workspace());
  attentionGrad(c, s, dO.data(), q.data(), k.data(), v.data(), o.data(), lse.data(), test.masks(), dq.data(), dk.data(),
                dv.data(), gradScratch.workspace());
  EXPECT_TRUE(scratch.borderIntact() && gradScratch.borderIntact());
  return {floatsOf(o), lse, floatsOf(dq), floatsOf(dk), floatsOf(dv)};
}

/// Float: a score of a head of width 256 is a sum of 256 products. 16-bit floats: probabilities, gradients and results
/// are also rounded, each by up to 2^-8 of its size, in Float16 2^-11.
template <class T>
void check(const AttentionCase &test, const AttentionResults &results) {
  constexpr bool rounds = isHalf<T>;
  constexpr double unit = std::is_same_v<T, Float16> ? 1.0 / 8 : 1;
  const AttentionReference expected(test);
  EXPECT_LT(distance(results.o, expected.o), rounds ? 4e-3 * unit : 5e-6);
  EXPECT_LT(distance(results.dq, expected.dq), rounds ? 6e-3 * unit : 5e-6);
  EXPECT_LT(distance(results.dk, expected.dk), rounds ? 6e-3 * unit : 5e-6);
  EXPECT_LT(distance(results.dv, expected.dv), rounds ? 4e-3 * unit : 5e-6);
  EXPECT_LT(lseError(results.lse, expected.lse), 1e-5);
}

} // namespace fsdpc::rt

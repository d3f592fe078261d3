// attention and its derivative: scores are sums, probabilities are exponentials of them, results are sums again.
#include "ir/ops/attention.h"
#include "ir/ops/helpers.h"
#include "tests/bf16/bounds.h"

namespace fsdpc::rounding {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Positions of the operands, as in ir/ops/attention.cpp.
struct Heads {
  const AttentionAttributes &attributes;
  const HostTensor &q, &k;
  llvm::SmallVector<const HostTensor *, 2> masks;
  llvm::SmallVector<Shape, 2> strides; ///< of each mask over the scores
  const HostTensor *documents = nullptr;
  int64_t batch, heads, keyHeads, queries, keys, width;

  /// `first`: the position of operand q; k follows it.
  Heads(const Node &node, llvm::ArrayRef<const HostTensor *> operands, unsigned first)
      : attributes(node.get<AttentionAttributes>()), q(*operands[first]), k(*operands[first + 1]), batch(q.type.dim(0)),
        heads(q.type.dim(attributes.sequenceFirst ? 2 : 1)), keyHeads(k.type.dim(attributes.sequenceFirst ? 2 : 1)),
        queries(q.type.dim(attributes.sequenceFirst ? 1 : 2)), keys(k.type.dim(attributes.sequenceFirst ? 1 : 2)),
        width(q.type.dim(3)) {
    const AttentionExtras extras(node);
    if (extras.documents)
      documents = operands[*extras.documents];
    for (unsigned position : extras.masks) {
      masks.push_back(operands[position]);
      strides.push_back(broadcastStrides(masks.back()->type.shape(), Shape{batch, heads, queries, keys}));
    }
  }
  int64_t at(int64_t b, int64_t h, int64_t of, int64_t position, int64_t length) const {
    return (attributes.sequenceFirst ? (b * length + position) * of + h : (b * of + h) * length + position) * width;
  }
  int64_t queryAt(int64_t b, int64_t h, int64_t i) const { return at(b, h, heads, i, queries); }
  int64_t keyAt(int64_t b, int64_t h, int64_t j) const { return at(b, h / (heads / keyHeads), keyHeads, j, keys); }
  int64_t statisticAt(int64_t b, int64_t h, int64_t i) const { return (b * heads + h) * queries + i; }

  template <class Body>
  void forEachQuery(Body body) const {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i)
          body(b, h, i);
  }
};

Tracked dot(const double *a, const double *b, int64_t count) {
  Sum sum;
  for (int64_t i = 0; i < count; ++i)
    sum.add(Tracked(a[i]) * b[i]);
  return sum.total();
}

/// Scores of query i with every key. `slopes`: the derivatives of the cap; empty without one.
std::vector<Tracked> scoresOf(const Heads &heads, int64_t b, int64_t h, int64_t i,
                              std::vector<Tracked> *slopes = nullptr) {
  std::vector<Tracked> scores;
  const double cap = heads.attributes.softcap;
  const VisibleKeys visible(heads.attributes, i, heads.keys, documentsOfSample(heads.documents, b));
  for (int64_t j = 0; j < heads.keys; ++j) {
    Tracked score = asFloat(heads.attributes.scale) * dot(heads.q.values.data() + heads.queryAt(b, h, i),
                                                          heads.k.values.data() + heads.keyAt(b, h, j), heads.width);
    if (cap > 0) {
      const Tracked bounded = hyperbolicTangent(score / asFloat(cap));
      score = bounded * asFloat(cap);
      if (slopes)
        slopes->push_back(Tracked(1) - bounded * bounded);
    }
    if (visible.contains(j) || heads.attributes.masksHidden)
      for (auto [mask, strides] : llvm::zip(heads.masks, heads.strides))
        score = score + mask->values[flatIndex(Shape{b, h, i, j}, strides)];
    if (!visible.contains(j))
      score = score + heads.attributes.hidden;
    scores.push_back(std::isfinite(score.value) ? score : Tracked(-infinity));
  }
  return scores;
}

Tracked probabilityOf(Tracked score, Tracked lse) {
  return score.value == -infinity || lse.value == -infinity ? Tracked(0) : exponential(score - lse);
}

Tracked logSumExp(llvm::ArrayRef<Tracked> scores) {
  Tracked largest = -infinity;
  for (const Tracked &score : scores)
    largest = score.value > largest.value ? score : largest;
  if (largest.value == -infinity)
    return largest;
  Sum sum;
  for (const Tracked &score : scores)
    sum.add(probabilityOf(score, largest));
  return largest + logarithm(sum.total());
}

/// A factor that the kernel stores in the type of its matmul operands.
Tracked asFactor(Tracked x, DType dtype, const KernelFacts &facts) {
  if (facts.roundsProbabilities)
    x.error += 0.5 * unitInLastPlace(dtype, std::fabs(x.value) + x.error);
  return x;
}

Errors errorsOfForward(const Heads &heads, const HostTensor &v, const KernelFacts &facts) {
  const DType dtype = v.type.dtype();
  Errors errors = {std::vector<double>(heads.q.values.size()),
                   std::vector<double>(heads.batch * heads.heads * heads.queries)};
  heads.forEachQuery([&](int64_t b, int64_t h, int64_t i) {
    const std::vector<Tracked> scores = scoresOf(heads, b, h, i);
    const Tracked lse = logSumExp(scores);
    std::vector<Sum> sums(heads.width);
    for (size_t j = 0; j < scores.size(); ++j) {
      if (scores[j].value == -infinity)
        continue;
      const Tracked factor = asFactor(probabilityOf(scores[j], lse), dtype, facts);
      for (int64_t d = 0; d < heads.width; ++d)
        sums[d].add(factor * v.values[heads.keyAt(b, h, static_cast<int64_t>(j)) + d]);
    }
    for (int64_t d = 0; d < heads.width; ++d)
      errors[0][heads.queryAt(b, h, i) + d] = sums[d].total().error;
    errors[1][heads.statisticAt(b, h, i)] = lse.value == -infinity ? 0 : lse.error;
  });
  return errors;
}

Errors errorsOfBackward(const Heads &heads, llvm::ArrayRef<const HostTensor *> operands, const KernelFacts &facts) {
  const HostTensor &cotangents = *operands[0], &v = *operands[3], &o = *operands[4], &lse = *operands[5];
  const DType dtype = v.type.dtype();
  std::vector<Sum> dq(heads.q.values.size()), dk(heads.k.values.size()), dv(v.values.size());
  heads.forEachQuery([&](int64_t b, int64_t h, int64_t i) {
    std::vector<Tracked> slopes;
    const std::vector<Tracked> scores = scoresOf(heads, b, h, i, &slopes);
    const int64_t query = heads.queryAt(b, h, i);
    const double *cotangent = cotangents.values.data() + query;
    const Tracked subtracted = dot(cotangent, o.values.data() + query, heads.width);
    for (size_t j = 0; j < scores.size(); ++j) {
      if (scores[j].value == -infinity)
        continue;
      const int64_t key = heads.keyAt(b, h, static_cast<int64_t>(j));
      const Tracked p = probabilityOf(scores[j], lse.values[heads.statisticAt(b, h, i)]);
      Tracked slope = p * (dot(cotangent, v.values.data() + key, heads.width) - subtracted);
      if (!slopes.empty())
        slope = slope * slopes[j];
      const Tracked ds = asFactor(slope, dtype, facts) * asFloat(heads.attributes.scale);
      const Tracked factor = asFactor(p, dtype, facts);
      for (int64_t d = 0; d < heads.width; ++d) {
        dq[query + d].add(ds * heads.k.values[key + d]);
        dk[key + d].add(ds * heads.q.values[query + d]);
        dv[key + d].add(factor * cotangent[d]);
      }
    }
  });
  Errors errors;
  for (const std::vector<Sum> *sums : {&dq, &dk, &dv}) {
    errors.emplace_back();
    for (const Sum &sum : *sums)
      errors.back().push_back(sum.total().error);
  }
  return errors;
}

} // namespace

Errors errorsOfAttention(const Node &node, llvm::ArrayRef<const HostTensor *> operands, const KernelFacts &facts) {
  if (node.op() == Op::attention)
    return errorsOfForward(Heads(node, operands, 0), *operands[2], facts);
  return errorsOfBackward(Heads(node, operands, 1), operands, facts);
}

} // namespace fsdpc::rounding

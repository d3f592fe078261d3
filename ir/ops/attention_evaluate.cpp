#include "ir/ops/attention_evaluate.h"

#include "ir/ops/attention.h"
#include "ir/ops/helpers.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The scores of each query with each key, before the exponential.
class Scores {
public:
  /// `q`: the position of operand q; k follows it.
  Scores(const EvaluateContext &context, unsigned q, unsigned fixed)
      : dims(context.operands[q]->type, context.operands[q + 1]->type, context.get<AttentionAttributes>()),
        q(*context.operands[q]), k(*context.operands[q + 1]), attributes(context.get<AttentionAttributes>()) {
    const AttentionExtras extras(context.operands.size(), fixed, attributes);
    for (unsigned position : extras.masks) {
      masks.push_back(context.operands[position]);
      strides.push_back(broadcastStrides(masks.back()->type.shape(), dims.scores()));
    }
    documents = extras.documents ? context.operands[*extras.documents] : nullptr;
  }

  /// scale * q.k, capped, + masks of query i with every key, + hidden where causal, window and documents hide the key.
  /// `slopes`: the derivatives of the caps.
  std::vector<double> row(int64_t b, int64_t h, int64_t i, std::vector<double> *slopes = nullptr) const {
    std::vector<double> scores(dims.keys, -infinity);
    if (slopes)
      slopes->assign(dims.keys, 1);
    const double *query = q.values.data() + dims.queryAt(b, h, i);
    const VisibleKeys visible(attributes, i, dims.keys, documentsOfSample(documents, b));
    for (int64_t j = 0; j < dims.keys; ++j) {
      const bool isHidden = !visible.contains(j);
      if (isHidden && attributes.hidden == -infinity)
        continue;
      const double *key = k.values.data() + dims.keyAt(b, h, j);
      double dot = 0;
      for (int64_t d = 0; d < dims.width; ++d)
        dot += query[d] * key[d];
      double score = attributes.scale * dot;
      if (attributes.softcap > 0) {
        const double bounded = std::tanh(score / attributes.softcap);
        score = attributes.softcap * bounded;
        if (slopes)
          (*slopes)[j] = 1 - bounded * bounded;
      }
      if (!isHidden || attributes.masksHidden)
        for (auto [mask, ofMask] : llvm::zip(masks, strides))
          score += mask->values[flatIndex(Shape{b, h, i, j}, ofMask)];
      scores[j] = isHidden ? score + attributes.hidden : score;
    }
    return scores;
  }

  template <class Body>
  void forEachQuery(Body body) const {
    for (int64_t b = 0; b < dims.batch; ++b)
      for (int64_t h = 0; h < dims.heads; ++h)
        for (int64_t i = 0; i < dims.queries; ++i)
          body(b, h, i);
  }

  const AttentionDims dims;

private:
  const HostTensor &q, &k;
  llvm::SmallVector<const HostTensor *, 2> masks;
  llvm::SmallVector<Shape, 2> strides; ///< of each mask over the scores
  const HostTensor *documents;
  const AttentionAttributes &attributes;
};

/// Replaces scores with probabilities and returns log(sum of exp). For a query that sees no key, all probabilities are
/// 0 and the result is -inf.
/// Does not use exp(score - lse): if all scores of a row are the lowest float, the logarithm of their count is lost in
/// lse.
double takeSoftmax(std::vector<double> &scores) {
  double largest = -infinity;
  for (double score : scores)
    largest = std::max(largest, score);
  double sum = 0;
  for (double &score : scores)
    sum += score = largest == -infinity ? 0 : std::exp(score - largest);
  for (double &score : scores)
    score = sum == 0 ? 0 : score / sum;
  return largest + std::log(sum);
}

double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

} // namespace

void evaluateAttention(EvaluateContext &context) {
  const HostTensor &v = *context.operands[2];
  Scores scores(context, 0, attentionFixed);
  const AttentionDims &dims = scores.dims;
  scores.forEachQuery([&](int64_t b, int64_t h, int64_t i) {
    std::vector<double> p = scores.row(b, h, i);
    const double lse = takeSoftmax(p);
    double *o = context.results[0].values.data() + dims.queryAt(b, h, i);
    for (int64_t j = 0; j < dims.keys; ++j)
      for (int64_t d = 0; d < dims.width; ++d)
        o[d] += p[j] * v.values[dims.keyAt(b, h, j) + d];
    context.results[1].values[(b * dims.heads + h) * dims.queries + i] = lse;
  });
}

void evaluateAttentionGrad(EvaluateContext &context) {
  const auto &attributes = context.get<AttentionAttributes>();
  const HostTensor &q = *context.operands[1], &k = *context.operands[2], &v = *context.operands[3];
  Scores scores(context, 1, attentionGradFixed);
  const AttentionDims &dims = scores.dims;
  scores.forEachQuery([&](int64_t b, int64_t h, int64_t i) {
    std::vector<double> slopes, p = scores.row(b, h, i, &slopes);
    takeSoftmax(p);
    const int64_t query = dims.queryAt(b, h, i);
    const double *cotangent = context.operands[0]->values.data() + query;
    const double subtracted = dot(cotangent, context.operands[4]->values.data() + query, dims.width);
    for (int64_t j = 0; j < dims.keys; ++j) {
      const int64_t key = dims.keyAt(b, h, j);
      const double ds =
          p[j] * (dot(cotangent, v.values.data() + key, dims.width) - subtracted) * slopes[j] * attributes.scale;
      for (int64_t d = 0; d < dims.width; ++d) {
        context.results[0].values[query + d] += ds * k.values[key + d];
        context.results[1].values[key + d] += ds * q.values[query + d];
        context.results[2].values[key + d] += p[j] * cotangent[d];
      }
    }
  });
}

} // namespace fsdpc

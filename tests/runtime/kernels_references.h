// Reference loops in f64 for kernels that more than one test file tests.
#pragma once

#include "runtime/common/philox.h"
#include "tests/runtime/kernels_support.h"

namespace fsdpc::rt {

inline std::vector<double> productOf(const MatmulShape &s, const std::vector<float> &a, const std::vector<float> &b) {
  std::vector<double> out(static_cast<std::size_t>(s.batch * s.m * s.n));
  for (std::int64_t i = 0; i < s.batch; ++i) {
    const float *const left = a.data() + (s.oneA ? 0 : i) * s.m * s.k, *const right =
                                                                           b.data() + (s.oneB ? 0 : i) * s.k * s.n;
    for (std::int64_t row = 0; row < s.m; ++row)
      for (std::int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += double(left[s.transposeA ? k * s.m + row : row * s.k + k]) *
                 right[s.transposeB ? column * s.k + k : k * s.n + column];
        out[static_cast<std::size_t>((i * s.m + row) * s.n + column)] = sum;
      }
  }
  return out;
}

/// The definition in runtime/cpu/kernels/random.h.
inline float uniformAt(std::uint64_t key, std::uint64_t sample, std::uint64_t element) {
  const std::uint64_t block = element / 4;
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)};
  const std::uint32_t keys[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  return uniform01(philox(counter, keys).word[element % 4]);
}

// ---- rows

/// Layer normalisation, or with `centered` false RMS normalisation, which has no mean and no beta.
struct NormReference {
  std::vector<double> y, dx, dgamma, dbeta;

  NormReference(const NormShape &shape, bool centered, const std::vector<float> &x, const std::vector<float> &gamma,
                const std::vector<float> &beta, const std::vector<float> &dy)
      : y(x.size()), dx(x.size()), dgamma(gamma.size()), dbeta(gamma.size()) {
    const std::int64_t columns = shape.columns;
    for (std::int64_t start = 0; start < shape.rows * columns; start += columns) {
      double mean = 0, variance = 0, sum = 0, weighted = 0;
      for (std::int64_t j = 0; centered && j < columns; ++j)
        mean += x[start + j] / double(columns);
      for (std::int64_t j = 0; j < columns; ++j)
        variance += (x[start + j] - mean) * (x[start + j] - mean) / columns;
      const double rstd = 1 / std::sqrt(variance + shape.epsilon);
      for (std::int64_t j = 0; j < columns; ++j) {
        const double normalized = (x[start + j] - mean) * rstd, slope = dy[start + j] * double(gamma[j]);
        y[start + j] = normalized * gamma[j] + (centered ? beta[j] : 0);
        sum += centered ? slope / columns : 0;
        weighted += slope * normalized / columns;
        dgamma[j] += dy[start + j] * normalized;
        dbeta[j] += dy[start + j];
      }
      for (std::int64_t j = 0; j < columns; ++j)
        dx[start + j] = rstd * (dy[start + j] * double(gamma[j]) - sum - (x[start + j] - mean) * rstd * weighted);
    }
  }
};

struct SoftmaxReference {
  std::vector<double> y, dx, logs, dlogs;

  SoftmaxReference(const SoftmaxShape &shape, const std::vector<float> &x, const std::vector<float> &dy)
      : y(x.size()), dx(x.size()), logs(x.size()), dlogs(x.size()) {
    for (std::int64_t i = 0; i < shape.outer * shape.inner; ++i) {
      const std::int64_t start = i / shape.inner * shape.count * shape.inner + i % shape.inner;
      const std::int64_t end = start + shape.count * shape.inner;
      double sum = 0, product = 0, total = 0;
      for (std::int64_t k = start; k < end; k += shape.inner)
        sum += std::exp(double(x[k]));
      for (std::int64_t k = start; k < end; k += shape.inner) {
        y[k] = std::exp(double(x[k])) / sum;
        logs[k] = x[k] - std::log(sum);
        product += y[k] * dy[k];
        total += dy[k];
      }
      for (std::int64_t k = start; k < end; k += shape.inner) {
        dx[k] = y[k] * (dy[k] - product);
        dlogs[k] = dy[k] - y[k] * total;
      }
    }
  }
};

struct CrossEntropyReference {
  std::vector<double> terms, dx;

  CrossEntropyReference(const LossShape &shape, const std::vector<float> &x, const std::vector<std::int64_t> &labels,
                        const std::vector<float> &dterms)
      : terms(labels.size()), dx(x.size()) {
    const std::int64_t classes = shape.classes;
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      if (labels[i] == shape.ignoreIndex)
        continue;
      double sum = 0, mean = 0;
      for (std::int64_t j = 0; j < classes; ++j) {
        sum += std::exp(double(x[i * classes + j]));
        mean += x[i * classes + j] / double(classes);
      }
      const double smoothing = shape.labelSmoothing;
      terms[i] = std::log(sum) - (1 - smoothing) * x[i * classes + labels[i]] - smoothing * mean;
      for (std::int64_t j = 0; j < classes; ++j)
        dx[i * classes + j] = dterms[i] * (std::exp(double(x[i * classes + j])) / sum - smoothing / classes -
                                           (j == labels[i] ? 1 - smoothing : 0));
    }
  }
};

/// A linear layer and the cross entropy of its results, capped if the shape says so, with their derivatives. `bias` may
/// be empty.
struct LinearLossReference {
  std::vector<double> terms, dhidden, dweight, dbias, logits;
  std::vector<std::int64_t> predicted;

  LinearLossReference(const LinearLossShape &shape, const std::vector<float> &hidden, const std::vector<float> &weight,
                      const std::vector<float> &bias, const std::vector<std::int64_t> &labels,
                      const std::vector<float> &dterms)
      : terms(labels.size()), dhidden(hidden.size()), dweight(weight.size()), dbias(bias.size()) {
    const std::int64_t classes = shape.loss.classes, width = shape.width;
    const auto weightAt = [&](std::int64_t k, std::int64_t j) {
      return shape.transposeB ? j * width + k : k * classes + j;
    };
    for (std::int64_t i = 0; i < shape.loss.rows; ++i) {
      std::vector<double> x(classes), capped(classes);
      double sum = 0, mean = 0;
      for (std::int64_t j = 0; j < classes; ++j) {
        x[j] = bias.empty() ? 0 : bias[j];
        for (std::int64_t k = 0; k < width; ++k)
          x[j] += double(hidden[i * width + k]) * weight[weightAt(k, j)];
        const double cap = shape.loss.softcap;
        capped[j] = cap > 0 ? cap * std::tanh(x[j] / cap) : x[j];
        sum += std::exp(capped[j]);
        mean += capped[j] / double(classes);
      }
      predicted.push_back(std::max_element(capped.begin(), capped.end()) - capped.begin());
      logits.insert(logits.end(), capped.begin(), capped.end());
      if (labels[i] == shape.loss.ignoreIndex)
        continue;
      const double smoothing = shape.loss.labelSmoothing;
      terms[i] = std::log(sum) - (1 - smoothing) * capped[labels[i]] - smoothing * mean;
      for (std::int64_t j = 0; j < classes; ++j) {
        const double ratio = shape.loss.softcap > 0 ? capped[j] / shape.loss.softcap : 0;
        const double slope =
            dterms[i] * (1 - ratio * ratio) *
            (std::exp(capped[j]) / sum - smoothing / double(classes) - (j == labels[i] ? 1 - smoothing : 0));
        for (std::int64_t k = 0; k < width; ++k) {
          dhidden[i * width + k] += slope * weight[weightAt(k, j)];
          dweight[weightAt(k, j)] += slope * hidden[i * width + k];
        }
        if (!bias.empty())
          dbias[j] += slope;
      }
    }
  }
};

// ---- attention

struct AttentionCase {
  AttentionShape shape;
  std::vector<float> q, k, v, dO, mask;
  std::vector<std::int64_t> documents = {}; ///< empty: none
  std::vector<float> secondMask = {};

  AttentionMasks masks() const {
    return {mask.empty() ? nullptr : mask.data(), secondMask.empty() ? nullptr : secondMask.data(),
            documents.empty() ? nullptr : documents.data()};
  }
  std::int64_t keyHeads() const { return shape.keyHeads > 0 ? shape.keyHeads : shape.heads; }
};

inline AttentionCase attentionCase(AttentionShape shape, std::int64_t maskElements = 0) {
  AttentionCase test{shape, {}, {}, {}, {}, numbers(maskElements, 15)};
  test.shape.scale = 0.7f;
  const std::int64_t queries = shape.batch * shape.heads * shape.queries;
  const std::int64_t keys = shape.batch * test.keyHeads() * shape.keys;
  test.q = numbers(queries * shape.queryWidth, 11);
  test.k = numbers(keys * shape.queryWidth, 12);
  test.v = numbers(keys * shape.valueWidth, 13);
  test.dO = numbers(queries * shape.valueWidth, 14);
  return test;
}

/// With documents of random lengths, in the order of their numbers, which differ in their high bits only, or mixed
/// position by position. Samples have their own unless `areShared`.
inline AttentionCase withDocuments(AttentionCase test, bool areMixed, bool areShared = false) {
  const std::int64_t samples = areShared ? 1 : test.shape.batch, keys = test.shape.keys;
  test.shape.documentsStride = areShared ? 0 : keys;
  const std::vector<float> draws = numbers(samples * keys, 16);
  for (std::int64_t i = 0; i < samples * keys; ++i) {
    const float draw = std::abs(draws[static_cast<std::size_t>(i)]);
    const std::int64_t before = i % keys == 0 ? 7 : test.documents.back();
    const std::int64_t next = draw * static_cast<float>(keys) < 5 ? before + (std::int64_t{1} << 33) : before;
    test.documents.push_back(areMixed ? static_cast<std::int64_t>(draw * 4) - 1 : next);
  }
  return test;
}

/// With a mask for queries and another for keys, each of all samples and heads. The second one hides every fifth key.
inline AttentionCase withFactors(AttentionCase test) {
  AttentionShape &shape = test.shape;
  shape.maskStrides[0] = shape.heads * shape.queries;
  shape.maskStrides[1] = shape.queries;
  shape.maskStrides[2] = 1;
  shape.secondMaskStrides[0] = shape.heads * shape.keys;
  shape.secondMaskStrides[1] = shape.keys;
  shape.secondMaskStrides[3] = 1;
  test.mask = numbers(shape.batch * shape.heads * shape.queries, 15);
  test.secondMask = numbers(shape.batch * shape.heads * shape.keys, 17);
  for (std::size_t j = 3; j < test.secondMask.size(); j += 5)
    test.secondMask[j] = -INFINITY;
  return test;
}

/// Calls visit(x index, w index, y index) for every product of a 2-D convolution.
template <class Visit>
void forEachTap(const ConvolutionShape &s, const Visit &visit) {
  const std::int64_t perGroupIn = s.inputChannels / s.groups, perGroupOut = s.outputChannels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t m = 0; m < s.outputChannels; ++m)
      for (std::int64_t oy = 0; oy < s.output[0]; ++oy)
        for (std::int64_t ox = 0; ox < s.output[1]; ++ox)
          for (std::int64_t ch = 0; ch < perGroupIn; ++ch)
            for (std::int64_t ky = 0; ky < s.kernel[0]; ++ky)
              for (std::int64_t kx = 0; kx < s.kernel[1]; ++kx) {
                const std::int64_t iy = oy * s.strides[0] + ky * s.dilations[0] - s.padsBefore[0];
                const std::int64_t ix = ox * s.strides[1] + kx * s.dilations[1] - s.padsBefore[1];
                if (iy < 0 || ix < 0 || iy >= s.input[0] || ix >= s.input[1])
                  continue;
                const std::int64_t channel = m / perGroupOut * perGroupIn + ch;
                visit(((n * s.inputChannels + channel) * s.input[0] + iy) * s.input[1] + ix,
                      ((m * perGroupIn + ch) * s.kernel[0] + ky) * s.kernel[1] + kx,
                      ((n * s.outputChannels + m) * s.output[0] + oy) * s.output[1] + ox);
              }
}

/// A 2-D convolution and its derivatives for dy, in f64.
struct ConvolutionResults {
  std::vector<double> y, dx, dw;
  std::int64_t plane, channels;

  ConvolutionResults(const ConvolutionShape &shape, const std::vector<float> &x, const std::vector<float> &w,
                     const std::vector<float> &dy)
      : y(dy.size()), dx(x.size()), dw(w.size()), plane(shape.output[0] * shape.output[1]),
        channels(shape.outputChannels) {
    forEachTap(shape, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      y[k] += double(x[i]) * w[j];
      dx[i] += double(dy[k]) * w[j];
      dw[j] += double(dy[k]) * x[i];
    });
  }
  /// y with a bias per output channel
  std::vector<double> biased(const std::vector<float> &bias) const {
    std::vector<double> sums = y;
    for (std::size_t k = 0; k < sums.size(); ++k)
      sums[k] += bias[static_cast<std::size_t>(static_cast<std::int64_t>(k) / plane % channels)];
    return sums;
  }
};

/// Causal, with keys that a mask hides by the lowest float, as batches padded on the left have: some queries see no
/// key.
inline AttentionCase paddedAttentionCase(AttentionShape shape) {
  shape.causal = true;
  shape.hidden = std::numeric_limits<float>::lowest();
  shape.maskStrides[0] = shape.keys;
  shape.maskStrides[3] = 1;
  AttentionCase test = attentionCase(shape, shape.batch * shape.keys);
  for (std::int64_t i = 0; i < shape.batch * shape.keys; ++i)
    test.mask[static_cast<std::size_t>(i)] =
        i % shape.keys < 40 * (i / shape.keys) ? std::numeric_limits<float>::lowest() : 0;
  return test;
}

/// largestError over the values that a float represents exactly enough: see largestExactLse.
inline double lseError(const std::vector<float> &lse, const std::vector<double> &expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::isinf(expected[i]) || std::abs(expected[i]) <= largestExactLse)
      largest = worseOf(largest, errorOf(lse[i], expected[i]));
  return lse.size() == expected.size() ? largest : INFINITY;
}

/// Forward and backward, one query at a time.
class AttentionReference {
public:
  std::vector<double> o, lse, dq, dk, dv;

  explicit AttentionReference(const AttentionCase &test)
      : o(test.dO.size()), dq(test.q.size()), dk(test.k.size()), dv(test.v.size()), test(test), s(test.shape) {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.queries; ++i)
          query(b, h, i);
  }

private:
  /// The offset of row i of one head.
  std::int64_t rowAt(std::int64_t heads, std::int64_t length, std::int64_t width, std::int64_t b, std::int64_t h,
                     std::int64_t i) const {
    return (s.sequenceFirst ? (b * length + i) * heads + h : (b * heads + h) * length + i) * width;
  }
  /// The offset of the key or value that head h of q sees at position j.
  std::int64_t keyAt(std::int64_t width, std::int64_t b, std::int64_t h, std::int64_t j) const {
    return rowAt(test.keyHeads(), s.keys, width, b, h / (s.heads / test.keyHeads()), j);
  }

  std::vector<double> probabilities(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t row = rowAt(s.heads, s.queries, s.queryWidth, b, h, i);
    std::vector<double> p(static_cast<std::size_t>(s.keys), -INFINITY);
    capSlopes.assign(p.size(), 1);
    double sum = 0, largest = -INFINITY;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const std::int64_t *const documents = test.documents.data() + b * s.documentsStride;
      const bool isVisible = (!s.causal || j <= i) && (s.window == 0 || std::abs(i - j) < s.window) &&
                             (test.documents.empty() || documents[i] == documents[j]);
      if (!isVisible && s.hidden == -INFINITY)
        continue;
      double score = 0;
      for (std::int64_t d = 0; d < s.queryWidth; ++d)
        score += double(test.q[row + d]) * test.k[keyAt(s.queryWidth, b, h, j) + d];
      p[j] = score * s.scale;
      if (s.softcap > 0) {
        const double bounded = std::tanh(p[j] / s.softcap);
        p[j] = s.softcap * bounded;
        capSlopes[static_cast<std::size_t>(j)] = 1 - bounded * bounded;
      }
      // Rounded to float: a mask value that hides a position absorbs the score.
      const auto add = [&](const std::vector<float> &mask, const std::int64_t(&strides)[4]) {
        if (!mask.empty() && (isVisible || s.masksHidden))
          p[j] = static_cast<float>(p[j] + mask[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]]);
      };
      add(test.mask, s.maskStrides);
      add(test.secondMask, s.secondMaskStrides);
      if (!isVisible)
        p[j] = static_cast<float>(p[j] + s.hidden);
      largest = std::max(largest, p[j]);
    }
    for (double &value : p)
      sum += value = largest == -INFINITY ? 0 : std::exp(value - largest);
    lse.push_back(largest + std::log(sum));
    for (double &value : p)
      value = sum == 0 ? 0 : value / sum;
    return p;
  }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::vector<double> p = probabilities(b, h, i);
    const std::int64_t row = rowAt(s.heads, s.queries, s.queryWidth, b, h, i);
    const std::int64_t out = rowAt(s.heads, s.queries, s.valueWidth, b, h, i);
    double delta = 0;
    for (std::int64_t d = 0; d < s.valueWidth; ++d) {
      for (std::int64_t j = 0; j < s.keys; ++j)
        o[out + d] += p[j] * test.v[keyAt(s.valueWidth, b, h, j) + d];
      delta += o[out + d] * test.dO[out + d];
    }
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const std::int64_t key = keyAt(s.queryWidth, b, h, j), value = keyAt(s.valueWidth, b, h, j);
      double dp = 0;
      for (std::int64_t d = 0; d < s.valueWidth; ++d) {
        dp += double(test.dO[out + d]) * test.v[value + d];
        dv[value + d] += p[j] * test.dO[out + d];
      }
      const double ds = p[j] * (dp - delta) * capSlopes[static_cast<std::size_t>(j)] * s.scale;
      for (std::int64_t d = 0; d < s.queryWidth; ++d) {
        dq[row + d] += ds * test.k[key + d];
        dk[key + d] += ds * test.q[row + d];
      }
    }
  }

  const AttentionCase &test;
  const AttentionShape &s;
  std::vector<double> capSlopes; ///< of the query at hand
};

} // namespace fsdpc::rt

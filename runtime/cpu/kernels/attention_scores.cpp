#include "runtime/cpu/kernels/attention_scores.h"

#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

/// The documents of the positions of a head's sample; null for none.
const std::int64_t *documentsOf(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head) {
  return masks.documents ? masks.documents + head / shape.heads * shape.documentsStride : nullptr;
}

/// The keys in the range without those before the first and after the last one whose document may be that of one of
/// `rows` queries from `query` on.
KeyRange withinDocuments(const std::int64_t *documents, std::int64_t query, std::int64_t rows, KeyRange keys) {
  const auto [lowest, highest] = std::minmax_element(documents + query, documents + query + rows);
  const auto isOther = [&](std::int64_t key) { return documents[key] < *lowest || documents[key] > *highest; };
  while (keys.begin < keys.end && isOther(keys.begin))
    ++keys.begin;
  while (keys.begin < keys.end && isOther(keys.end - 1))
    --keys.end;
  return keys;
}

/// The keys that causal and window leave visible to any of `rows` queries from `query` on.
KeyRange visibleKeys(const AttentionShape &shape, std::int64_t query, std::int64_t rows) {
  KeyRange keys{0, shape.keys};
  if (shape.window > 0) {
    keys.begin = std::max<std::int64_t>(query - shape.window + 1, 0);
    keys.end = std::min(keys.end, query + rows - 1 + shape.window);
  }
  if (shape.causal)
    keys.end = std::min(keys.end, query + rows);
  return {std::min(keys.begin, shape.keys), std::max(keys.end, std::min(keys.begin, shape.keys))};
}

/// row = softcap * tanh(row * scale / softcap); returns through `slopes`, if not null, its products with the
/// derivative.
void capScores(const AttentionShape &shape, std::int64_t count, float *row, float *slopes) {
  const float cap = shape.softcap, factor = shape.scale / shape.softcap;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] = scalar::tanh(row[j] * factor);
  if (slopes) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      slopes[j] *= 1 - row[j] * row[j];
  }
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] *= cap;
}

/// Of a mask, what is added to the score of key `j` of a row.
struct MaskOfRow {
  const float *data;
  std::int64_t step;

  /// `mask` may be null: nothing. `key`: of j = 0.
  MaskOfRow(const AttentionShape &shape, const float *mask, const std::int64_t (&strides)[4], std::int64_t head,
            std::int64_t query, std::int64_t key)
      : data(mask ? mask + head / shape.heads * strides[0] + head % shape.heads * strides[1] + query * strides[2] +
                        key * strides[3]
                  : &nothing),
        step(mask ? strides[3] : 0) {}
  float operator[](std::int64_t j) const { return data[j * step]; }

private:
  static constexpr float nothing = 0;
};

/// What scores are multiplied with before anything is added. A cap has scaled already.
float scaleOf(const AttentionShape &shape) { return shape.softcap > 0 ? 1 : shape.scale; }

/// s * scale + masks of some keys of a row, from their first one on.
void scaleScores(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                 KeyRange keys, float *row) {
  const float scale = scaleOf(shape);
  const std::int64_t count = keys.count();
  const MaskOfRow first(shape, masks.added, shape.maskStrides, head, query, keys.begin);
  if (masks.alsoAdded) {
    const MaskOfRow second(shape, masks.alsoAdded, shape.secondMaskStrides, head, query, keys.begin);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] = row[j] * scale + first[j] + second[j];
  } else if (masks.added) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] = row[j] * scale + first[j];
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] *= scale;
  }
}

/// The same for keys of which those in other documents than the query's are hidden.
void scaleScoresOfDocument(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head,
                           std::int64_t query, KeyRange keys, float *row) {
  const float scale = scaleOf(shape), hidden = shape.hidden;
  const std::int64_t count = keys.count();
  const MaskOfRow first(shape, masks.added, shape.maskStrides, head, query, keys.begin);
  const MaskOfRow second(shape, masks.alsoAdded, shape.secondMaskStrides, head, query, keys.begin);
  const std::int64_t *const documents = documentsOf(shape, masks, head);
  const std::int64_t *const ofKeys = documents + keys.begin, ofQuery = documents[query];
  const bool hidesFinitely = shape.hidesFinitely(), masksHidden = shape.masksHidden;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const float score = row[j] * scale, masked = score + first[j] + second[j];
    // An infinite score plus -infinity would be NaN.
    const float unseen = hidesFinitely ? (masksHidden ? masked : score) + hidden : hidden;
    row[j] = ofKeys[j] == ofQuery ? masked : unseen;
  }
}

/// Adds `hidden` to the scores of keys that are not visible, which were finished without masks that do not apply.
void hideKeys(const AttentionShape &shape, KeyRange hidden, std::int64_t firstKey, float *row) {
  for (std::int64_t j = hidden.begin; j < hidden.end; ++j) // an infinite score plus -infinity would be NaN
    row[j - firstKey] = shape.hidesFinitely() ? row[j - firstKey] + shape.hidden : shape.hidden;
}

/// s * scale + masks of one row, + hidden where the key is not visible. row[0] is the score of key keys.begin. `slopes`
/// are multiplied with the derivative of the cap, if there is one.
void finishScores(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                  KeyRange keys, float *row, float *slopes = nullptr) {
  if (shape.softcap > 0)
    capScores(shape, keys.count(), row, slopes);
  const KeyRange visible = visibleKeys(shape, query, 1);
  const KeyRange before{keys.begin, std::clamp(visible.begin, keys.begin, keys.end)};
  const KeyRange after{std::clamp(visible.end, before.end, keys.end), keys.end};
  const KeyRange between{before.end, after.begin};
  const AttentionMasks masksOfHidden = shape.masksHidden ? masks : AttentionMasks();
  const auto scaled = [&](KeyRange part, const AttentionMasks &added) {
    scaleScores(shape, added, head, query, part, row + part.begin - keys.begin);
  };
  scaled(before, masksOfHidden);
  if (masks.documents)
    scaleScoresOfDocument(shape, masks, head, query, between, row + between.begin - keys.begin);
  else
    scaled(between, masks);
  scaled(after, masksOfHidden);
  hideKeys(shape, before, keys.begin, row);
  hideKeys(shape, after, keys.begin, row);
}

/// Both rows are proportional to the exponentials in p. Scales them so that the exponentials sum to 1.
void divideBySum(float *p, float *ds, std::int64_t count) {
  const float sum = static_cast<float>(sumOf(count, [p](std::int64_t j) { return p[j]; }));
  for (std::int64_t j = 0; j < count; ++j) {
    p[j] /= sum;
    ds[j] /= sum;
  }
}

/// A query without visible keys has a maximum (and lse) of -infinity. It is shifted by 0 instead, so that its
/// exponentials are 0, not NaN.
float finite(float shift) { return shift == -scalar::infinity ? 0 : shift; }

float maximumOf(const float *row, std::int64_t count) {
  float largest = -scalar::infinity;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j)
    largest = row[j] > largest ? row[j] : largest;
  return largest;
}

/// row = exp(row - shift); returns the sum.
float exponentials(float *row, std::int64_t count, float shift) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] = scalar::exp(row[j] - shift);
  return static_cast<float>(sumOf(count, [row](std::int64_t j) { return row[j]; }));
}

} // namespace

KeyRange keysOfBlock(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                     std::int64_t rows, bool seesAll) {
  if (seesAll)
    return {0, shape.keys};
  KeyRange keys = visibleKeys(shape, query, rows);
  if (const std::int64_t *const documents = documentsOf(shape, masks, head))
    keys = withinDocuments(documents, query, rows, keys);
  return {keys.begin / panelColumns * panelColumns, keys.end};
}

bool softmaxOfRow(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head, std::int64_t query,
                  KeyRange seen, float *row, float &lse, float &factor) {
  finishScores(shape, masks, head, query, seen, row);
  const float largest = maximumOf(row, seen.count());
  const float sum = exponentials(row, seen.count(), finite(largest));
  lse = largest + std::log(sum);
  factor = sum == 0 ? 0 : 1 / sum;
  return !shape.seesNone(largest);
}

KeyRange keysOfGradBlock(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head,
                         std::int64_t begin, std::int64_t rows, const float *lse) {
  return keysOfBlock(shape, masks, head, begin, rows,
                     std::any_of(lse, lse + rows, [&](float one) { return shape.seesNone(one); }));
}

void softmaxGradientOfRow(const AttentionShape &shape, const AttentionMasks &masks, std::int64_t head,
                          std::int64_t query, KeyRange seen, float lse, float delta, float *p, float *ds) {
  const float shift = finite(lse), scale = shape.scale;
  if (shape.softcap > 0) { // its derivative applies to the difference
    for (std::int64_t j = 0; j < seen.count(); ++j)
      ds[j] -= delta;
    delta = 0;
  }
  finishScores(shape, masks, head, query, seen, p, ds);
#pragma omp simd
  for (std::int64_t j = 0; j < seen.count(); ++j) {
    p[j] = scalar::exp(p[j] - shift);
    ds[j] = p[j] * (ds[j] - delta) * scale;
  }
  if (std::abs(shift) > largestExactLse)
    divideBySum(p, ds, seen.count());
}

} // namespace fsdpc::rt

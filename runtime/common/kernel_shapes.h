// Kernel arguments other than tensors. They are the same for every target, so that an emitted statement reads the same
// on all of them. Comments name the tensors; the kernels/ folder of a target describes how it computes.
#pragma once

#include "runtime/common/float16.h"
#include "runtime/common/program.h"

#include <limits>

namespace fsdpc::rt {

/// x [rows, columns]; mean, rstd [rows]; gamma, beta, dgamma, dbeta [columns]
struct NormShape {
  std::int64_t rows = 1, columns = 1;
  double epsilon = 1e-5;
};

/// x [outer, channels, inner]; per-channel values are vectors [channels]
struct ChannelShape {
  std::int64_t outer = 1, channels = 1, inner = 1;
};

/// x [dims..., width] with an even width. The angles of a vector, `width` elements each of cos and sin, start at offset
/// sum of coordinate * tableStrides. `transposed` applies the transpose of each rotation.
struct RotaryShape {
  std::int64_t dims[3] = {1, 1, 1}, tableStrides[3] = {0, 0, 0};
  std::int64_t width = 2;
  bool transposed = false;
};

/// x [outer, count, inner], normalised over count
struct SoftmaxShape {
  std::int64_t outer = 1, count = 1, inner = 1;
};

/// For cross entropy and negative log-likelihood. The class is the last axis.
struct LossShape {
  std::int64_t rows = 1, classes = 1;
  std::int64_t ignoreIndex = -100;
  double labelSmoothing = 0;
  float softcap = 0; ///< if not 0, x is softcap * tanh(z / softcap), and the derivative is that of z
};

/// hidden [rows, width], weight [width, classes] or, with transposeB, [classes, width]. Logits of `chunk` positions, at
/// most all, exist at once.
struct LinearLossShape {
  LossShape loss;
  std::int64_t width = 1, chunk = 1;
  bool transposeB = false;
  DType elements = DType::f32; ///< the type that hidden, weight and each logit are rounded to
};

/// x is row-major with these dims. `reduced` marks the reduced dims; the result has the others, in order.
struct ReduceShape {
  int rank = 0;
  std::int64_t dims[maxRank] = {};
  bool reduced[maxRank] = {};
};

/// x [outer, count, inner], processed along `count`
struct AxisShape {
  std::int64_t outer = 1, count = 1, inner = 1;
};

/// Always three spatial axes: missing ones come first, with size and kernel 1. Every window overlaps the input.
struct PoolShape {
  std::int64_t planes = 1;
  std::int64_t input[3] = {1, 1, 1}, output[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1}, strides[3] = {1, 1, 1}, dilations[3] = {1, 1, 1}, padsBefore[3] = {0, 0, 0};
  bool countIncludePad = false;
};

/// A tensor [outer, samples, inner] of rank `c.rank`. Sample coordinate i is global sample rank * rankSamples +
/// firstSample + i. Without a sample axis: outer = samples = 1.
struct RandomShape {
  std::int64_t outer = 1, samples = 1, inner = 1;
  std::int64_t rankSamples = samples, firstSample = 0;
};

// The addresses of optimizer scalars are planned: a step changes their values, never their addresses. `step` is 1 in
// the first step.

/// If set, `*scale` multiplies the gradient first, and unless `*applies` every result equals its operand.
struct UpdateGuard {
  const float *scale = nullptr;
  const bool *applies = nullptr;
};

/// A moving average that an optimizer also keeps: to = decay * from + (1 - decay) * (new parameter), and the new
/// parameter itself if the count is 1. Null: none.
template <class T>
struct WeightAverage {
  const T *from = nullptr;
  T *to = nullptr;
  const double *decay = nullptr;
  const std::int64_t *count = nullptr;

  /// The weight of the new parameter. Requires: there is an average.
  FSDPC_HOST_DEVICE T weight() const { return *count == 1 ? T(1) : static_cast<T>(1 - *decay); }
};

/// Without momentum, `momentum`, `dampening` and `step` are null.
struct SgdScalars {
  const double *lr, *weightDecay, *momentum = nullptr, *dampening = nullptr;
  const std::int64_t *step = nullptr;
  bool nesterov = false;
  UpdateGuard guard = {};
};

struct AdamScalars {
  const double *lr, *beta1, *beta2, *epsilon, *weightDecay;
  const std::int64_t *step;
  bool decoupled = false; ///< AdamW
  UpdateGuard guard = {};
};

struct AdadeltaScalars {
  const double *lr, *rho, *epsilon, *weightDecay;
  UpdateGuard guard = {};
};

struct AdagradScalars {
  const double *lr, *lrDecay, *epsilon, *weightDecay;
  const std::int64_t *step;
  UpdateGuard guard = {};
};

/// Without momentum, `momentum` is null.
struct RmspropScalars {
  const double *lr, *alpha, *epsilon, *weightDecay, *momentum = nullptr;
  UpdateGuard guard = {};
};

struct LionScalars {
  const double *lr, *beta1, *beta2, *weightDecay;
  UpdateGuard guard = {};
};

/// A tensor, or this rank's part of several tensors, in f32 or a 16-bit float type.
struct FloatRange {
  const void *data;
  std::int64_t count;
  DType dtype;

  FloatRange(const float *data, std::int64_t count) : data(data), count(count), dtype(DType::f32) {}
  FloatRange(const Bfloat16 *data, std::int64_t count) : data(data), count(count), dtype(DType::bf16) {}
  FloatRange(const Float16 *data, std::int64_t count) : data(data), count(count), dtype(DType::f16) {}

  /// Calls f(elements) with the pointer of the right type.
  template <class F>
  void visit(const F &f) const {
    switch (dtype) {
    case DType::bf16: return f(static_cast<const Bfloat16 *>(data));
    case DType::f16: return f(static_cast<const Float16 *>(data));
    default: return f(static_cast<const float *>(data));
    }
  }
};

/// `maxNorm` is null without a bound, `lossScale` is null without a loss scale.
struct ClipNumbers {
  const double *maxNorm = nullptr, *lossScale = nullptr;
};

/// The loss scale doubles after `window` steps without overflow. It halves, but not below `minimum`, when `hysteresis`
/// overflows are used up. With a nonzero minimum the step after an overflow does not count, as in DeepSpeed.
struct LossScaleRule {
  std::int64_t window = 1000, hysteresis = 2;
  double minimum = 1;
};

/// Element [i0, i1, ...] is copied from `from + sum(i * fromStrides)` to `to + sum(i * toStrides)`. Strides are in
/// elements and may be negative. A stride of 0 reads one element for an entire axis.
struct CopyShape {
  int rank = 0;
  std::int64_t dims[maxRank] = {}, fromStrides[maxRank] = {}, toStrides[maxRank] = {};
};

/// x [outer, size, inner], indices [count]: y [outer, count, inner]
struct GatherShape {
  std::int64_t outer = 1, size = 1, inner = 1, count = 1;
  int node = -1; ///< index into programIndexNodes(), for messages
};

/// A table [size, inner] that is split over `ranks` ranks, `stride` apart, into equal shares of `own` rows, the last of
/// which may be behind the table; and `count` indices, equally many from each of the ranks in their order.
struct RowsShape {
  std::int64_t size = 1, inner = 1, count = 1, own = 1;
  int ranks = 1, stride = 1;
  int node = -1; ///< as in GatherShape

  /// The first row of a rank's share.
  constexpr std::int64_t firstOf(int rank) const { return rank / stride % ranks * own; }
};

/// x [batch, dims[0] x ... x dims[depth - 1], inner], indices [batch, count, depth]: y [batch, count, inner]. For a
/// scatter, y is the updates.
struct GatherNdShape {
  std::int64_t batch = 1, count = 1, inner = 1;
  int depth = 1;
  std::int64_t dims[maxRank] = {};
  int node = -1; ///< as in GatherShape

  constexpr std::int64_t rows() const {
    std::int64_t product = 1;
    for (int d = 0; d < depth; ++d)
      product *= dims[d];
    return product;
  }
};

/// How an update is combined with the existing value.
enum class Reduction : std::uint8_t { none, add, mul, max, min };

/// x [rows, count], values and indices [rows, k]
struct TopKShape {
  std::int64_t rows = 1, count = 1, k = 1;
  bool smallest = false;
};

/// q [batch, heads, queries, queryWidth], k [.., keys, queryWidth], v [.., keys, valueWidth], o [.., queries,
/// valueWidth]
struct AttentionShape {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, queryWidth = 1, valueWidth = 1;
  float scale = 1;
  bool causal = false;
  bool sequenceFirst = false;                 ///< q, k, v, o are [B, S, H, D] instead of [B, H, S, D]
  std::int64_t maskStrides[4] = {0, 0, 0, 0}; ///< of the additive mask over [B, H, Sq, Sk], in elements; 0 broadcasts
  std::int64_t secondMaskStrides[4] = {0, 0, 0, 0};
  std::int64_t keyHeads = 0; ///< heads of k and v; 0: as many as q has
  std::int64_t window = 0;   ///< > 0: query i sees only keys less than this far away
  /// Distance between the documents of two samples, in elements; 0: all samples share one row. With documents there are
  /// as many keys as queries.
  std::int64_t documentsStride = 0;
  /// Added to the scores of keys that `causal`, `window` and documents hide, in place of masks. A finite number
  /// tells only for a query whose other keys are all hidden by masks.
  float hidden = -std::numeric_limits<float>::infinity();
  bool masksHidden = false; ///< masks are added to their scores too
  float softcap = 0;        ///< > 0: scores are softcap * tanh(scale * q.k / softcap), before anything is added

  bool hidesFinitely() const { return hidden > -std::numeric_limits<float>::infinity(); }
  /// True for the largest score, or lse, of a query that sees no key: those hidden here count for it then. Scores
  /// themselves are much smaller than `hidden`.
  bool seesNone(float largest) const { return hidesFinitely() && largest <= hidden / 2; }
};

/// Optional operands of attention; null for those that it lacks.
struct AttentionMasks {
  const float *added = nullptr;     ///< to scores: AttentionShape::maskStrides
  const float *alsoAdded = nullptr; ///< with `added` only: AttentionShape::secondMaskStrides
  /// The number of the document of each position, in any order: queries see only keys of their own document.
  const std::int64_t *documents = nullptr;
};

/// The largest |lse| that is precise enough in float. For a row of scores that are all -1e9 or the lowest float, lse
/// loses the logarithm of the number of keys. Beyond this size the derivative sums the exponentials of the row again.
inline constexpr float largestExactLse = 256;

/// out[batch, m, n] = op(a)[batch, m, k] x op(b)[batch, k, n] (+ bias[n]), all row-major and dense. op transposes: the
/// operand is then stored [batch, k, m] or [batch, n, k]. An operand with `oneA` / `oneB` set has no batch: it
/// multiplies every batch of the other operand.
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transposeA = false, transposeB = false;
  bool oneA = false, oneB = false;
  bool bias = false; ///< of the result's type, added before the sum is rounded; not with k = 0
  /// Element types of both operands and of the result. A target may support f32 only.
  DType elements = DType::f32, result = DType::f32;
  bool accumulate = false; ///< out += product instead of out = product; not with a bias
};

/// x [batch, inputChannels, input...], w [outputChannels, inputChannels / groups, kernel...], y [batch, outputChannels,
/// output...]
struct ConvolutionShape {
  int axes = 2; ///< spatial axes, 1 to 3
  std::int64_t batch = 1, inputChannels = 1, outputChannels = 1, groups = 1;
  std::int64_t input[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, output[3] = {1, 1, 1};
  std::int64_t strides[3] = {1, 1, 1}, dilations[3] = {1, 1, 1}, padsBefore[3] = {0, 0, 0}, padsAfter[3] = {0, 0, 0};
  bool bias = false; ///< of the result's type; forward only
  /// Element types of both operands and of the result. A target may support f32 only.
  DType elements = DType::f32, result = DType::f32;
};

} // namespace fsdpc::rt

// The attribute structs of all ops. The meaning of each op is documented in its family's file and, in one sentence, in
// its descriptor.
#pragma once

#include "ir/attributes.h"

#include <limits>

namespace fsdpc {

/// cast
struct CastAttributes {
  DType to = DType::f32;
  void fields(AttributeVisitor &v) { v.field("to", to); }
};

/// random_uniform(seed i64[], step i64[]) -> f32[shape] in [0, 1), Philox4x32-10. The numbers are the same for every
/// world size: key = (seed, step, instance), counter = (global sample index, element within the sample). The sample
/// index of element e is r * samples of a rank + firstSample + its coordinate on batchAxis, with r = microStep *
/// worldSize + rank. batchAxis -1: there is no sample axis, and all elements are "within" one sample.
struct RandomUniformAttributes {
  int64_t instance = 0;
  int64_t batchAxis = 0;
  Shape shape;
  int64_t firstSample = 0; ///< among the rank's samples, if the node computes only some of them
  int64_t rankSamples = 0; ///< 0: given by the shape: shape[batchAxis] or one
  /// The global index of the sample at coordinate 0 of batchAxis.
  int64_t firstSampleOf(int64_t batchRank) const {
    int64_t ofShape = batchAxis < 0 ? 1 : shape[batchAxis];
    return batchRank * (rankSamples ? rankSamples : ofShape) + firstSample;
  }
  void fields(AttributeVisitor &v) {
    v.field("instance", instance);
    v.field("batch_axis", batchAxis);
    v.field("shape", shape);
    v.field("first_sample", firstSample);
    v.field("rank_samples", rankSamples);
  }
};

/// Converts random_uniform to a step of a fused body of `shape`, and back.
llvm::SmallVector<int64_t, 2> immediatesOf(const RandomUniformAttributes &random);
RandomUniformAttributes randomUniformOf(const Expression::Step &step, llvm::ArrayRef<int64_t> shape);

/// fused: results have `shape`; operands broadcast to it by numpy rules (right-aligned, size 1 stretches).
struct FusedAttributes {
  Shape shape;
  Expression body;
  void fields(AttributeVisitor &v) {
    v.field("shape", shape);
    v.field("body", body);
  }
};

/// constant
struct ConstantAttributes {
  Dense value;
  Shape shape;
  void fields(AttributeVisitor &v) {
    v.field("value", value);
    v.field("shape", shape);
  }
};

/// iota: element = start + step * coordinate on `axis`
struct IotaAttributes {
  DType dtype = DType::i64;
  Shape shape;
  int64_t axis = 0;
  double start = 0, step = 1;
  void fields(AttributeVisitor &v) {
    v.field("dtype", dtype);
    v.field("shape", shape);
    v.field("axis", axis);
    v.field("start", start);
    v.field("step", step);
  }
};

/// broadcast (numpy rules, right-aligned), reshape (same element order), random shapes
struct ShapeAttributes {
  Shape shape;
  void fields(AttributeVisitor &v) { v.field("shape", shape); }
};

/// transpose: result dim i is operand dim permutation[i]
struct TransposeAttributes {
  Shape permutation;
  void fields(AttributeVisitor &v) { v.field("permutation", permutation); }
};

/// slice, all axes: result[i] = x[starts + i * steps], sizes elements per axis; steps may be negative, never 0
struct SliceAttributes {
  Shape starts, sizes, steps;
  void fields(AttributeVisitor &v) {
    v.field("starts", starts);
    v.field("sizes", sizes);
    v.field("steps", steps);
  }
};

/// pad(x): before/after elements per axis (>= 0) and `interior` elements between neighbours (>= 0) of `value`
struct PadAttributes {
  Shape before, after, interior;
  double value = 0;
  void fields(AttributeVisitor &v) {
    v.field("before", before);
    v.field("after", after);
    v.field("interior", interior);
    v.field("value", value);
  }
};

/// concat, softmax, log_softmax, gather, cumulative_sum, arg_max
struct AxisAttributes {
  int64_t axis = 0; ///< >= 0: already normalized
  void fields(AttributeVisitor &v) { v.field("axis", axis); }
};

/// cumulative_sum
struct CumulativeSumAttributes {
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
  void fields(AttributeVisitor &v) {
    v.field("axis", axis);
    v.field("exclusive", exclusive);
    v.field("reverse", reverse);
  }
};

/// scatter_add(indices, updates): derivative of gather on `axis`: zeros of `size` on that axis, updates added at
/// indices
struct ScatterAddAttributes {
  int64_t axis = 0;
  int64_t size = 0;
  bool accumulateF32 = false; ///< as of matmul
  void fields(AttributeVisitor &v) {
    v.field("axis", axis);
    v.field("size", size);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// gather_nd
struct GatherNdAttributes {
  int64_t batchDims = 0;
  void fields(AttributeVisitor &v) { v.field("batch_dims", batchDims); }
};

/// scatter_nd
struct ScatterNdAttributes {
  int64_t batchDims = 0;
  std::string reduction = "none"; ///< none, add, mul, max, min
  void fields(AttributeVisitor &v) {
    v.field("batch_dims", batchDims);
    v.field("reduction", reduction);
  }
};

/// top_k, along the last axis
struct TopKAttributes {
  int64_t k = 1;
  bool smallest = false;
  void fields(AttributeVisitor &v) {
    v.field("k", k);
    v.field("smallest", smallest);
  }
};

/// reduce_sum, reduce_max, reduce_min, reduce_prod: axes ascending, >= 0
struct ReduceAttributes {
  Shape axes;
  bool keepDims = false;
  bool accumulateF32 = false; ///< reduce_sum: as of matmul
  void fields(AttributeVisitor &v) {
    v.field("axes", axes);
    v.field("keep_dims", keepDims);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// matmul
struct MatmulAttributes {
  bool transposeA = false, transposeB = false;
  bool accumulateF32 = false; ///< the result is the f32 accumulator, not rounded to the operands' 16-bit type
  void fields(AttributeVisitor &v) {
    v.field("transpose_a", transposeA);
    v.field("transpose_b", transposeB);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// convolution x [N, C, spatial...], w [M, C / groups, kernel...]; pads are before, after per spatial axis
struct ConvolutionAttributes {
  Shape strides, dilations, padsBefore, padsAfter;
  int64_t groups = 1;
  Shape shape;                ///< gradient ops: shape of the result (of the input or of the weight)
  bool accumulateF32 = false; ///< convolution_grad_weight: as of matmul
  void fields(AttributeVisitor &v) {
    v.field("strides", strides);
    v.field("dilations", dilations);
    v.field("pads_before", padsBefore);
    v.field("pads_after", padsAfter);
    v.field("groups", groups);
    v.field("shape", shape);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// max_pool, average_pool on [N, C, spatial...]; padsAfter already includes what ceil mode adds
struct PoolAttributes {
  Shape kernel, strides, dilations, padsBefore, padsAfter;
  bool countIncludePad = false;
  Shape shape; ///< gradient ops: shape of the input
  void fields(AttributeVisitor &v) {
    v.field("kernel", kernel);
    v.field("strides", strides);
    v.field("dilations", dilations);
    v.field("pads_before", padsBefore);
    v.field("pads_after", padsAfter);
    v.field("count_include_pad", countIncludePad);
    v.field("shape", shape);
  }
};

/// layer_norm and rms_norm over dims [axis, rank)
struct NormAttributes {
  int64_t axis = 0;
  double epsilon = 1e-5;
  bool accumulateF32 = false; ///< gradient ops: for the cotangents of the scales, as of matmul
  void fields(AttributeVisitor &v) {
    v.field("axis", axis);
    v.field("epsilon", epsilon);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// batch_norm of x [N, C, ...]
struct BatchNormAttributes {
  double epsilon = 1e-5;
  bool training = false; ///< normalizes with the batch statistics, which also update the running ones
  bool synced = false;   ///< training: statistics of the batch of all ranks
  double momentum = 0.1; ///< training: the weight of the new statistics, as in PyTorch
  void fields(AttributeVisitor &v) {
    v.field("epsilon", epsilon);
    v.field("training", training);
    v.field("synced", synced);
    v.field("momentum", momentum);
  }
};

/// update_statistics
struct UpdateStatisticsAttributes {
  double momentum = 0.1;
  int64_t ranks = 1; ///< ranks of one micro-step
  void fields(AttributeVisitor &v) {
    v.field("momentum", momentum);
    v.field("ranks", ranks);
  }
};

/// batch_sum
struct BatchSumAttributes {
  int64_t ranks = 0; ///< sums over the ranks of its own micro-step (their count); 0: over those of all micro-steps
  void fields(AttributeVisitor &v) { v.field("ranks", ranks); }
};

/// attention(q, k, v, mask?, second_mask?, documents?) on [B, H, S, D], or [B, S, H, D] if sequenceFirst. k and v may
/// have fewer heads, each of which serves a group of adjacent heads of q. Masks are additive and broadcast to
/// [B, H, Sq, Sk].
struct AttentionAttributes {
  double scale = 1;
  bool causal = false; ///< key j is visible to query i only if j <= i
  int64_t window = 0;  ///< > 0: key j is visible to query i only if |i - j| < window
  /// The last operand is the number of the document that each position belongs to, in any order: key j is visible to
  /// query i only if both are in the same one.
  bool documents = false;
  /// Added to the scores of keys that `causal`, `window` and `documents` hide, in place of the mask. A finite number
  /// differs from -inf for a query all of whose other keys are hidden by the mask: it then weights the keys hidden here
  /// like those.
  double hidden = -std::numeric_limits<double>::infinity();
  bool masksHidden = false;   ///< the mask is added to their scores too
  double softcap = 0;         ///< > 0: scores are softcap * tanh(scale * q.k / softcap), before anything is added
  bool sequenceFirst = false; ///< layout of q, k, v and the output
  bool byLibrary = false;     ///< computed by the target's library instead of our kernel, with the same meaning
  void fields(AttributeVisitor &v) {
    v.field("scale", scale);
    v.field("causal", causal);
    v.field("window", window);
    v.field("documents", documents);
    v.field("hidden", hidden);
    v.field("masks_hidden", masksHidden);
    v.field("softcap", softcap);
    v.field("sequence_first", sequenceFirst);
    v.field("library", byLibrary);
  }
};

/// rotary
struct RotaryAttributes {
  bool transposed = false; ///< applies the transpose of every rotation: the derivative
  void fields(AttributeVisitor &v) { v.field("transposed", transposed); }
};

/// cross_entropy, nll: class on the last axis
struct LossAttributes {
  int64_t ignoreIndex = -100;
  double labelSmoothing = 0;
  void fields(AttributeVisitor &v) {
    v.field("ignore_index", ignoreIndex);
    v.field("label_smoothing", labelSmoothing);
  }
};

/// linear_cross_entropy and its derivative: the loss of logits = hidden weight, which are never in memory as a whole.
struct LinearLossAttributes {
  LossAttributes loss;
  bool transposeB = false;   ///< weight is [classes, width]
  double softcap = 0;        ///< logits are softcap * tanh(logits / softcap); 0: they are not capped
  int64_t chunk = 1;         ///< positions whose logits exist at once
  bool frozenWeight = false; ///< the derivative returns nothing for weight and bias
  void fields(AttributeVisitor &v) {
    loss.fields(v);
    v.field("transpose_b", transposeB);
    v.field("softcap", softcap);
    v.field("chunk", chunk);
    v.field("frozen_weight", frozenWeight);
  }
};

/// sgd, adam, adadelta, adagrad, rmsprop, lion: decides which state exists. Scalars are operands.
struct OptimizerAttributes {
  bool momentum = false;  ///< sgd, rmsprop: has a momentum buffer
  bool nesterov = false;  ///< sgd
  bool decoupled = false; ///< adam: decoupled weight decay (AdamW)
  bool centered = false;  ///< rmsprop
  bool averages = false;  ///< keeps a moving average of p', the last state
  bool copies = false;    ///< p' is also stored in the 16-bit type of the last tensor operand
  bool guarded = false;   ///< the last two operands scale the gradient and decide whether the update applies
  void fields(AttributeVisitor &v) {
    v.field("momentum", momentum);
    v.field("nesterov", nesterov);
    v.field("decoupled", decoupled);
    v.field("centered", centered);
    v.field("averages", averages);
    v.field("copies", copies);
    v.field("guarded", guarded);
  }
};

/// clip_norm: decides which operands it has
struct ClipNormAttributes {
  bool bounded = false; ///< max_norm
  bool scaled = false;  ///< loss_scale: the gradients are those of loss_scale * loss
  void fields(AttributeVisitor &v) {
    v.field("bounded", bounded);
    v.field("scaled", scaled);
  }
};

/// adjust_loss_scale
struct LossScaleAttributes {
  int64_t window = 1000;  ///< steps without overflow after which the scale doubles
  int64_t hysteresis = 2; ///< overflows until the scale halves
  double minimum = 1;     ///< lower bound of the scale
  void fields(AttributeVisitor &v) {
    v.field("window", window);
    v.field("hysteresis", hysteresis);
    v.field("minimum", minimum);
  }
};

/// read: yields the state's current version; write: makes the operand the new version
struct StateAttributes {
  Symbol state;
  Shape shape;              ///< read only
  DType dtype = DType::f32; ///< read only
  void fields(AttributeVisitor &v) {
    v.field("state", state);
    v.field("shape", shape);
    v.field("dtype", dtype);
  }
};

/// view(flat): `shape` from element `offset` of a flat buffer
struct ViewAttributes {
  int64_t offset = 0;
  Shape shape;
  void fields(AttributeVisitor &v) {
    v.field("offset", offset);
    v.field("shape", shape);
  }
};

/// pack(parts...): flat buffer of `elements`; part i is at offsets[i]; elements that no part covers are zero
struct PackAttributes {
  Shape offsets;
  int64_t elements = 0;
  void fields(AttributeVisitor &v) {
    v.field("offsets", offsets);
    v.field("elements", elements);
  }
};

/// tap(full tensor): passes it to the runtime under the parameter's name; or parts of it, one after the other: part i
/// of the operand is elements [from + i * every, + part) of the parameter, as far as it reaches
struct TapAttributes {
  Symbol parameter;
  int64_t from = 0;
  int64_t part = 0; ///< 0: the operand is the full tensor
  int64_t every = 0;
  void fields(AttributeVisitor &v) {
    v.field("parameter", parameter);
    v.field("from", from);
    v.field("part", part);
    v.field("every", every);
  }
};

/// return
struct ReturnAttributes {
  std::vector<std::string> names;
  void fields(AttributeVisitor &v) { v.field("results", names); }
};

/// gather_rows, scatter_rows: a table [rows, width] that is split over the ranks of a mesh axis
struct RowsAttributes {
  Symbol over;                ///< the mesh axis
  int64_t ranks = 1;          ///< its size
  int64_t rows = 0;           ///< of the whole table
  int64_t width = 0;          ///< elements of a row
  int64_t padded = 0;         ///< elements of the table and the zeros behind it; each rank has an equal share
  bool accumulateF32 = false; ///< scatter_rows: as of matmul
  void fields(AttributeVisitor &v) {
    v.field("over", over);
    v.field("ranks", ranks);
    v.field("rows", rows);
    v.field("width", width);
    v.field("padded", padded);
    v.field("accumulate_f32", accumulateF32);
  }
};

/// all_gather, reduce_scatter, all_reduce and their starts
struct CollectiveAttributes {
  Symbol over;       ///< the mesh axis
  int64_t ranks = 1; ///< its size
  int64_t id = -1;   ///< unique in the module, in order of issue; used by plan.json and traces (from async on)
  void fields(AttributeVisitor &v) {
    v.field("over", over);
    v.field("ranks", ranks);
    v.field("id", id);
  }
};

} // namespace fsdpc

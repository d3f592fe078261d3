// The softmax of a tile of queries while a block walks over the keys that they see. Per query: the largest score so
// far, and the sum of exponentials relative to it.
#pragma once

#include "runtime/cuda/kernels/attention_scores.h"

namespace fsdpc::rt::flash {

template <class T, int tileWidth>
struct ForwardSizes {
  static constexpr int width = tileWidth, rowBytes = width * static_cast<int>(sizeof(T));
  static constexpr int rowTiles = onTensorCores<T> && width <= 128 ? 2 : 1;
  static constexpr int warps = rowBytes <= 512 ? 4 : 2, threads = warps * warpLanes;
  static constexpr int warpRows = 16 * rowTiles, rows = warps * warpRows;
  static constexpr int step = rowBytes <= 128 ? 64 : rowBytes <= 512 ? 32 : 16;
  static constexpr int sharedBytes = (rows + 4 * step) * rowBytes; // queries, two stages of keys and values
};

template <class T, int width>
struct ForwardTiles {
  using Sizes = ForwardSizes<T, width>;
  T *shared;
  __device__ Tile<T, width> queries() const { return {shared}; }
  __device__ Tile<T, width> keys(int stage) const { return {shared + (Sizes::rows + 2 * stage * Sizes::step) * width}; }
  __device__ Tile<T, width> values(int stage) const { return {keys(stage).data + Sizes::step * width}; }
};

/// For a lane's rows: the largest score, the same in all lanes of a group, and the lane's part of the sum.
template <int rows>
struct Softmax {
  float largest[rows], sum[rows];
  __device__ Softmax() {
    FSDPC_UNROLL
    for (int r = 0; r < rows; ++r) {
      largest[r] = -scalar::infinity;
      sum[r] = 0;
    }
  }
};

/// Over the four lanes that share a row. NaN is never the largest (it makes the sum NaN).
__device__ inline float largestOfGroup(float value) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    const float other = __shfl_xor_sync(fullWarp, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline float sumOfGroup(float value) {
  for (int lanes = 1; lanes < 4; lanes *= 2)
    value += __shfl_xor_sync(fullWarp, value, lanes);
  return value;
}

/// Raises the largest scores to those of this step. Scales the sums by `factors`, which the caller applies to other
/// sums relative to the smaller scores. Returns whether some row of the warp has a factor other than 1.
template <class T, int rowTiles, int step>
__device__ bool raiseLargest(Softmax<2 * rowTiles> &softmax, const Sums<T, rowTiles, step> &scores,
                             float (&factors)[2 * rowTiles]) {
  bool anyRaised = false;
  FSDPC_UNROLL
  for (int r = 0; r < 2 * rowTiles; ++r) {
    float largest = softmax.largest[r];
    FSDPC_UNROLL
    for (int c = 0; c < scores.columnsPerLane; ++c)
      largest = scores.at(r, c) > largest ? scores.at(r, c) : largest;
    largest = largestOfGroup(largest);
    const bool isRaised = largest > softmax.largest[r];
    factors[r] = isRaised ? exponential<T>(softmax.largest[r] - shiftFor(largest)) : 1.0f;
    softmax.largest[r] = largest;
    softmax.sum[r] *= factors[r];
    anyRaised = anyRaised || isRaised;
  }
  return __ballot_sync(fullWarp, anyRaised) != 0;
}

/// Replaces scores by exponentials relative to the largest score, and adds them to the sum.
template <class T, int rowTiles, int step>
__device__ void takeExponentials(Softmax<2 * rowTiles> &softmax, Sums<T, rowTiles, step> &scores) {
  scores.forEach([&](int r, int, float &score) {
    score = exponential<T>(score - shiftFor(softmax.largest[r]));
    softmax.sum[r] += score;
  });
}

} // namespace fsdpc::rt::flash

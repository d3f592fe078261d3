// The groups of a mesh axis, as used by both parts of the checker.
#pragma once

#include "ir/module.h"
#include <limits>

namespace fsdpc::check {

/// All groups of `size` ranks with distance `stride`. A single rank is {1, 1}, whatever its axis is called.
struct RankGroup {
  int64_t stride = 1;
  int64_t size = 1;

  /// `axis` may be null: a single rank.
  static RankGroup of(const MeshAxis *axis) {
    return axis && axis->size > 1 ? RankGroup{axis->stride, axis->size} : RankGroup{};
  }
  bool isOneRank() const { return size == 1; }
  /// The stride of the next coarser groups. Saturates: meshes of untrusted text are checked elsewhere.
  int64_t end() const {
    int64_t product;
    return __builtin_mul_overflow(stride, size, &product) ? std::numeric_limits<int64_t>::max() : product;
  }
  /// True if every group of `other` is inside one of these.
  bool covers(RankGroup other) const {
    return other.isOneRank() ||
           (stride <= other.stride && other.stride % stride == 0 && other.end() <= end() && end() % other.end() == 0);
  }
  /// True if all members of a group have the same position in their groups of `other`, and vice versa.
  bool isApartFrom(RankGroup other) const {
    return isOneRank() || other.isOneRank() || (end() <= other.stride && other.stride % end() == 0) ||
           (other.end() <= stride && stride % other.end() == 0);
  }
  friend bool operator==(const RankGroup &, const RankGroup &) = default;
};

} // namespace fsdpc::check

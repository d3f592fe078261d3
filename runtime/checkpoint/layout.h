// Which tensors a checkpoint holds, and which part of each a rank writes.
//
// A checkpoint holds every parameter and, for every optimizer state of its segment, a tensor
// `optimizer.<state>.<parameter>` of the same shape. Tensors are flat and without padding, so a checkpoint does not
// depend on strategy, units or the number of ranks. Elements that several ranks hold are written by one of them.
#pragma once

#include "runtime/common/program.h"

#include <string>
#include <vector>

namespace fsdpc::rt {

struct CheckpointTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::int64_t elements = 0;
  int parameter = 0; ///< index into ProgramInfo::parameters: the tensor itself, or the parameter of this state
  const SegmentInfo *segment = nullptr; ///< how it is split over ranks
  Place place;                          ///< of this rank's shard of the segment, or of the segment's state
  bool isState = false;                 ///< of the optimizer
};

/// Elements [first, first + elements) of a flattened tensor, at `place` on the rank that writes them.
struct TensorSlice {
  std::size_t tensor = 0;
  std::int64_t first = 0, elements = 0;
  Place place;
};

class CheckpointLayout {
public:
  explicit CheckpointLayout(const ProgramInfo &program);

  const std::vector<CheckpointTensor> &tensors() const { return all; }
  /// What `rank` writes: at most one slice of a tensor, in the order of the tensors. The slices of all ranks cover
  /// every tensor once.
  std::vector<TensorSlice> slicesOf(int rank) const;
  /// Bytes of the slices of `rank`.
  std::int64_t bytesOf(int rank) const;
  /// The bytes of all tensors.
  std::int64_t totalBytes() const;

private:
  const ProgramInfo &program;
  std::vector<CheckpointTensor> all;
};

} // namespace fsdpc::rt

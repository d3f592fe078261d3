// The state of a training as a rank holds it between two steps: its parts of the tensors of a checkpoint and of the
// copies of parameters, and the scalars that the program itself updates.
#pragma once

#include "runtime/common/program.h"

#include <string>
#include <vector>

namespace fsdpc::rt {

/// The part of one tensor that a rank holds, without the padding of its segment.
struct HeldTensor {
  std::string name; ///< as a checkpoint calls it; "copy of w" for a replica of the segment; or the name of a scalar
  const SegmentInfo *segment = nullptr; ///< how it is split over ranks; null: a scalar, which every rank holds
  Place place;
  std::int64_t bytes = 0; ///< 0: the rank holds nothing of it
};

/// The same tensors in the same order on every rank.
std::vector<HeldTensor> heldState(const ProgramInfo &program, int rank);

/// Hashes of tensors, as the functions called so far leave them.
std::vector<std::uint64_t> hashesOf(const std::vector<HeldTensor> &tensors, const Context &context);

} // namespace fsdpc::rt

// What collectives of the planned machine deliver, from the operands of their members.
#pragma once

#include "tests/mutation/planned_rank.h"

namespace fsdpc::mutation {

/// By member of the group, in its order.
using Operands = std::map<int64_t, Bytes>;

/// One share of each.
Bytes gathered(const Operands &operands, int64_t shareBytes);
/// Part `part` of the sum, which is of `type`: added in pairs, as the runtime does.
Bytes sumOf(const Operands &operands, const Node &start, const Type &type, int64_t part);
/// In its place, bytes that tell what was added, and where.
Bytes hashOfSum(const Operands &operands, const Node &start, int64_t bytes, int64_t part);

} // namespace fsdpc::mutation

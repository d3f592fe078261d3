// Computes the results of the planned machine's collectives from the operands of their members.
#pragma once

#include "tests/mutation/planned_rank.h"

namespace fsdpc::mutation {

/// Operands by member of the group, in its order.
using Operands = std::map<int64_t, Bytes>;

/// One shard of each operand, concatenated.
Bytes gathered(const Operands &operands, int64_t shareBytes);
/// Part `part` of the sum, of type `type`: added in pairs, as the runtime does.
Bytes sumOf(const Operands &operands, const Node &start, const Type &type, int64_t part);
/// Replaces `sumOf` in hash mode: bytes that depend on the addends and the position.
Bytes hashOfSum(const Operands &operands, const Node &start, int64_t bytes, int64_t part);

} // namespace fsdpc::mutation

// Shared queries about attention and its derivative.
#pragma once

#include "ir/node.h"
#include "ir/ops/attributes.h"
#include <optional>

namespace fsdpc {

struct HostTensor;

/// The keys that `causal`, `window` and `documents` leave visible to a query.
class VisibleKeys {
public:
  /// `documents`: those of the sample's positions; null for none.
  VisibleKeys(const AttentionAttributes &attributes, int64_t query, int64_t keys, const double *documents);
  bool contains(int64_t key) const {
    return key >= first && key < end && (!documents || documents[key] == documents[query]);
  }

private:
  int64_t first, end, query;
  const double *documents;
};

/// The positions of the optional operands of attention or attention_grad.
struct AttentionExtras {
  /// More than one is given where their sum would be larger than each: rows and columns, say.
  static constexpr unsigned maxMasks = 2;
  llvm::SmallVector<unsigned, maxMasks> masks;
  std::optional<unsigned> documents;

  /// `count`: of all operands, `fixed`: of q, k, v and the others that every such node has.
  AttentionExtras(size_t count, unsigned fixed, const AttentionAttributes &attributes);
  explicit AttentionExtras(const Node &node);
  /// The position of the first optional operand, whether there is one or not.
  static unsigned firstOf(const Node &node);
};

/// Where the documents of sample `b` start in their operand [samples or 1, keys]; null without that operand.
const double *documentsOfSample(const HostTensor *documents, int64_t b);

/// True for attention and attention_grad.
bool isAttention(const Node &node);

/// True if the target's library computes it.
bool isAttentionByLibrary(const Node &node);

} // namespace fsdpc

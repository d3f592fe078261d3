#include "codegen/cuda/library_attention.h"

#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/attributes.h"

#include <algorithm>
#include <cmath>

namespace fsdpc {

namespace {

constexpr int64_t fixedBytes = 8 << 20;
/// More than any device has. Sums of products below it are exact as double.
constexpr double maxScratchBytes = static_cast<double>(int64_t{1} << 42);

struct Dims {
  int64_t batch, heads, keyHeads, queries, keys, width, valueWidth;

  explicit Dims(const Node &attention) {
    const unsigned first = attention.op() == Op::attentionGrad ? 1 : 0;
    const Type &q = attention.operand(first)->type(), &k = attention.operand(first + 1)->type();
    const bool sequenceFirst = attention.get<AttentionAttributes>().sequenceFirst;
    batch = q.dim(0);
    heads = q.dim(sequenceFirst ? 2 : 1);
    keyHeads = k.dim(sequenceFirst ? 2 : 1);
    queries = q.dim(sequenceFirst ? 1 : 2);
    keys = k.dim(sequenceFirst ? 1 : 2);
    width = q.dim(3);
    valueWidth = attention.operand(first + 2)->type().dim(3);
  }
};

double roundedUp(int64_t length) {
  constexpr double tile = 128;
  return std::ceil(static_cast<double>(length) / tile) * tile;
}

double gradBytes(const Dims &dims) {
  const double queries = roundedUp(dims.queries), keys = roundedUp(dims.keys), width = static_cast<double>(dims.width);
  const double perHead =
      queries * 4 + queries * width * 4 + (dims.heads == dims.keyHeads ? 0 : keys * 2 * width * 4) + queries * keys * 2;
  return static_cast<double>(dims.batch) * static_cast<double>(dims.heads) * perHead + static_cast<double>(fixedBytes);
}

} // namespace

std::optional<std::string> cudnnRefuses(const Node &attention) {
  const AttentionExtras extras(attention);
  const auto &attributes = attention.get<AttentionAttributes>();
  const Dims dims(attention);
  if (attention.operand(0)->type().dtype() != DType::bf16)
    return "cuDNN takes bf16";
  if (!extras.masks.empty())
    return "it has a mask";
  if (extras.documents)
    return "its queries see keys of their own document";
  if (dims.valueWidth != dims.width)
    return "its values are " + std::to_string(dims.valueWidth) + " wide, its keys " + std::to_string(dims.width);
  if (dims.width % 8 != 0 || dims.width > 128)
    return "heads are " + std::to_string(dims.width) + " wide, cuDNN's multiples of 8 up to 128";
  if (dims.batch == 0 || dims.heads == 0 || dims.width == 0 || dims.queries < 2 || dims.keys < 2)
    return "it is of less than two queries or keys";
  if (attributes.softcap > 0)
    return "its scores are capped";
  if (attributes.window > 0)
    return "its queries see a window of keys";
  if (attributes.causal && dims.queries != dims.keys)
    return "it is causal with " + std::to_string(dims.queries) + " queries and " + std::to_string(dims.keys) + " keys";
  if (!(attributes.scale > 0))
    return "its scale is not positive";
  if (gradBytes(dims) > maxScratchBytes)
    return "cuDNN's derivative keeps a number for every score, and no device has that much memory";
  return std::nullopt;
}

int64_t cudnnAttentionScratchBytes(const Node &attention) {
  if (attention.op() != Op::attentionGrad)
    return fixedBytes;
  return static_cast<int64_t>(std::min(gradBytes(Dims(attention)), maxScratchBytes));
}

} // namespace fsdpc

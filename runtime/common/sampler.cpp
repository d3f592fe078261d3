#include "runtime/common/sampler.h"

#include <algorithm>
#include <utility>

namespace fsdpc::rt {

Sampler::Sampler(SampleOrder order, BatchLayout layout, bool dropLast)
    : order(std::move(order)), layout(layout), dropLast(dropLast) {}

std::int64_t Sampler::batchesFrom(std::int64_t sample) const {
  const std::int64_t batch = layout.globalBatch();
  const std::int64_t rest = order.samples() - sample;
  return dropLast ? rest / batch : (rest + batch - 1) / batch;
}

void Sampler::rows(std::int64_t epoch, std::int64_t first, int microStep, std::span<std::int64_t> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t position = first + layout.firstRow(microStep) + static_cast<std::int64_t>(i);
    rows[i] = position < order.samples() ? order.at(epoch, position) : padding;
  }
}

std::int64_t Sampler::samplesInBatch(std::int64_t first) const {
  return std::min(layout.globalBatch(), order.samples() - first);
}

} // namespace fsdpc::rt

#include "runtime/common/row_packing.h"

#include <algorithm>
#include <map>

namespace fsdpc::rt {

void RowPacking::add(std::int64_t elements) {
  const std::int64_t taken = std::min(elements, rowElements);
  window.push_back({taken, static_cast<std::uint32_t>(packed.size() + window.size())});
  windowElements += taken;
  filled += taken;
  if (windowElements >= windowRows * rowElements)
    packWindow();
}

void RowPacking::endShard() { packWindow(); }

std::span<const std::uint32_t> RowPacking::samplesOf(std::int64_t row) const {
  const std::uint32_t *bounds = starts.data() + row;
  return {packed.data() + bounds[0], packed.data() + bounds[1]};
}

void RowPacking::packWindow() {
  std::map<std::int64_t, std::vector<std::uint32_t>> buckets; // by length; the first sample last
  for (auto waiting = window.rbegin(); waiting != window.rend(); ++waiting)
    buckets[waiting->elements].push_back(waiting->sample);
  std::vector<std::vector<std::uint32_t>> rows;
  while (!buckets.empty()) {
    std::vector<std::uint32_t> &row = rows.emplace_back();
    std::int64_t room = rowElements;
    for (auto after = buckets.end(); after != buckets.begin(); after = buckets.upper_bound(room)) {
      const auto bucket = std::prev(after);
      row.push_back(bucket->second.back());
      bucket->second.pop_back();
      room -= bucket->first;
      if (bucket->second.empty())
        buckets.erase(bucket);
    }
    std::ranges::sort(row);
  }
  std::ranges::sort(rows, {}, [](const std::vector<std::uint32_t> &row) { return row.front(); });
  for (const std::vector<std::uint32_t> &row : rows) {
    packed.insert(packed.end(), row.begin(), row.end());
    starts.push_back(static_cast<std::uint32_t>(packed.size()));
  }
  window.clear();
  windowElements = 0;
}

} // namespace fsdpc::rt

// --sample_packing: samples of unequal length share rows of the micro-batch (row_packing.h).
#include "runtime/common/batch_feeder.h"
#include "runtime/common/input_rows.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fsdpc::rt {
namespace {

[[noreturn]] void refusePacking(const std::string &why) { throw Failure(ExitCode::usage, "--sample_packing: " + why); }

/// Lengths that are read at once.
constexpr std::int64_t lengthsAtOnce = 1 << 16;

} // namespace

/// Feeds an input that --separate_documents has added, if samples share rows.
bool BatchFeeder::bindDocuments(const InputInfo &input) {
  if (!packsSamples || !isOfDocuments(input))
    return false;
  if (!data.holdsTokens && std::ranges::none_of(data.fields, &Field::ragged))
    refusePacking(data.pattern + ": every sample fills a row alone; samples that share rows have unequal lengths, "
                                 "and their field X has X.offsets beside it");
  const bool isPositions = input.name == documentPositionsInput;
  bindings.push_back(madeOf(input, isPositions ? Feed::positions : Feed::documents,
                            std::string(input.name) + (isPositions ? "=positions" : "=documents")));
  return true;
}

/// Returns the elements of a row. What would train otherwise than each sample alone is refused.
std::int64_t BatchFeeder::requireRowsToShare() const {
  const Binding *first = nullptr;
  for (const Binding &binding : bindings) {
    const std::string name = binding.input->name;
    if (binding.feed == Feed::iota)
      refusePacking("--fill " + name + "=iota counts through a row that several samples share; --fill " + name +
                    "=positions counts in each of them");
    if (!binding.isOfField())
      continue;
    const Field &field = data.fields[binding.field];
    if (!field.ragged && !data.holdsTokens)
      refusePacking(data.pattern + ": every sample of " + field.text() + ", which feeds input " + name +
                    ", fills a row alone; samples that share rows have unequal lengths (" + field.name + ".offsets)");
    if (first && rowElements(*first->input) != rowElements(*binding.input))
      refusePacking("inputs " + std::string(first->input->name) + " and " + name + " have rows of " +
                    std::to_string(rowElements(*first->input)) + " and " + std::to_string(rowElements(*binding.input)) +
                    " elements, and samples that share a row begin at one place in all of them");
    first = &binding;
  }
  if (std::ranges::none_of(bindings, [](const Binding &binding) { return binding.feed == Feed::documents; }))
    refusePacking("samples that share a row would attend to each other in this program: compile it with "
                  "--separate_documents, or give --fill INPUT=documents if an input of the model keeps them apart");
  return rowElements(*first->input);
}

/// The documents of a token file share rows as they are.
void BatchFeeder::packRows() {
  const std::int64_t elements = requireRowsToShare(), samples = sampleCount;
  if (data.holdsTokens)
    return;
  if (samples > RowPacking::maxSamples)
    refusePacking(data.pattern + ": holds more than " + std::to_string(RowPacking::maxSamples) + " samples");
  packedSources = data.sourcesOf(data.fields[mainField]);
  packing.emplace(elements, samples);
  for (SampleSource &source : packedSources) {
    const std::int64_t firstSample = source.firstSample;
    std::int64_t begin = 0;
    source.firstSample = packing->rows();
    for (std::int64_t &end : source.shardEnds) {
      packShard(firstSample + begin, firstSample + end);
      begin = std::exchange(end, packing->rows() - source.firstSample);
    }
  }
  sampleCount = packing->rows();
  char share[16];
  std::snprintf(share, sizeof share, "%.1f", 100.0 * packing->filledElements() / (sampleCount * elements));
  remarks.push_back(data.pattern + ": " + std::to_string(samples) + " samples share " + std::to_string(sampleCount) +
                    " rows of " + std::to_string(elements) + ", which they fill to " + share + " %");
}

void BatchFeeder::packShard(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> lengths;
  for (; first < end; first += lengthsAtOnce) {
    lengths.resize(static_cast<std::size_t>(std::min(lengthsAtOnce, end - first)));
    data.readLengths(data.fields[mainField], first, lengths);
    requireSameLengths(first, lengths);
    for (const std::int64_t elements : lengths)
      packing->add(elements);
  }
  packing->endShard();
}

/// Samples of all fields begin at one place of a row.
void BatchFeeder::requireSameLengths(std::int64_t first, std::span<const std::int64_t> lengths) const {
  const Field &main = data.fields[mainField];
  std::vector<std::int64_t> others(lengths.size());
  for (const Field &field : data.fields) {
    const auto isRead = [&](const Binding &binding) {
      return binding.isOfField() && &data.fields[binding.field] == &field;
    };
    if (&field == &main || std::ranges::none_of(bindings, isRead))
      continue;
    data.readLengths(field, first, others);
    const auto [length, other] = std::ranges::mismatch(lengths, others);
    if (length == lengths.end())
      continue;
    const std::int64_t sample = first + (length - lengths.begin());
    throw Failure(ExitCode::corrupt, data.where(field, sample, 0) + ": has " + std::to_string(*other) +
                                         " elements, and the sample of " + main.name + " has " +
                                         std::to_string(*length) + "; with --sample_packing they have as many");
  }
}

std::string BatchFeeder::rowsText() const {
  return packing ? "rows of " + std::to_string(packing->elementsOfRow()) + ": " : "";
}

} // namespace fsdpc::rt

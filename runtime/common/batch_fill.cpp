// The bytes of a micro-batch: reads, converts and checks what batch_feeder.cpp has bound.
#include "runtime/common/arena_access.h"
#include "runtime/common/batch_feeder.h"
#include "runtime/common/input_rows.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::rt {
namespace {

bool inRange(const IndexRangeInfo &range, std::int64_t value) {
  return (value >= 0 && value < range.limit) || (range.hasIgnoreIndex && value == range.ignoreIndex);
}

/// Finds an element of `values` (one sample) that is out of range. Returns its range, and null if every element is in
/// range.
const IndexRangeInfo *findOutOfRange(std::span<const IndexRangeInfo> ranges, DType dtype, const std::byte *values,
                                     std::int64_t &element) {
  for (const IndexRangeInfo &range : ranges)
    for (element = range.first; element < range.first + range.count; ++element)
      if (!inRange(range, loadInteger(dtype, values, element)))
        return &range;
  return nullptr;
}

/// A sample in a row of the micro-batch.
struct SampleInRow {
  std::int64_t sample;
  SamplePlace place;
  std::int64_t first, elements; ///< of the row
};

} // namespace

/// Visits the samples of a row from left to right.
template <class Visit>
void BatchFeeder::forEachSample(const Binding &binding, std::int64_t row, Visit visit) const {
  std::int64_t filled = 0;
  const auto take = [&](std::int64_t sample) {
    const SamplePlace place = data.placeOf(data.fields[binding.field], sample);
    const std::int64_t elements = std::min(place.elements, rowElements(*binding.input) - filled);
    visit(SampleInRow{sample, place, filled, elements});
    filled += elements;
  };
  if (!packing)
    return take(row);
  for (const std::uint32_t sample : packing->samplesOf(row))
    take(sample);
}

void BatchFeeder::checkValues(const Binding &binding, std::int64_t first, std::int64_t count,
                              const std::byte *values) const {
  const InputInfo &input = *binding.input;
  if (!hasRange(input))
    return;
  const IndexRangeInfo whole = wholeRange(input);
  const std::span<const IndexRangeInfo> ranges = rangesOf(input, whole);
  for (std::int64_t sample = 0; sample < count; ++sample) {
    std::int64_t element = 0;
    const IndexRangeInfo *range = findOutOfRange(ranges, input.dtype, values + sample * rowBytes(input), element);
    if (!range)
      continue;
    const std::int64_t value = loadInteger(input.dtype, values, sample * rowElements(input) + element);
    const std::string ignored = range->hasIgnoreIndex ? " (or " + std::to_string(range->ignoreIndex) + ")" : "";
    const std::string place = input.ranges.empty() ? "" : " at element " + std::to_string(element) + " of a sample";
    throw Failure(ExitCode::corrupt, where(binding, first + sample, element) + ": " + std::to_string(value) +
                                         " is out of range for input " + input.name + ", which takes 0 to " +
                                         std::to_string(range->limit - 1) + ignored + place);
  }
}

void BatchFeeder::convert(const Binding &binding, std::int64_t first, std::int64_t count, std::byte *destination) {
  const Field &field = data.fields[binding.field];
  const InputInfo &input = *binding.input;
  const std::int64_t elements = count * field.sampleElements;
  if (field.type == elementType(input.dtype) && field.lookup.empty()) {
    data.read(field, first, count, destination);
    return;
  }
  data.read(field, first, count, buffer.data());
  const std::byte *source = buffer.data();
  ElementType type = field.type;
  if (!field.lookup.empty()) {
    std::byte *values = buffer.data() + elements;
    for (std::int64_t i = 0; i < elements; ++i)
      std::memcpy(values + i * 4, &field.lookup[static_cast<std::size_t>(source[i])], 4);
    source = values;
    type = ElementType::f32;
  }
  const std::int64_t misfit = convertElements(type, source, input.dtype, destination, elements);
  if (misfit >= 0)
    failMisfit(binding, first + misfit / field.sampleElements, misfit % field.sampleElements);
}

void BatchFeeder::failMisfit(const Binding &binding, std::int64_t sample, std::int64_t element) const {
  throw Failure(ExitCode::corrupt, data.where(data.fields[binding.field], sample, element) +
                                       ": the value does not fit input " + binding.input->name);
}

void BatchFeeder::checkRanges(int rank, int worldSize, const std::function<void()> &beat) {
  for (const Binding &binding : bindings)
    if (binding.feed == Feed::field && hasRange(*binding.input))
      data.fields[binding.field].ragged ? scanRagged(binding, rank, worldSize, beat)
                                        : scan(binding, rank, worldSize, beat);
}

void BatchFeeder::scan(const Binding &binding, int rank, int worldSize, const std::function<void()> &beat) {
  const Field &field = data.fields[binding.field];
  const std::int64_t block = std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(1, field.sampleBytes()));
  std::vector<std::byte> raw(static_cast<std::size_t>(block * field.sampleBytes()));
  std::vector<std::byte> values(static_cast<std::size_t>(block * rowBytes(*binding.input)));
  std::int64_t scannedBytes = 0;
  for (std::int64_t first = rank * block; first < field.samples && scannedBytes < scanLimitBytes;
       first += worldSize * block) {
    const std::int64_t count = std::min(block, field.samples - first);
    data.read(field, first, count, raw.data());
    const std::int64_t misfit =
        convertElements(field.type, raw.data(), binding.input->dtype, values.data(), count * field.sampleElements);
    if (misfit >= 0)
      failMisfit(binding, first + misfit / field.sampleElements, misfit % field.sampleElements);
    checkValues(binding, first, count, values.data());
    scannedBytes += count * field.sampleBytes();
    beat();
  }
}

void BatchFeeder::scanRagged(const Binding &binding, int rank, int worldSize, const std::function<void()> &beat) {
  const std::int64_t bytes = rowElements(*binding.input) * byteSize(data.fields[binding.field].type);
  std::vector<std::byte> values(static_cast<std::size_t>(rowBytes(*binding.input)));
  std::int64_t scannedBytes = 0;
  for (std::int64_t row = rank; row < sampleCount && scannedBytes < scanLimitBytes; row += worldSize) {
    fillRagged(binding, row, values.data());
    checkValues(binding, row, 1, values.data());
    scannedBytes += bytes;
    beat();
  }
}

void BatchFeeder::readAhead(std::span<const std::int64_t> rows) const {
  for (const Binding &binding : bindings)
    for (const std::int64_t row : rows)
      if (binding.feed == Feed::field && row >= 0)
        forEachSample(binding, row,
                      [&](const SampleInRow &part) { data.readAhead(data.fields[binding.field], part.sample, 1); });
}

/// For messages: the element of the data that is this one of a row.
std::string BatchFeeder::where(const Binding &binding, std::int64_t row, std::int64_t element) const {
  std::string text;
  forEachSample(binding, row, [&](const SampleInRow &part) {
    if (element >= part.first && element < part.first + part.elements)
      text = data.where(data.fields[binding.field], part.sample, element - part.first);
  });
  return text;
}

void BatchFeeder::padRow(const InputInfo &input, std::byte *row) const {
  std::memset(row, 0, static_cast<std::size_t>(rowBytes(input)));
  if (isFloat(input.dtype))
    return;
  const IndexRangeInfo whole = wholeRange(input);
  for (const IndexRangeInfo &range : rangesOf(input, whole))
    if (range.hasIgnoreIndex)
      fillElements(input.dtype, row + range.first * byteSize(input.dtype), range.count,
                   static_cast<double>(range.ignoreIndex));
}

void BatchFeeder::fillField(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination) {
  const InputInfo &input = *binding.input;
  for (std::size_t i = 0; i < rows.size();) {
    std::byte *row = destination + static_cast<std::int64_t>(i) * rowBytes(input);
    if (rows[i] < 0) {
      padRow(input, row);
      ++i;
      continue;
    }
    if (data.fields[binding.field].ragged) {
      fillRagged(binding, rows[i], row);
      checkValues(binding, rows[i++], 1, row);
      continue;
    }
    std::size_t run = 1; // consecutive samples are read in one call
    while (i + run < rows.size() && rows[i + run] == rows[i] + static_cast<std::int64_t>(run))
      ++run;
    convert(binding, rows[i], static_cast<std::int64_t>(run), row);
    checkValues(binding, rows[i], static_cast<std::int64_t>(run), row);
    i += run;
  }
}

void BatchFeeder::ignoreLabel(const InputInfo &input, std::int64_t element, std::byte *row) const {
  const IndexRangeInfo whole = wholeRange(input);
  for (const IndexRangeInfo &range : rangesOf(input, whole))
    if (element >= range.first && element < range.first + range.count)
      fillElements(input.dtype, row + element * byteSize(input.dtype), 1, static_cast<double>(range.ignoreIndex));
}

void BatchFeeder::fillRagged(const Binding &binding, std::int64_t row, std::byte *destination) {
  const Field &field = data.fields[binding.field];
  const InputInfo &input = *binding.input;
  padRow(input, destination);
  forEachSample(binding, row, [&](const SampleInRow &part) {
    std::byte *to = destination + part.first * byteSize(input.dtype);
    data.files[part.place.file].read(part.place.offsetBytes, buffer.data(), part.elements * byteSize(field.type));
    const std::int64_t misfit = convertElements(field.type, buffer.data(), input.dtype, to, part.elements);
    if (misfit >= 0)
      failMisfit(binding, part.sample, misfit);
    // The graph would compare it with what it predicts at the end of the sample before.
    if (input.shiftsItself && part.first > 0 && part.elements > 0)
      ignoreLabel(input, part.first, destination);
  });
}

void BatchFeeder::fillMask(const Binding &binding, std::int64_t row, std::byte *destination) const {
  const InputInfo &input = *binding.input;
  std::int64_t filled = 0;
  forEachSample(binding, row, [&](const SampleInRow &part) { filled += part.elements; });
  fillElements(input.dtype, destination, filled, 1);
  fillElements(input.dtype, destination + filled * byteSize(input.dtype), rowElements(input) - filled, 0);
}

namespace {

/// Positions and documents both begin at 0.
struct DocumentCount {
  std::int64_t document = 0, position = 0;

  void endDocument() {
    document += position > 0;
    position = 0;
  }
};

} // namespace

/// A sample ends a document, and the token that ends one is its last. The padding is one more.
void BatchFeeder::countDocuments(const Binding &binding, std::int64_t row, std::byte *destination) {
  const Field &field = data.fields[binding.field];
  const InputInfo &input = *binding.input;
  const std::int64_t tokenBytes = byteSize(field.type);
  DocumentCount count;
  std::int64_t filled = 0;
  const auto put = [&] {
    const std::int64_t value = binding.feed == Feed::documents ? count.document : count.position;
    fillElements(input.dtype, destination + filled++ * byteSize(input.dtype), 1, static_cast<double>(value));
    ++count.position;
  };
  const auto isEnd = [&](const std::byte *stored) {
    std::int64_t token = 0;
    return convertElements(field.type, stored, DType::i64, reinterpret_cast<std::byte *>(&token), 1) < 0 &&
           token == *documentEnd;
  };
  forEachSample(binding, row, [&](const SampleInRow &part) {
    data.files[part.place.file].read(part.place.offsetBytes, buffer.data(), part.elements * tokenBytes);
    for (std::int64_t i = 0; i < part.elements; ++i) {
      put();
      if (documentEnd && isEnd(buffer.data() + i * tokenBytes))
        count.endDocument();
    }
    count.endDocument();
  });
  while (filled < rowElements(input))
    put();
}

void BatchFeeder::fill(const Context &context, std::span<const std::int64_t> rows, Inputs which) {
  for (const Binding &binding : bindings) {
    const InputInfo &input = *binding.input;
    if (which == Inputs::ofPrologue && !input.isInPrologue)
      continue;
    writeArena(context, input.place, input.shape.elements() * byteSize(input.dtype),
               [&](std::byte *destination) { fillInput(binding, rows, destination); });
  }
}

void BatchFeeder::fillInput(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination) {
  const InputInfo &input = *binding.input;
  const std::int64_t elements = input.shape.elements();
  switch (binding.feed) {
  case Feed::field: fillField(binding, rows, destination); break;
  case Feed::zeros:
  case Feed::ones: fillElements(input.dtype, destination, elements, binding.feed == Feed::ones ? 1 : 0); break;
  case Feed::iota: {
    const std::int64_t length = input.shape.dims[input.shape.rank - 1];
    for (std::int64_t i = 0; i < elements; ++i)
      fillElements(input.dtype, destination + i * byteSize(input.dtype), 1, static_cast<double>(i % length));
    break;
  }
  case Feed::mask:
  case Feed::positions:
  case Feed::documents:
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::byte *row = destination + static_cast<std::int64_t>(i) * rowBytes(input);
      if (rows[i] < 0)
        padRow(input, row);
      else
        binding.feed == Feed::mask ? fillMask(binding, rows[i], row) : countDocuments(binding, rows[i], row);
    }
    break;
  case Feed::weight:
    for (std::size_t i = 0; i < rows.size(); ++i)
      fillElements(input.dtype, destination + static_cast<std::int64_t>(i) * byteSize(input.dtype), 1,
                   rows[i] < 0 ? 0 : 1);
    break;
  }
}

} // namespace fsdpc::rt

#include "runtime/common/dataset.h"

#include "runtime/common/checked.h"
#include "runtime/common/data_formats.h"
#include "runtime/common/data_sources.h"
#include "runtime/common/safetensors.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace fsdpc::rt {

std::string Field::text() const {
  const std::string shape = ragged ? "[at most " + std::to_string(sampleElements) + "]" : dimsText(sampleDims);
  return name + " " + safetensorsName(type) + shape;
}

const Field *Dataset::find(std::string_view name) const {
  for (const Field &field : fields)
    if (field.name == name)
      return &field;
  return nullptr;
}

std::string Dataset::fieldList() const {
  std::string text;
  for (const Field &field : fields)
    text += (text.empty() ? "" : ", ") + field.text();
  return text.empty() ? "nothing" : text;
}

static const Extent &extentOf(const Field &field, std::int64_t sample) {
  const auto after = std::upper_bound(field.extents.begin(), field.extents.end(), sample,
                                      [](std::int64_t s, const Extent &extent) { return s < extent.firstSample; });
  return *(after - 1);
}

/// The elements of a sample whose bounds are at byte `at` of the file.
static std::int64_t lengthBetween(const Field &field, const InputFile &file, std::int64_t at,
                                  const std::int64_t *bounds) {
  if (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > file.sizeBytes() ||
      bounds[1] - bounds[0] > field.sampleElements)
    throw Failure(ExitCode::corrupt,
                  file.path() + ": byte " + std::to_string(at) + ": has changed since the start of the run");
  return bounds[1] - bounds[0];
}

SamplePlace Dataset::placeOf(const Field &field, std::int64_t sample) const {
  const Extent &extent = extentOf(field, sample);
  const std::int64_t inExtent = sample - extent.firstSample;
  if (!field.ragged)
    return {extent.file, extent.offsetBytes + inExtent * field.sampleBytes(), field.sampleElements};
  const std::int64_t at = extent.boundsBytes + inExtent * 8;
  std::int64_t bounds[2] = {};
  files[extent.file].read(at, bounds, sizeof bounds);
  return {extent.file, extent.offsetBytes + bounds[0] * byteSize(field.type),
          lengthBetween(field, files[extent.file], at, bounds)};
}

void Dataset::readLengths(const Field &field, std::int64_t first, std::span<std::int64_t> lengths) const {
  std::vector<std::int64_t> bounds(lengths.size() + 1);
  while (!lengths.empty()) {
    const Extent &extent = extentOf(field, first);
    const std::int64_t inExtent = first - extent.firstSample, at = extent.boundsBytes + inExtent * 8;
    const std::int64_t count = std::min(extent.samples - inExtent, static_cast<std::int64_t>(lengths.size()));
    files[extent.file].read(at, bounds.data(), (count + 1) * 8);
    for (std::int64_t i = 0; i < count; ++i)
      lengths[static_cast<std::size_t>(i)] = lengthBetween(field, files[extent.file], at + i * 8, bounds.data() + i);
    lengths = lengths.subspan(static_cast<std::size_t>(count));
    first += count;
  }
}

/// Calls `visit(file, offsetBytes, bytes)` for the parts of samples [first, first + count).
template <class Visit>
static void forEachRun(const Dataset &data, const Field &field, std::int64_t first, std::int64_t count, Visit visit) {
  if (first < 0 || count < 0 || first + count > field.samples)
    throw Failure(ExitCode::internal, "read past the last sample of " + field.name);
  while (count > 0) {
    const Extent &extent = extentOf(field, first);
    const std::int64_t run = field.ragged ? 1 : std::min(count, extent.firstSample + extent.samples - first);
    const SamplePlace place = data.placeOf(field, first);
    visit(data.files[place.file], place.offsetBytes, run * place.elements * byteSize(field.type));
    first += run;
    count -= run;
  }
}

void Dataset::read(const Field &field, std::int64_t first, std::int64_t count, std::byte *destination) const {
  if (!field.numbers.empty()) {
    std::memcpy(destination, field.numbers.data() + first, static_cast<std::size_t>(count) * sizeof(std::int64_t));
    return;
  }
  forEachRun(*this, field, first, count, [&](const InputFile &file, std::int64_t offsetBytes, std::int64_t bytes) {
    file.read(offsetBytes, destination, bytes);
    destination += bytes;
  });
}

void Dataset::readAhead(const Field &field, std::int64_t first, std::int64_t count) const {
  if (!field.numbers.empty())
    return;
  forEachRun(*this, field, first, count, [](const InputFile &file, std::int64_t offsetBytes, std::int64_t bytes) {
    file.readAhead(offsetBytes, bytes);
  });
}

std::vector<SampleSource> Dataset::sourcesOf(const Field &field) const {
  std::vector<SampleSource> sources(std::max<std::size_t>(1, sourceEnds.size()));
  std::size_t source = 0, lastFile = files.size();
  for (std::size_t i = 0; i < sourceEnds.size(); ++i)
    sources[i].weight = sourceEnds[i].second;
  for (const Extent &extent : field.extents) {
    while (source < sourceEnds.size() && extent.file >= sourceEnds[source].first)
      sources[++source].firstSample = extent.firstSample;
    std::vector<std::int64_t> &ends = sources[source].shardEnds;
    if (extent.file != lastFile)
      ends.push_back(0);
    ends.back() = extent.firstSample + extent.samples - sources[source].firstSample;
    lastFile = extent.file;
  }
  return sources;
}

std::string Dataset::where(const Field &field, std::int64_t sample, std::int64_t element) const {
  const SamplePlace place = placeOf(field, sample);
  const std::int64_t offset = place.offsetBytes + (field.numbers.empty() ? element * byteSize(field.type) : 0);
  return files[place.file].path() + ": byte " + std::to_string(offset) + " (sample " +
         std::to_string(sample - extentOf(field, sample).firstSample) + " of " + field.name + ")";
}

Field &Dataset::fieldFor(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                         std::size_t file, bool ragged) {
  auto field = std::find_if(fields.begin(), fields.end(), [&](const Field &f) { return f.name == name; });
  if (field == fields.end()) {
    Field added;
    added.name = name;
    added.type = type;
    added.sampleDims = sampleDims;
    added.ragged = ragged;
    for (const std::int64_t dim : sampleDims)
      added.sampleElements = checkedMultiply(added.sampleElements, dim, files[file].path() + ": " + name);
    checkedMultiply(added.sampleElements, byteSize(type), files[file].path() + ": " + name);
    return fields.emplace_back(std::move(added));
  }
  if (field->type != type || field->sampleDims != sampleDims || field->ragged != ragged)
    throw Failure(ExitCode::corrupt, files[file].path() + ": " + name + " is " + safetensorsName(type) +
                                         (ragged ? " of unequal length" : dimsText(sampleDims) + " per sample") +
                                         ", the files before have " + field->text());
  return *field;
}

static void requireInside(const InputFile &file, const std::string &name, std::int64_t offsetBytes,
                          std::int64_t bytes) {
  if (checkedAdd(offsetBytes, bytes, file.path()) > file.sizeBytes())
    throw Failure(ExitCode::corrupt, file.path() + ": ends at byte " + std::to_string(file.sizeBytes()) + ", " + name +
                                         " needs it to reach byte " + std::to_string(offsetBytes + bytes));
}

void Dataset::addExtent(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                        std::size_t file, std::int64_t offsetBytes, std::int64_t samples) {
  Field &field = fieldFor(name, type, sampleDims, file, false);
  requireInside(files[file], name, offsetBytes, checkedMultiply(samples, field.sampleBytes(), files[file].path()));
  if (samples == 0)
    return;
  field.extents.push_back({file, offsetBytes, field.samples, samples});
  field.samples = checkedAdd(field.samples, samples, files[file].path());
}

void Dataset::addNumber(const std::string &name, std::int64_t number, std::size_t file, std::int64_t offsetBytes) {
  Field &field = fieldFor(name, ElementType::i64, {}, file, false);
  field.numbers.push_back(number);
  field.extents.push_back({file, offsetBytes, field.samples++, 1});
}

/// The next positions of a ragged field, and what they say of the lengths of its samples.
static void readBounds(Field &field, const InputFile &file, std::int64_t at, std::span<const std::int64_t> bounds,
                       std::int64_t firstSample) {
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i] < 0 || bounds[i + 1] < bounds[i])
      throw Failure(ExitCode::corrupt, file.path() + ": byte " + std::to_string(at + static_cast<std::int64_t>(i) * 8) +
                                           ": the positions of " + field.name + " are not ascending from 0");
    const std::int64_t elements = bounds[i + 1] - bounds[i];
    const std::int64_t sample = firstSample + static_cast<std::int64_t>(i);
    if (elements > field.sampleElements) {
      field.sampleElements = elements;
      field.longest = sample;
    }
    field.shortestElements = sample == 0 ? elements : std::min(field.shortestElements, elements);
  }
}

void Dataset::addRagged(const std::string &name, ElementType type, std::size_t file, std::int64_t offsetBytes,
                        std::int64_t elements, std::int64_t boundsBytes, std::int64_t samples) {
  Field &field = fieldFor(name, type, {}, file, true);
  const InputFile &from = files[file];
  requireInside(from, name, offsetBytes, checkedMultiply(elements, byteSize(type), from.path()));
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(std::min(block, samples) + 1));
  std::int64_t first = 0, last = 0;
  for (std::int64_t done = 0; done <= samples; done += block) {
    const std::int64_t count = std::min(block, samples - done) + 1;
    const std::span<std::int64_t> part(bounds.data(), static_cast<std::size_t>(count));
    from.read(boundsBytes + done * 8, part.data(), count * 8);
    readBounds(field, from, boundsBytes + done * 8, part, field.samples + done);
    first = done == 0 ? part.front() : first;
    last = part.back();
  }
  if (first != 0 || last != elements)
    throw Failure(ExitCode::corrupt, from.path() + ": byte " + std::to_string(boundsBytes) + ": the positions of " +
                                         name + " go from " + std::to_string(first) + " to " + std::to_string(last) +
                                         ", its elements from 0 to " + std::to_string(elements));
  if (samples == 0)
    return;
  field.extents.push_back({file, offsetBytes, field.samples, samples, boundsBytes});
  field.samples = checkedAdd(field.samples, samples, from.path());
}

static std::string detectFormat(const std::string &path) {
  if (endsWith(path, ".safetensors"))
    return "safetensors";
  if (endsWith(path, ".npy"))
    return "npy";
  if (endsWith(path, ".tar"))
    return "tar";
  const InputFile file(path);
  if (hasTokenMagic(file))
    return "tokens";
  if (endsWith(path, "-ubyte") || hasIdxMagic(file))
    return "idx";
  throw Failure(ExitCode::corrupt,
                path + ": byte 0: not a safetensors, token, IDX, npy or tar file (headerless uint16 tokens need " +
                    "--data_format tokens)");
}

static bool namesNpyFiles(const DataRequest &request) {
  return request.format == "npy" || (request.format == "auto" && request.pattern.find('=') != std::string::npos &&
                                     endsWith(request.pattern, ".npy"));
}

static void openFiles(Dataset &data, const std::string &format, const std::vector<std::string> &paths,
                      const DataRequest &request) {
  if (format == "safetensors")
    openSafetensorsData(data, paths);
  else if (format == "tokens")
    openTokenData(data, paths, request);
  else if (format == "tar")
    openTarData(data, paths);
  else if (format == "npy")
    openNpyData(data, request.pattern);
  else
    openIdxData(data, paths, request.normalize);
}

Dataset openDataset(const DataRequest &request) {
  Dataset data;
  data.pattern = request.pattern;
  const bool areNpy = namesNpyFiles(request);
  const std::vector<SourceFiles> sources = areNpy ? std::vector<SourceFiles>(1) : readSources(request.pattern);
  std::string format = areNpy ? "npy" : request.format;
  if (format == "auto")
    format = detectFormat(sources.front().paths.front());
  if (request.normalize && format != "idx")
    throw Failure(ExitCode::usage, "--normalize applies to IDX images; " + request.pattern + " is " + format);
  for (const SourceFiles &source : sources) {
    openFiles(data, format, source.paths, request);
    if (source.weight)
      data.sourceEnds.emplace_back(data.files.size(), *source.weight);
  }
  return data;
}

} // namespace fsdpc::rt

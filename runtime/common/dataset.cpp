#include "runtime/common/dataset.h"

#include "runtime/common/checked.h"
#include "runtime/common/data_formats.h"
#include "runtime/common/safetensors.h"

#include <algorithm>

namespace fsdpc::rt {

std::string Field::text() const { return name + " " + safetensorsName(type) + dimsText(sampleDims); }

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

void Dataset::read(const Field &field, std::int64_t first, std::int64_t count, std::byte *destination) const {
  const std::int64_t sampleBytes = field.sampleBytes();
  if (first < 0 || count < 0 || first + count > field.samples)
    throw Failure(ExitCode::internal, "read past the last sample of " + field.name);
  while (count > 0) {
    const Extent &extent = extentOf(field, first);
    const std::int64_t inExtent = first - extent.firstSample;
    const std::int64_t run = std::min(count, extent.samples - inExtent);
    files[extent.file].read(extent.offsetBytes + inExtent * sampleBytes, destination, run * sampleBytes);
    destination += run * sampleBytes;
    first += run;
    count -= run;
  }
}

std::string Dataset::where(const Field &field, std::int64_t sample, std::int64_t element) const {
  const Extent &extent = extentOf(field, sample);
  const std::int64_t inExtent = sample - extent.firstSample;
  const std::int64_t offset = extent.offsetBytes + inExtent * field.sampleBytes() + element * byteSize(field.type);
  return files[extent.file].path() + ": byte " + std::to_string(offset) + " (sample " + std::to_string(inExtent) +
         " of " + field.name + ")";
}

void Dataset::addExtent(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                        std::size_t file, std::int64_t offsetBytes, std::int64_t samples) {
  auto field = std::find_if(fields.begin(), fields.end(), [&](const Field &f) { return f.name == name; });
  if (field == fields.end()) {
    fields.push_back({name, type, sampleDims, 1, 0, {}, {}, false});
    field = fields.end() - 1;
    for (const std::int64_t dim : sampleDims)
      field->sampleElements = checkedMultiply(field->sampleElements, dim, files[file].path() + ": " + name);
    checkedMultiply(field->sampleElements, byteSize(type), files[file].path() + ": " + name);
  }
  if (field->type != type || field->sampleDims != sampleDims)
    throw Failure(ExitCode::corrupt, files[file].path() + ": " + name + " is " + safetensorsName(type) +
                                         dimsText(sampleDims) + " per sample, the files before have " + field->text());
  const std::int64_t bytes = checkedMultiply(samples, field->sampleBytes(), files[file].path());
  if (checkedAdd(offsetBytes, bytes, files[file].path()) > files[file].sizeBytes())
    throw Failure(ExitCode::corrupt, files[file].path() + ": ends at byte " + std::to_string(files[file].sizeBytes()) +
                                         ", " + name + " needs it to reach byte " +
                                         std::to_string(offsetBytes + bytes));
  if (samples == 0)
    return;
  field->extents.push_back({file, offsetBytes, field->samples, samples});
  field->samples = checkedAdd(field->samples, samples, files[file].path());
}

static std::string detectFormat(const std::string &path) {
  if (endsWith(path, ".safetensors"))
    return "safetensors";
  if (endsWith(path, ".npy"))
    return "npy";
  const InputFile file(path);
  if (hasTokenMagic(file))
    return "tokens";
  if (endsWith(path, "-ubyte") || hasIdxMagic(file))
    return "idx";
  throw Failure(ExitCode::corrupt,
                path + ": byte 0: not a safetensors, token, IDX or npy file (headerless uint16 tokens need " +
                    "--data_format tokens)");
}

Dataset openDataset(const DataRequest &request) {
  Dataset data;
  data.pattern = request.pattern;
  const bool named =
      request.format == "npy" ||
      (request.format == "auto" && request.pattern.find('=') != std::string::npos && endsWith(request.pattern, ".npy"));
  const auto paths = named ? std::vector<std::string>() : expandGlob(request.pattern);
  std::string format = named ? "npy" : request.format;
  if (format == "auto")
    format = detectFormat(paths.front());
  if (request.normalize && format != "idx")
    throw Failure(ExitCode::usage, "--normalize applies to IDX images; " + request.pattern + " is " + format);
  if (format == "safetensors")
    openSafetensorsData(data, paths);
  else if (format == "tokens")
    openTokenData(data, paths, request);
  else if (format == "idx")
    openIdxData(data, paths, request.normalize);
  else
    openNpyData(data, request.pattern);
  return data;
}

} // namespace fsdpc::rt

#include "runtime/common/safetensors.h"

#include "runtime/common/checked.h"
#include "runtime/common/fingerprint.h"
#include "runtime/common/json.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdpc::rt {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data is read as the file stores it");

constexpr std::int64_t maxHeaderBytes = 100'000'000;

std::vector<std::int64_t> readIntegers(JsonReader &json) {
  json.expect(JsonToken::beginArray, "'['");
  std::vector<std::int64_t> values;
  while (true) {
    const JsonToken token = json.next();
    if (token == JsonToken::endArray)
      return values;
    if (token != JsonToken::number)
      json.fail("expected an integer");
    values.push_back(json.unsignedInteger());
  }
}

void readMetadata(JsonReader &json) {
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key)
    json.expect(JsonToken::string, "a string (__metadata__ maps strings to strings)");
}

ElementType readType(JsonReader &json, const std::string &tensor) {
  json.expect(JsonToken::string, "the name of an element type");
  const auto type = elementTypeFromSafetensors(json.value());
  if (!type)
    json.fail("tensor '" + tensor + "': element type '" + json.value().substr(0, 40) + "' is not supported");
  return *type;
}

/// `offsetBytes` is relative to the data section here.
TensorEntry readEntry(JsonReader &json, const std::string &name) {
  TensorEntry entry;
  entry.name = name;
  std::vector<std::int64_t> offsets;
  bool hasType = false, hasShape = false, hasOffsets = false;
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    const std::string key = json.value();
    bool &seen = key == "dtype" ? hasType : key == "shape" ? hasShape : hasOffsets;
    if ((key != "dtype" && key != "shape" && key != "data_offsets") || seen)
      json.fail("tensor '" + name + "': unexpected key '" + key.substr(0, 40) + "'");
    seen = true;
    if (key == "dtype")
      entry.type = readType(json, name);
    else
      (key == "shape" ? entry.dims : offsets) = readIntegers(json);
  }
  if (!hasType || !hasShape || !hasOffsets || offsets.size() != 2 || offsets[0] > offsets[1])
    json.fail("tensor '" + name + "' needs dtype, shape and data_offsets [begin, end]");
  entry.elements = 1;
  for (const std::int64_t dim : entry.dims)
    entry.elements = checkedMultiply(entry.elements, dim, "tensor '" + name + "'");
  entry.sizeBytes = checkedMultiply(entry.elements, byteSize(entry.type), "tensor '" + name + "'");
  entry.offsetBytes = offsets[0];
  if (offsets[1] - offsets[0] != entry.sizeBytes)
    json.fail("tensor '" + name + "': shape " + dimsText(entry.dims) + " needs " + std::to_string(entry.sizeBytes) +
              " bytes, data_offsets give " + std::to_string(offsets[1] - offsets[0]));
  return entry;
}

std::string readHeader(const InputFile &input) {
  std::uint64_t length = 0;
  if (input.sizeBytes() < 8)
    throw Failure(ExitCode::corrupt, input.path() + ": too short for a safetensors file");
  input.read(0, &length, 8);
  if (length > static_cast<std::uint64_t>(std::min(maxHeaderBytes, input.sizeBytes() - 8)))
    throw Failure(ExitCode::corrupt,
                  input.path() + ": byte 0: header length " + std::to_string(length) + " does not fit the file");
  std::string header(length, '\0');
  input.read(8, header.data(), static_cast<std::int64_t>(length));
  if (header.empty() || header[0] != '{')
    throw Failure(ExitCode::corrupt, input.path() + ": byte 8: a safetensors header starts with '{'");
  return header;
}

/// Tensors must follow each other without holes up to the end of the file.
void checkCover(std::vector<TensorEntry> &entries, std::int64_t dataBytes, const std::string &path) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry &a, const TensorEntry &b) {
    return std::pair(a.offsetBytes, a.sizeBytes) < std::pair(b.offsetBytes, b.sizeBytes);
  });
  std::int64_t end = 0;
  for (const TensorEntry &entry : entries) {
    if (entry.offsetBytes != end)
      throw Failure(ExitCode::corrupt, path + ": tensor '" + entry.name + "' starts at data byte " +
                                           std::to_string(entry.offsetBytes) + ", " + std::to_string(end) + " is next");
    end = checkedAdd(end, entry.sizeBytes, path);
  }
  if (end != dataBytes)
    throw Failure(ExitCode::corrupt, path + ": the tensors need " + std::to_string(end) +
                                         " bytes of data, the file has " + std::to_string(dataBytes));
}

void checkDistinct(const std::vector<TensorEntry> &sorted, const std::string &path) {
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].name == sorted[i - 1].name)
      throw Failure(ExitCode::corrupt, path + ": two tensors are named '" + sorted[i].name + "'");
}

std::uint64_t hashOf(std::string_view text) {
  return Fingerprint().addBytes(text.data(), static_cast<std::int64_t>(text.size())).value();
}

bool byName(const TensorEntry &a, const TensorEntry &b) { return a.name < b.name; }

std::string entryJson(const TensorEntry &entry, std::int64_t begin) {
  std::string shape = "[";
  for (std::size_t i = 0; i < entry.dims.size(); ++i)
    shape += (i ? "," : "") + std::to_string(entry.dims[i]);
  return JsonObject()
      .add("dtype", safetensorsName(entry.type))
      .addRaw("shape", shape + "]")
      .addRaw("data_offsets", "[" + std::to_string(begin) + "," + std::to_string(begin + entry.sizeBytes) + "]")
      .str();
}

} // namespace

std::string dimsText(const std::vector<std::int64_t> &dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

std::vector<std::int64_t> dimsOf(const Shape &shape) { return {shape.dims, shape.dims + shape.rank}; }

SafetensorsFile::SafetensorsFile(std::string path) : input(std::move(path)) {
  const std::string header = readHeader(input);
  hashOfHeader = hashOf(header);
  JsonReader json(header, input.path() + ": header");
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    const std::string name = json.value();
    if (name == "__metadata__")
      readMetadata(json);
    else
      entries.push_back(readEntry(json, name));
  }
  json.expect(JsonToken::end, "the end of the header");
  const auto dataBegin = static_cast<std::int64_t>(8 + header.size());
  checkCover(entries, input.sizeBytes() - dataBegin, input.path());
  for (TensorEntry &entry : entries)
    entry.offsetBytes += dataBegin;
  std::sort(entries.begin(), entries.end(), byName);
  checkDistinct(entries, input.path());
}

const TensorEntry *SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const TensorEntry &entry, std::string_view key) { return entry.name < key; });
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

SafetensorsWriter::SafetensorsWriter(const std::string &path, std::vector<TensorSpec> specs, NameUntilCommit until,
                                     const std::string &format) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec &a, const TensorSpec &b) {
    return std::pair(-byteSize(a.type), std::string_view(a.name)) <
           std::pair(-byteSize(b.type), std::string_view(b.name));
  });
  JsonObject header;
  if (!format.empty())
    header.addRaw("__metadata__", JsonObject().add("format", format).str());
  std::int64_t end = 0;
  for (TensorSpec &spec : specs) {
    TensorEntry entry{std::move(spec.name), spec.type, std::move(spec.dims), 1, end, 0};
    for (const std::int64_t dim : entry.dims)
      entry.elements *= dim;
    entry.sizeBytes = entry.elements * byteSize(entry.type);
    header.addRaw(entry.name, entryJson(entry, end));
    end += entry.sizeBytes;
    entries.push_back(std::move(entry));
  }
  std::string text = header.str();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  totalBytes = static_cast<std::int64_t>(8 + length) + end;
  hashOfHeader = hashOf(text);
  output.emplace(path, totalBytes, until);
  output->write(0, &length, 8);
  output->write(8, text.data(), static_cast<std::int64_t>(length));
  for (TensorEntry &entry : entries)
    entry.offsetBytes += static_cast<std::int64_t>(8 + length);
  std::sort(entries.begin(), entries.end(), byName);
}

std::optional<std::size_t> SafetensorsWriter::find(std::string_view name) const {
  const auto it = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const TensorEntry &entry, std::string_view key) { return entry.name < key; });
  if (it == entries.end() || it->name != name)
    return std::nullopt;
  return static_cast<std::size_t>(it - entries.begin());
}

void SafetensorsWriter::writeRange(std::size_t tensor, std::int64_t offsetBytes, const void *data, std::int64_t bytes) {
  const TensorEntry &entry = entries[tensor];
  if (offsetBytes < 0 || bytes < 0 || offsetBytes + bytes > entry.sizeBytes)
    throw Failure(ExitCode::internal, "write outside of tensor '" + entry.name + "'");
  output->write(entry.offsetBytes + offsetBytes, data, bytes);
}

} // namespace fsdpc::rt

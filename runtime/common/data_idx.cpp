#include "runtime/common/data_formats.h"
#include "runtime/common/safetensors.h"

namespace fsdpc::rt {
namespace {

constexpr std::uint8_t unsignedByteType = 0x08;

struct IdxHeader {
  std::vector<std::int64_t> dims;
  std::int64_t offsetBytes = 0;
};

IdxHeader readIdxHeader(const InputFile &file) {
  std::uint8_t magic[4] = {};
  if (file.sizeBytes() < 4)
    throw Failure(ExitCode::corrupt, file.path() + ": too short for an IDX file");
  file.read(0, magic, 4);
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0 || magic[3] > maxRank)
    throw Failure(ExitCode::corrupt, file.path() + ": byte 0: not the magic of an IDX file");
  if (magic[2] != unsignedByteType)
    throw Failure(ExitCode::corrupt, file.path() + ": byte 2: element type " + std::to_string(magic[2]) +
                                         " is not supported (unsigned bytes, 8, are)");
  IdxHeader header;
  header.offsetBytes = 4 + 4 * magic[3];
  for (int i = 0; i < magic[3]; ++i) {
    std::uint8_t dim[4] = {};
    file.read(4 + 4 * i, dim, 4);
    header.dims.push_back(std::int64_t{dim[0]} << 24 | dim[1] << 16 | dim[2] << 8 | dim[3]);
  }
  return header;
}

/// "train-images-idx3-ubyte" -> "train-labels-idx1-ubyte"; "" if the name is not of that form.
std::string labelsBeside(const std::string &images) {
  static constexpr std::string_view ending = "-images-idx3-ubyte";
  if (!endsWith(images, ending))
    return "";
  const std::string path = images.substr(0, images.size() - ending.size()) + "-labels-idx1-ubyte";
  return fileExists(path) ? path : "";
}

void addIdxFile(Dataset &data, const std::string &path) {
  const InputFile &file = data.files.emplace_back(path);
  const IdxHeader header = readIdxHeader(file);
  const std::string name = header.dims.size() == 1 ? "labels" : "images";
  if (data.find(name))
    throw Failure(ExitCode::usage, data.pattern + " matches two files of " + name + ", " + path + " is the second");
  data.addExtent(name, ElementType::u8, {header.dims.begin() + 1, header.dims.end()}, data.files.size() - 1,
                 header.offsetBytes, header.dims[0]);
  const std::int64_t expected = header.offsetBytes + data.find(name)->samples * data.find(name)->sampleBytes();
  if (file.sizeBytes() != expected)
    throw Failure(ExitCode::corrupt, path + ": " + std::to_string(file.sizeBytes()) + " bytes, the header " +
                                         dimsText(header.dims) + " makes it " + std::to_string(expected));
}

/// In float32 and in this order, as torchvision's ToTensor and Normalize compute it.
std::vector<float> imageValues(const std::optional<std::pair<float, float>> &normalize) {
  std::vector<float> values(256);
  for (int i = 0; i < 256; ++i) {
    const float value = static_cast<float>(i) / 255.0f;
    values[static_cast<std::size_t>(i)] = normalize ? (value - normalize->first) / normalize->second : value;
  }
  return values;
}

} // namespace

bool hasIdxMagic(const InputFile &file) {
  std::uint8_t magic[4] = {};
  if (file.sizeBytes() < 8)
    return false;
  file.read(0, magic, 4);
  return magic[0] == 0 && magic[1] == 0 && magic[2] >= 0x08 && magic[2] <= 0x0E && magic[3] >= 1 && magic[3] <= maxRank;
}

void openIdxData(Dataset &data, const std::vector<std::string> &paths,
                 const std::optional<std::pair<float, float>> &normalize) {
  for (const std::string &path : paths)
    addIdxFile(data, path);
  if (data.find("images") && !data.find("labels"))
    if (const std::string labels = labelsBeside(data.files.front().path()); !labels.empty())
      addIdxFile(data, labels);
  for (Field &field : data.fields)
    if (field.name == "images") {
      field.lookup = imageValues(normalize);
      field.anyShape = true;
    }
  data.defaultField = "images";
}

} // namespace fsdpc::rt

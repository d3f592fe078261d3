#include "runtime/common/taps.h"

#include "runtime/common/onnx_file.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t chunkBytes = 1 << 16;

bool isIdentity(const ParameterInfo &parameter) {
  for (int i = 0; i < parameter.shape.rank; ++i)
    if (parameter.onnxPermutation[i] != i)
      return false;
  return true;
}

class SafetensorsTap final : public FileTap {
public:
  SafetensorsTap(const ProgramInfo &program, const std::string &path, const std::string &prefix,
                 const std::vector<bool> &leftOut, NameUntilCommit until, int rank)
      : FileTap(program), prefix(prefix) {
    if (rank != 0)
      return;
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < program.parameters.size(); ++i)
      if (const ParameterInfo &parameter = program.parameters[i]; leftOut.empty() || !leftOut[i])
        specs.push_back({prefix + parameter.name, elementType(parameter.dtype), dimsOf(parameter.shape)});
    writer.emplace(path, std::move(specs), until, "pt");
  }

  void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) override {
    if (!writer)
      return;
    const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
    const std::int64_t width = byteSize(info.dtype);
    if (const auto tensor = writer->find(prefix + info.name))
      writer->writeRange(*tensor, first * width, data, elements * width);
  }

  void finish() override {
    if (writer)
      writer->commit();
  }

private:
  std::string prefix;
  std::optional<SafetensorsWriter> writer;
};

class OnnxTap final : public FileTap {
public:
  OnnxTap(const ProgramInfo &program, const std::string &path, const std::string &outDirectory, int rank)
      : FileTap(program), source(outDirectory + "/model.onnx"), dataPath(onnxDataPath(path)) {
    if (rank != 0)
      return;
    data.emplace(dataPath, program.onnxDataBytes, NameUntilCommit::none);
    copy.emplace(path, static_cast<std::int64_t>(model().size()), NameUntilCommit::none);
  }

  void take(int parameter, const void *tensor, std::int64_t first, std::int64_t elements) override {
    if (!data)
      return;
    ParameterInfo info = program.parameters[static_cast<std::size_t>(parameter)];
    std::vector<std::byte> promoted;
    if (info.onnxDType) {
      promoted.resize(static_cast<std::size_t>(elements * byteSize(*info.onnxDType)));
      convertElements(elementType(info.dtype), static_cast<const std::byte *>(tensor), *info.onnxDType, promoted.data(),
                      elements);
      info.dtype = *info.onnxDType;
      tensor = promoted.data();
    }
    const std::int64_t width = byteSize(info.dtype);
    if (isIdentity(info))
      return data->write(info.onnxOffsetBytes + first * width, tensor, elements * width);
    if (elements != info.shape.elements())
      throw Failure(ExitCode::internal, "a part of '" + std::string(info.name) + "', which the model file permutes");
    writePermuted(*data, info, static_cast<const std::byte *>(tensor));
  }

  void finish() override {
    if (!data)
      return;
    const std::string text = model();
    copy->write(0, text.data(), static_cast<std::int64_t>(text.size()));
    OutputFile::commitBoth(*data, *copy);
  }

private:
  /// Read again for each use, because it may be large.
  std::string model() const {
    return withDataFile(readFile(source), program.onnxDataFile, fileNameOf(dataPath), source);
  }

  std::string source, dataPath;
  std::optional<OutputFile> data, copy; ///< on rank 0
};

/// Walks the elements of a permuted tensor in the order of the file.
class PermutedWalk {
public:
  explicit PermutedWalk(const ParameterInfo &parameter) : rank(parameter.shape.rank) {
    std::int64_t strides[maxRank] = {};
    std::int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= parameter.shape.dims[i];
    }
    for (int i = 0; i < rank; ++i) {
      dims[i] = parameter.shape.dims[parameter.onnxPermutation[i]];
      step[i] = strides[parameter.onnxPermutation[i]];
    }
  }

  /// Returns the index of the next element in the parameter.
  std::int64_t next() {
    const std::int64_t result = at;
    for (int i = rank - 1; i >= 0; --i) {
      at += step[i];
      if (++index[i] < dims[i])
        break;
      at -= step[i] * dims[i];
      index[i] = 0;
    }
    return result;
  }

private:
  int rank;
  std::int64_t at = 0;
  std::int64_t index[maxRank] = {};
  std::int64_t dims[maxRank] = {};
  std::int64_t step[maxRank] = {};
};

} // namespace

void Tap::takeParts(int parameter, const void *data, std::int64_t bytes, const TapParts &parts) {
  const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
  const std::int64_t elements = info.shape.elements(), width = byteSize(info.dtype);
  if (parts.part == 0)
    return take(parameter, data, 0, elements);
  for (std::int64_t i = 0; (i + 1) * parts.part * width <= bytes; ++i)
    if (const std::int64_t first = parts.from + i * parts.every; first < elements)
      take(parameter, static_cast<const std::byte *>(data) + i * parts.part * width, first,
           std::min(parts.part, elements - first));
}

void writePermuted(OutputFile &file, const ParameterInfo &parameter, const std::byte *data) {
  const std::int64_t elementBytes = byteSize(parameter.dtype);
  const std::int64_t elements = parameter.shape.elements();
  if (isIdentity(parameter)) {
    file.write(parameter.onnxOffsetBytes, data, elements * elementBytes);
    return;
  }
  std::byte buffer[chunkBytes];
  PermutedWalk walk(parameter);
  const std::int64_t perChunk = chunkBytes / elementBytes;
  for (std::int64_t done = 0; done < elements; done += perChunk) {
    const std::int64_t count = std::min(perChunk, elements - done);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(buffer + i * elementBytes, data + walk.next() * elementBytes, static_cast<std::size_t>(elementBytes));
    file.write(parameter.onnxOffsetBytes + done * elementBytes, buffer, count * elementBytes);
  }
}

std::unique_ptr<FileTap> weightsTap(const ProgramInfo &program, const std::string &path, int rank,
                                    const std::vector<bool> &leftOut) {
  return std::make_unique<SafetensorsTap>(program, path, "", leftOut, NameUntilCommit::none, rank);
}

std::unique_ptr<FileTap> gradientsTap(const ProgramInfo &program, const std::string &path, int rank) {
  std::vector<bool> frozen;
  for (const ParameterInfo &parameter : program.parameters)
    frozen.push_back(!parameter.trainable);
  return std::make_unique<SafetensorsTap>(program, path, "grad.", frozen, NameUntilCommit::temporary, rank);
}

std::unique_ptr<FileTap> onnxTap(const ProgramInfo &program, const std::string &path, const std::string &outDirectory,
                                 int rank) {
  return std::make_unique<OnnxTap>(program, path, outDirectory, rank);
}

} // namespace fsdpc::rt
